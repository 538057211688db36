"""Who pays for a Change, its Tasks' shares, and what a stop says (rows 17, 18, 22, 140, 186, 240)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from budgets.keys import MeterKind
from budgets.money import ZERO, Usd
from routing.words import Tier
from tasks.funding import (
    budget_of,
    cost_of_run,
    is_spent,
    payers_for,
    share_of,
    spent_on,
    stop_change,
    stop_task,
)
from tasks.models import Change, DecisionReceipt, Event, Task
from tasks.states import ChangeState, TaskState
from tasks.stops import stop_detail, ways_out
from tests.factories.tasks import NOW, make_change, make_run, make_task
from tests.tasks.money import give_budget, keep_unknown, spend

pytestmark = pytest.mark.django_db


def test_a_tasks_share_counts_runs_and_conflict_reviews_and_all_open_tasks() -> None:
    """Example 2a: $6.00, spent 2.35 + 0.05, 3 open Tasks: $1.20 each."""
    change = make_change()
    give_budget(change, Usd.dollars("6"))
    tasks = [make_task(change, state=state) for state in ("running", "ready", "pending", "done", "failed")]
    spend(change, Usd.dollars("2.35"), run_id=uuid4())
    spend(change, Usd.dollars("0.05"), purpose="conflict_review")
    spend(change, Usd.dollars("0.50"), purpose="planner")  # not part of `spent`
    assert spent_on(change) == Usd.dollars("2.40")
    assert share_of(tasks[0]) == Usd(1_200_000)


def test_unknown_charges_count_at_their_worst_case() -> None:
    change = make_change()
    run_id = uuid4()
    spend(change, Usd(30_000), run_id=run_id)
    keep_unknown(change, Usd(100_000), run_id=run_id)
    assert spent_on(change) == Usd(130_000)
    assert cost_of_run(run_id) == (Usd(30_000), 1)  # the known part, and one call that is unknown


def test_a_change_without_a_budget_has_no_cap_and_is_never_spent() -> None:
    change = make_change()
    spend(change, Usd.dollars("5"), run_id=uuid4())
    assert (budget_of(change), share_of(make_task(change)), is_spent(change)) == (None, None, False)


@pytest.mark.parametrize(("spent", "over"), [("0", False), ("0.99", False), ("1", True), ("1.20", True)])
def test_a_change_is_spent_when_it_has_spent_something_and_nothing_is_left(spent: str, over: bool) -> None:
    """Row 18, example 2c."""
    change = make_change()
    give_budget(change, Usd.dollars("1"))
    if spent != "0":
        spend(change, Usd.dollars(spent), run_id=uuid4(), limit_first=False)
    assert is_spent(change) is over


def test_a_share_is_rounded_down_and_never_negative() -> None:
    change = make_change()
    give_budget(change, Usd(10))
    task = make_task(change)
    make_task(change)
    make_task(change)
    assert share_of(task) == Usd(3)
    spend(change, Usd(100), run_id=uuid4(), limit_first=False)
    assert share_of(task) == ZERO


def test_payers_come_from_rows() -> None:
    change = make_change()
    task = make_task(change)
    run = make_run(task, tier=Tier.SONNET, state="running")
    payers = payers_for(change, purpose="agent", key="k", task=task, run=run, now=NOW)
    kinds = [key.kind for key in payers.meters]
    assert kinds[:5] == [
        MeterKind.CHANGE,
        MeterKind.PROJECT,
        MeterKind.USER,
        MeterKind.ORGANIZATION,
        MeterKind.DAILY_CALLS,
    ]
    assert (payers.organization_id, payers.user_id) == (change.organization_id, change.author_id)
    assert payers.labels == {"change": change.title, "task": "T1", "tier": "sonnet", "attempt": "1"}
    uncounted = payers_for(change, purpose="planner", key="k", counts_daily=False, now=NOW)
    assert MeterKind.DAILY_CALLS not in [key.kind for key in uncounted.meters]


REFUSED = {
    "kind": "change",
    "subject": "x",
    "period": "",
    "unit": "usd",
    "limit": 1_000_000,
    "spent": 900_000,
    "held": 50_000,
    "amount": 260_000,
    "ends_at": None,
    "waits": False,
    "stop": "change_budget",
}


def test_a_stop_blocks_task_dependents_and_change_and_keeps_every_figure() -> None:
    """Rows 186 and 240."""
    change = make_change()
    task = make_task(change, state=TaskState.RUNNING)
    behind = make_task(change, needs=(task,))
    stop_task(task, "change_budget", reason="budget_refused", refusals=[REFUSED], now=NOW)
    task, behind = Task.objects.get(pk=task.pk), Task.objects.get(pk=behind.pk)
    assert (task.state, task.stop_limit) == (TaskState.BLOCKED, "change_budget")
    assert task.stop_detail["refusals"] == [REFUSED]
    assert task.stop_detail["ways_out"] == [
        {"act": "raise", "meter": "change", "role": "admin", "at_least": 1_210_000, "unit": "usd"}
    ]
    assert (behind.state, behind.blocked_by) == (TaskState.BLOCKED, task)
    change = Change.objects.get(pk=change.pk)
    assert (change.state, change.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
    receipt = DecisionReceipt.objects.get(kind="stop")
    assert (receipt.decision, receipt.task, receipt.reasons) == ("change_budget", task, ["budget_refused"])
    assert Event.objects.filter(kind="spend_limited", task=task).count() == 1


def test_a_stop_of_the_change_itself_says_which_work_goes_on_when_it_is_lifted() -> None:
    change = make_change(state=ChangeState.PLANNING)
    stop_change(change, "monthly_budget", work="planning", refusals=[REFUSED], now=NOW)
    fresh = Change.objects.get(pk=change.pk)
    assert (fresh.state, fresh.stop_limit, fresh.stop_detail["work"]) == (
        ChangeState.BUDGET_BLOCKED,
        "monthly_budget",
        "planning",
    )


def test_a_change_budget_stop_without_a_refusal_shows_the_meter_of_that_moment() -> None:
    """Row 194: the attempt limit after a run over its share."""
    change = make_change()
    give_budget(change, Usd.dollars("1"))
    spend(change, Usd.dollars("0.40"), run_id=uuid4())
    task = make_task(change, state=TaskState.RUNNING)
    stop_task(task, "change_budget", reason="two_failures_at_sonnet", now=NOW)
    (figure,) = Task.objects.get(pk=task.pk).stop_detail["refusals"]
    assert (figure["limit"], figure["spent"], figure["amount"]) == (1_000_000, 400_000, None)


def month(kind: str, **more: object) -> dict[str, object]:
    return {**REFUSED, "kind": kind, "ends_at": "2026-12-01T00:00:00+00:00", **more}


@pytest.mark.parametrize(
    ("limit", "refusals", "acts"),
    [
        ("change_budget", [REFUSED], ["raise change admin"]),
        ("project_budget", [month("project")], ["raise project admin", "wait"]),
        ("user_budget", [month("user"), REFUSED], ["raise user admin", "raise change admin"]),
        ("monthly_budget", [month("organization")], ["raise organization admin", "wait"]),
        ("daily_call_cap", [month("daily_calls")], ["raise daily_calls admin", "wait"]),
        ("monthly_budget", [], ["top_up_provider operator", "reopen member"]),
        ("monthly_budget", [month("provider")], ["raise provider admin", "wait"]),
        ("max_attempts_per_tier", [], ["raise change admin", "reopen member"]),
        (
            "monthly_budget",
            [month("platform")],
            ["raise platform operator", "wait"],
        ),
    ],
)
def test_a_stop_says_what_would_lift_it(
    limit: str, refusals: list[dict[str, object]], acts: list[str]
) -> None:
    found = [
        " ".join(filter(None, (way["act"], way.get("meter", ""), way.get("role", ""))))
        for way in ways_out(limit, refusals)
    ]
    assert found == acts


def test_a_stop_is_data() -> None:
    detail = stop_detail("change_budget", reason="budget_refused", refusals=[REFUSED], now=NOW, run_id="r")
    assert (detail["at"], detail["run"]) == (NOW.isoformat(), "r")
