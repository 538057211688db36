"""The demo over real wires and sockets: the same ends and the same costs as offline (issue 4, points 1 and 5)."""

from __future__ import annotations

from collections.abc import Iterator
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
from tasks.models import Change, TaskRun
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
Ends = list[tuple[str, str, str, int]]


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    entries = read_entries(entries_without_pauses(DEMO_FOLDER / "scenarios"), source="demo")
    with FakeServer(FakeProvider(entries, key=KEY)) as server:
        yield server


def play(config: dict[str, Any], *, kind: str, base_url: str = "", key: str | None = None) -> Ends:
    """The demo to its end, the raise of the third Change included: (Change, Task, how it ended, micro-dollars)."""
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
    runs = TaskRun.objects.order_by("task__change__number", "started_at")
    return [(run.task.change.title, run.task.key, run.end_reason, run.cost.micro) for run in runs]


def test_the_demo_ends_and_costs_the_same_over_real_wires(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    offline = play({"inline": entries_without_pauses(DEMO_FOLDER / "scenarios")}, kind="scripted")
    for wire, config in (("anthropic", {}), ("openai", CHAT)):
        call_command("flush", "--no-input", verbosity=0)
        fake.reset()
        online = play({**config, "send_labels": True}, kind=wire, base_url=fake.url(wire), key=KEY)
        assert online == offline
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
