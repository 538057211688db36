"""The demo over real wires and sockets: the same receipts as offline, and costs worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from agents.models import ModelCall
from budgets.keys import MeterKind
from budgets.models import Reservation
from budgets.money import Usd
from config.management.commands.demo import DEMO_FOLDER, OWNER_EMAIL, WANTED
from providers.fake.server import FakeProvider, FakeServer
from providers.models import Connector
from providers.saving import save_connector
from providers.scenarios import read_entries
from tasks.models import Change, DecisionReceipt, TaskRun
from tasks.raises import raise_budget
from tenants.models import User
from tests.journeys.workers import entries_without_pauses, work_until_idle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bwrap, pytest.mark.slow]

KEY = "sk-live-looking-0123456789abcdef"
# What a gateway in front of the tier models would declare on a chat wire.
DECLARED = {
    "can": [
        "tools",
        "tools_with_reasoning",
        "streaming",
        "thinking_off",
        "thinking_adaptive",
        "native_output",
    ],
    "input_tokens": 1_000_000,
    "output_tokens": 128_000,
}
CHAT = {"profiles": dict.fromkeys(("claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"), DECLARED)}
Ends = list[tuple[int, str, str, int]]
# Change, kind, Task, decision, reasons and figures of each receipt.
Receipts = list[tuple[int, str, str, str, list[str], dict[str, Any]]]
# What differs from one day to the next: moments, ids of rows, commits of this day.
_OF_THE_DAY = {"at", "not_before", "run", "by", "from", "to", "subject", "key"}
# What the next call would hold counts the provider's own words for earlier turns, such as the ids of its tool calls.
_OF_THE_WIRE = {"amount", "at_least"}


@dataclass(frozen=True)
class Told:
    """What the demo ended with."""

    ends: Ends
    plans: list[int]
    receipts: Receipts


def haiku(*, fresh: int, cached: int = 0, out: int) -> int:
    """Micro-dollars by hand, of tokens: $0.10 fresh, $0.01 from the cache, $0.50 out, each a million of them."""
    return (10 * fresh + cached + 50 * out) // 100


def sonnet(*, fresh: int, cached: int = 0, out: int) -> int:
    """$2 fresh, $0.10 from the cache, $10 out."""
    return (20 * fresh + cached + 100 * out) // 10


# Worked out from the usage that the scenario files state, call by call.
BY_HAND: Ends = [
    (1, "T1", "completed", 435 + 439 + 173 + 167),
    (1, "T2", "completed", 470 + 498 + 188 + 188),
    (1, "T3", "completed", 480 + 245 + 117 + 121),
    (2, "T1", "failed_by_agent", 415 + 358 + 148 + 335 + 158 + 259),
    (2, "T1", "failed_by_agent", 485 + 314 + 147 + 254),
    (2, "T1", "completed", 14_600 + 11_520 + 3_380 + 3_170),
    (2, "T2", "completed", 440 + 226 + 120),
    (3, "T1", "completed", 5 * 4_000),
    (
        3,
        "T2",
        "change_budget",
        4 * 4_000,
    ),  # with the plan's 60,000 it leaves 4,000, and the next may cost 4,448
    (3, "T2", "completed", 5 * 4_000),
    (3, "T3", "completed", 4 * 4_000),
]
PLANS_BY_HAND = [12_200, 9_200, 60_000]


def test_the_sums_by_hand_are_those_of_the_price_list() -> None:
    """One call of each sort, so that the literal figures above can be followed."""
    assert haiku(fresh=1_400, cached=3_900, out=520) == 140 + 39 + 260 == 439
    assert sonnet(fresh=1_600, cached=5_200, out=780) == 3_200 + 520 + 7_800 == 11_520
    assert sonnet(fresh=2_900, out=640) == PLANS_BY_HAND[0]
    assert haiku(fresh=25_000, out=3_000) == 4_000


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    entries = read_entries(entries_without_pauses(DEMO_FOLDER / "scenarios"), source="demo")
    with FakeServer(FakeProvider(entries, key=KEY)) as server:
        yield server


def play(config: dict[str, Any], *, kind: str, base_url: str = "", key: str | None = None) -> Told:
    """The demo to its end, the raise of the third Change included."""
    call_command("demo", stdout=StringIO())
    connector = Connector.objects.get(organization__slug="demo")
    save_connector(
        connector.organization,
        name=connector.name,
        kind=kind,
        base_url=base_url,
        key=key,
        config=config,
        by=None,
    )
    work_until_idle()
    raise_budget(
        change=Change.objects.get(title=WANTED[2].title),
        kind=MeterKind.CHANGE,
        to=Usd.dollars("1"),
        by=User.objects.get(email=OWNER_EMAIL),
        reason="worth it",
        key="raise",
        now=timezone.now(),
    )
    work_until_idle()
    assert set(Change.objects.values_list("state", flat=True)) == {"promoted"}
    runs = TaskRun.objects.order_by("task__change__number", "started_at").select_related("task__change")
    plans = ModelCall.objects.filter(purpose="planner").order_by("started_at")
    return Told(
        ends=[(run.task.change.number, run.task.key, run.end_reason, run.cost.micro) for run in runs],
        plans=[call.cost.micro for call in plans if call.cost is not None],
        receipts=_receipts(),
    )


def _receipts() -> Receipts:
    rows = DecisionReceipt.objects.order_by("change__number", "pk").select_related("change", "task")
    return [
        (
            row.change.number,
            row.kind,
            row.task.key if row.task else "",
            row.decision,
            row.reasons,
            _of_every_day(row.detail),
        )
        for row in rows
    ]


def _of_every_day(detail: Any) -> Any:
    if isinstance(detail, dict):
        return {
            name: _of_every_day(value)
            for name, value in detail.items()
            if name not in _OF_THE_DAY | _OF_THE_WIRE
        }
    return [_of_every_day(one) for one in detail] if isinstance(detail, list) else detail


def test_the_demo_ends_and_costs_the_same_over_real_wires(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    offline = play({"inline": entries_without_pauses(DEMO_FOLDER / "scenarios")}, kind="scripted")
    assert (offline.ends, offline.plans) == (BY_HAND, PLANS_BY_HAND)
    assert len(offline.receipts) > len(offline.ends)
    for wire, config in (("anthropic", {}), ("openai", CHAT)):
        call_command("flush", "--no-input", verbosity=0)
        fake.reset()
        online = play({**config, "send_labels": True}, kind=wire, base_url=fake.url(wire), key=KEY)
        assert (online.ends, online.plans) == (BY_HAND, PLANS_BY_HAND)
        for there, here in zip(online.receipts, offline.receipts, strict=True):
            assert there == here
        assert_each_request_was_held(fake)
        assert_the_key_is_nowhere()
    assert KEY not in caplog.text


def assert_each_request_was_held(fake: FakeServer) -> None:
    """What the server saw is what the log of calls and the ledger hold; embeddings are built in and send nothing."""
    assert len(fake.seen) == ModelCall.objects.count()
    held = Reservation.objects.exclude(purpose="embedding").exclude(state="refunded")
    assert len(fake.seen) == held.count()
    assert not Reservation.objects.filter(state__in=("held", "unknown")).exists()


def assert_the_key_is_nowhere() -> None:
    """Row 4: not in a row, not in a file of the data directory."""
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        assert KEY not in "\n".join(connection.connection.iterdump())
    for path in Path(settings.PLANE.data_dir).rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
