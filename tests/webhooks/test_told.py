"""What endpoints are told: each kind from the thing that really happens, in the shapes of REST and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from budgets.keys import MeterKind
from budgets.models import ThresholdCrossing
from budgets.money import Usd
from budgets.reservations import keep, settle
from budgets.thresholds import note_missed_crossings
from providers.messages import Usage
from tasks.changes import cancel_change, submit_change
from tasks.funding import stop_task
from tasks.models import Event
from tasks.raises import limit_of_subject, raise_budget, set_budget
from tasks.states import ChangeState, TaskState
from tasks.thresholds import tell_thresholds
from tasks.transitions import move_change, move_task
from tasks.unknowns import tell_unknown_charges
from tasks.wanted import WantedChange, WantedCriterion
from tenants.models import Role
from tests.factories.budgets import limit, make_hold, make_payers
from tests.factories.tasks import make_change, make_criterion, make_task, make_trunk
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token
from tests.factories.webhooks import SECRET, make_delivery, make_endpoint, make_hook
from tests.tasks.money import give_budget
from tests.tasks.threads import in_threads
from tests.webhooks.receiver import Receiver
from webhooks.delivering import deliver_due
from webhooks.kinds import KINDS, TEST
from webhooks.models import Delivery

pytestmark = pytest.mark.django_db
USAGE = Usage(input_uncached=1, output=1)
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")


def told(kind: str) -> Any:
    """The one message of this kind, as it would be sent."""
    return json.loads(Delivery.objects.get(kind=kind).payload)


def kinds() -> set[str]:
    return set(Delivery.objects.values_list("kind", flat=True))


def test_a_change_is_told_in_the_shape_of_rest() -> None:
    """Field by field what `GET /api/v1/changes` and `.../events` show at that moment."""
    change = make_change(state=ChangeState.COMPOSING)
    make_endpoint(change.organization)
    make_criterion(change)
    make_task(change, state=TaskState.DONE)
    make_task(change)
    give_budget(change, Usd.dollars("2.50"))
    meters = make_payers(
        change.organization, change_id=change.pk, project_id=change.project_id, now=timezone.now()
    )
    keep(make_hold(meters, 600).reservation_id, reason="test")
    make_hold(meters, 700)
    move_change(change, ChangeState.READY, because="criteria_passed", now=timezone.now())
    said = told("change.ready")["data"]
    _, plain = make_token(change.author, change.organization)
    (row,) = Client().get("/api/v1/changes", **bearer(plain)).json()["results"]
    assert said["change"].pop("stop") is None
    assert said["change"] == row
    events = Client().get(f"/api/v1/changes/{change.pk}/events", **bearer(plain)).json()["results"]
    assert said["event"] in events
    assert said["task"] is None
    assert row["money"]["unknown_calls"] == 1


def test_a_stop_says_which_limit_and_who_lifts_it_and_no_words_of_an_agent() -> None:
    change = make_change(goal="THE GOAL OF IT")
    make_endpoint(change.organization)
    task = make_task(change, state=TaskState.RUNNING, objective="THE PROMPT")
    refusal = {"kind": "change", "unit": "usd", "limit": 5, "spent": 5, "held": 0, "amount": 3}
    stop_task(
        task,
        "change_budget",
        reason="budget_refused",
        refusals=[refusal],
        note="AGENTS WORDS",
        now=timezone.now(),
    )
    blocked = told("task.blocked")["data"]
    assert (blocked["task"]["key"], blocked["task"]["state"]) == ("T1", "blocked")
    assert blocked["task"]["stop"]["refusals"] == [refusal]
    assert blocked["task"]["stop"]["ways_out"][0]["meter"] == "change"
    assert told("change.budget_blocked")["data"]["change"]["stop"]["limit"] == "change_budget"
    everything = "".join(Delivery.objects.values_list("payload", flat=True))
    for secret in ("AGENTS WORDS", "THE PROMPT", "THE GOAL OF IT"):
        assert secret not in everything


def test_a_change_from_its_beginning_to_its_end_is_told() -> None:
    project = make_project()
    make_trunk(project)
    make_endpoint(project.organization)
    author, now = make_member(project.organization), timezone.now()
    wanted = WantedChange(title="Hello", goal="Say hello.", criteria=(WantedCriterion("It says so."),))
    change = submit_change(project, wanted, by=author, now=now)
    assert told("change.submitted")["data"]["change"]["author"] == author.email
    cancel_change(change, by=author, now=now)
    assert kinds() == {"change.submitted", "change.cancelled"}


def test_a_task_that_ends_is_told() -> None:
    change = make_change()
    make_endpoint(change.organization, kinds=["task.done"])
    task = make_task(change, state=TaskState.RUNNING)
    move_task(task, TaskState.DONE, because="completed", now=timezone.now())
    assert told("task.done")["data"]["task"]["id"] == str(task.pk)


def test_a_threshold_is_told_once_of_a_change_and_of_an_organization() -> None:
    """Issue 3: one event per meter, period and threshold."""
    change = make_change()
    make_endpoint(change.organization)
    now = timezone.now()
    meters = make_payers(change.organization, change_id=change.pk, project_id=change.project_id, now=now)
    limit(meters[0], Usd(1_000), now=now)
    limit(next(key for key in meters if key.kind is MeterKind.ORGANIZATION), Usd(1_200), now=now)
    usage = Usage(input_uncached=10, output=10)
    settle(make_hold(meters, 600).reservation_id, cost=Usd(600), usage=usage, rates=None)
    tell_thresholds(now)
    tell_thresholds(now)
    rows = [json.loads(each.payload)["data"] for each in Delivery.objects.filter(kind="budget.threshold")]
    assert sorted((row["event"]["data"]["meter"], row["change"] is not None) for row in rows) == [
        ("change", True),
        ("organization", False),
    ]


@pytest.mark.django_db(transaction=True)
def test_sweeps_at_once_write_tell_and_send_each_threshold_once() -> None:
    """One row, one event and one delivery per meter, period and percent, though one charge passes them all."""
    now = timezone.now()
    change = make_change()
    make_endpoint(change.organization)
    meters = make_payers(change.organization, change_id=change.pk, project_id=change.project_id, now=now)
    limit(meters[0], Usd(1_000), now=now)
    settle(make_hold(meters, 1_000).reservation_id, cost=Usd(1_000), usage=USAGE, rates=None)
    ThresholdCrossing.objects.all().delete()  # the worker was killed before it wrote them

    def sweep(_: int) -> None:
        for _ in range(2):
            note_missed_crossings(now, (50, 80, 100))
            tell_thresholds(now)

    in_threads(4, sweep)
    assert sorted(ThresholdCrossing.objects.values_list("percent", flat=True)) == [50, 80, 100]
    events = Event.objects.filter(kind="budget.threshold")
    assert sorted(each.data["percent"] for each in events) == [50, 80, 100]
    assert Delivery.objects.filter(kind="budget.threshold").count() == 3


def test_a_raise_is_told_once_however_often_it_is_sent() -> None:
    change = make_change()
    admin = make_member(change.organization, Role.ADMIN)
    make_endpoint(change.organization)
    give_budget(change, Usd(5))
    wanted: dict[str, Any] = {"by": admin, "reason": "SECRET REASON", "key": "k", "now": timezone.now()}
    for _ in range(2):
        raise_budget(change=change, kind=MeterKind.CHANGE, to=Usd(9), **wanted)
    said = told("budget.raised")["data"]
    assert said["event"]["data"] == {
        "meter": "change",
        "subject": str(change.pk),
        "unit": "usd",
        "before": 5,
        "limit": 9,
        "by": str(admin.pk),
    }
    assert "SECRET REASON" not in Delivery.objects.get(kind="budget.raised").payload
    whose = limit_of_subject(change.organization, MeterKind.DAILY_CALLS, "")
    set_budget(whose, 5_000, by=admin, reason="", key="d", now=timezone.now())
    assert Event.objects.get(kind="budget.raised", change=None).data["meter"] == "daily_calls"


def test_a_charge_that_nobody_could_read_is_told_once() -> None:
    change = make_change()
    make_endpoint(change.organization)
    now = timezone.now()
    meters = make_payers(change.organization, change_id=change.pk, project_id=change.project_id, now=now)
    hold = make_hold(meters, 600)
    assert tell_unknown_charges(now) == 0
    keep(hold.reservation_id, reason="timeout")
    assert [tell_unknown_charges(timezone.now()) for _ in range(2)] == [1, 0]
    said = told("reservation.unknown")["data"]
    assert said["event"]["data"]["call"] == hold.reservation_id
    assert said["event"]["data"]["charged"] == 600
    assert said["change"]["id"] == str(change.pk)


def test_another_organizations_endpoint_hears_nothing() -> None:
    change = make_change(state=ChangeState.COMPOSING)
    make_endpoint(make_organization())
    move_change(change, ChangeState.READY, because="criteria_passed", now=timezone.now())
    assert Delivery.objects.count() == 0


def test_what_is_rolled_back_was_never_told() -> None:
    """The delivery is written in the transaction of its event: both or none."""
    from django.db import transaction

    change = make_change(state=ChangeState.COMPOSING)
    make_endpoint(change.organization)
    with transaction.atomic():
        move_change(change, ChangeState.READY, because="criteria_passed", now=timezone.now())
        assert Delivery.objects.count() == 1
        transaction.set_rollback(True)
    assert Delivery.objects.count() == 0


def test_nobody_listens_costs_one_query_and_an_event_of_no_interest_none(
    django_assert_num_queries: Any,
) -> None:
    change = make_change(state=ChangeState.COMPOSING)
    from tasks.events import record

    with django_assert_num_queries(2):
        record("change.ready", change=change, now=timezone.now())
    with django_assert_num_queries(1):
        record("agent.wake", change=change, now=timezone.now())


def test_the_manual_lists_each_kind_and_no_other() -> None:
    listed = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (.*?) \|$", PAGE, flags=re.MULTILINE)
    assert [kind for kind, _ in listed] == [*KINDS, TEST]


def test_the_verification_of_the_manual_takes_what_we_send_and_nothing_else() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)  # the page's own lines
    with Receiver() as receiver:
        make_delivery(make_endpoint(url=receiver.url))
        deliver_due()
    (got,) = receiver.got
    assert names["verified"](SECRET, got.headers, got.body)
    assert not names["verified"](SECRET, got.headers, got.body + b" ")
    assert not names["verified"]("whsec_" + "A" * 44, got.headers, got.body)
    old = got.headers | {"webhook-timestamp": str(int(time.time()) - 301)}
    assert not names["verified"](SECRET, old, got.body)


@pytest.mark.django_db(transaction=True)
def test_the_sender_of_the_manual_makes_a_change(live_server: Any) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[1]
    project = make_project()
    make_trunk(project)
    hook = make_hook(project)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "REMIT_HOOK_URL": f"{live_server.url}/hooks/in/{hook.pk}",
            "REMIT_HOOK_SECRET": SECRET,
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "CH-1\n"
