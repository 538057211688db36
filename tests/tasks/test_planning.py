"""Planning: one question, one repair, perhaps a person; and nothing starts from a refused answer."""

from __future__ import annotations

import html
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from budgets.decisions import Amount
from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.models import Meter, Reservation
from budgets.money import Usd
from budgets.reservations import CallContext, Held, reserve, settle
from tasks.errors import IllegalMove
from tasks.fence import WorkLost, due_changes, free_dead_work, make_due, resume_work, take_work
from tasks.funding import payers_for
from tasks.models import Change, Trunk
from tasks.owners import this_process
from tasks.planning import PLANNER, approve_plan, estimate_plan, plan_again, plan_on
from tasks.raises import raise_budget
from tasks.states import ChangeState
from tasks.work import work_on
from tenants.errors import InvalidInput
from tenants.models import Role
from tests.factories.tasks import NOW, make_change, make_criterion
from tests.factories.tenants import make_member, make_project
from tests.tasks.money import ONE_TOKEN
from tests.tasks.repositories import make_repository, make_script, plan_data, says, states

pytestmark = pytest.mark.django_db(transaction=True)

GOOD = plan_data({"id": "T1"}, {"id": "T2", "depends_on": ["T1"]}, {"id": "T3"})


def make_planning(*entries: dict[str, Any], **project: Any) -> Change:
    """A Change that is due for its plan, with a scripted planner."""
    made = make_project(**project)
    make_repository(made)
    if entries:
        make_script(made.organization, *entries)
    change = make_change(made, state=ChangeState.PLANNING)
    make_criterion(change)
    make_due(change, now=timezone.now())
    return change


def work(change: Change) -> Change:
    work_on(change.pk)
    change.refresh_from_db()
    return change


def set_budget(change: Change, to: Usd, key: str = "tight", kind: MeterKind = MeterKind.CHANGE) -> None:
    set_limit(
        organization_id=change.organization_id,
        kind=kind,
        subject=str(change.pk if kind is MeterKind.CHANGE else change.organization_id),
        to=to,
        by=change.author,
        reason="",
        key=key,
        now=timezone.now(),
    )


def test_a_good_plan_becomes_tasks_and_the_free_ones_are_ready() -> None:
    change = work(make_planning(says("planner", GOOD)))
    assert change.state == ChangeState.RUNNING
    assert states(change) == ["ready", "pending", "ready"]
    (edge,) = change.tasks.get(key="T2").dependencies.all()
    assert (edge.on.key, edge.added_by) == ("T1", "plan")
    assert (change.work_key, change.not_before) == ("", None)
    assert plan_on(change) is not None
    assert change.receipts.get(kind="plan").decision == "accepted"


def test_the_planner_is_a_metered_question_that_no_daily_counter_counts() -> None:
    """Rows 80, 142."""
    change = work(make_planning(says("planner", GOOD)))
    paid = Reservation.objects.get(change_id=change.pk)
    assert (paid.purpose, paid.state) == ("planner", "settled")
    kinds = set(Meter.objects.filter(pk__in=paid.meters).values_list("kind", flat=True))
    assert MeterKind.PROJECT in kinds
    assert MeterKind.DAILY_CALLS not in kinds


def test_a_refused_plan_is_mended_by_the_one_repair() -> None:
    bad = plan_data({"id": "A", "depends_on": ["B"]})
    first = {"when": {"role": "planner", "attempt": 1}, "steps": [{"json": bad}]}
    second = {"when": {"role": "planner", "attempt": 2}, "steps": [{"json": GOOD}]}
    change = work(make_planning(first, second))
    assert change.state == ChangeState.RUNNING
    assert change.plan_problem == ""
    assert change.events.filter(kind="change.plan.refused").count() == 1


def test_a_plan_that_is_refused_twice_starts_nothing_and_says_why() -> None:
    bad = plan_data({"id": "A", "depends_on": ["A"]})
    entries = [
        {"when": {"role": "planner"}, "steps": [{"json": bad}]},
    ]
    change = work(make_planning(*entries))
    assert change.state == ChangeState.FAILED
    assert change.failure == "plan_refused"
    assert "A depends on itself: A -> A" in change.plan_problem
    assert not change.tasks.exists()
    assert Reservation.objects.filter(change_id=change.pk).count() == 2
    receipt = change.receipts.get(kind="plan")
    assert (receipt.decision, receipt.detail["answers"]) == ("refused", 2)


@pytest.mark.parametrize(
    "step", [{"text": "I would first read the code."}, {"text": json.dumps(GOOD), "stop": "length"}]
)
def test_prose_or_a_cut_off_answer_starts_nothing(step: dict[str, Any]) -> None:
    """Fault C87: a cut-off answer is an error of its own, also when it parses."""
    change = work(make_planning({"when": {"role": "planner"}, "steps": [step]}))
    assert change.state == ChangeState.FAILED
    assert ("cut_off" if "stop" in step else "no_object") in change.plan_problem
    assert not change.tasks.exists()


CIRCLES = {
    "A -> A": [("A", ["A"])],
    "A -> B -> A": [("A", ["B"]), ("B", ["A"])],
    "A -> B -> C -> D -> E -> A": [("A", ["B"]), ("B", ["C"]), ("C", ["D"]), ("D", ["E"]), ("E", ["A"])],
    '"Z", which is no task': [("A", []), ("B", ["Z"])],
}
circles = pytest.mark.parametrize(("said", "edges"), CIRCLES.items())


def plan_with(edges: list[tuple[str, list[str]]]) -> dict[str, Any]:
    return plan_data(*({"id": name, "depends_on": needs} for name, needs in edges))


@circles
def test_a_planner_that_goes_in_circles_starts_nothing(said: str, edges: list[tuple[str, list[str]]]) -> None:
    """Fault C84: a self edge, two, a long circle, a missing id; the way is printed."""
    change = work(make_planning(says("planner", plan_with(edges))))
    assert change.state == ChangeState.FAILED
    assert said in change.plan_problem
    assert not change.tasks.exists()


@pytest.mark.parametrize("door", ["page", "rest"])
@circles
def test_a_person_who_edits_a_circle_into_a_plan_is_told_its_way(
    door: str, said: str, edges: list[tuple[str, list[str]]]
) -> None:
    """Fault C84, through the two doors of an edited plan."""
    change = work(make_planning(says("planner", GOOD), plan_needs_approval=True))
    answer = approve(change, door, json.dumps(plan_with(edges)))
    assert (answer.status_code, said in html.unescape(answer.content.decode()).replace('\\"', '"')) == (
        400,
        True,
    )
    change.refresh_from_db()
    assert change.state == ChangeState.AWAITING_APPROVAL
    assert not change.tasks.exists()
    assert approve(change, door, json.dumps(GOOD)).status_code in (200, 302)
    assert change.tasks.count() == 3


@pytest.mark.parametrize("door", ["page", "rest"])
@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD).replace('"tasks"', '"tasks": [], "tasks"'),
        json.dumps(GOOD).replace('"T1"', '"T0", "id": "T1"', 1),
        json.dumps(GOOD).replace('["T1"]', "[NaN]"),
        json.dumps(GOOD)[:-1],
        "I would first read the code.",
    ],
    ids=["twice", "twice inside", "NaN", "cut off", "prose"],
)
def test_an_edited_plan_that_means_two_things_or_nothing_starts_nothing(door: str, text: str) -> None:
    """Fault C88: no key twice and no NaN, on the page as over REST."""
    change = work(make_planning(says("planner", GOOD), plan_needs_approval=True))
    assert approve(change, door, text).status_code == 400
    change.refresh_from_db()
    assert change.state == ChangeState.AWAITING_APPROVAL
    assert not change.tasks.exists()


def approve(change: Change, door: str, text: str) -> Any:
    """Send an edited plan as it was typed."""
    client = Client()
    client.force_login(make_member(change.organization, Role.ADMIN))
    if door == "page":
        return client.post(f"/changes/{change.pk}/plan", {"plan": text})
    path = f"/api/v1/changes/{change.pk}/plan/approve"
    return client.generic("POST", path, f'{{"plan": {text}}}', content_type="application/json")


def test_a_missing_connector_is_named() -> None:
    """Row 3: nobody else's account is used."""
    change = make_planning(connector="claude")
    make_script(make_project().organization, says("planner", GOOD), name="claude")
    work(change)
    assert change.state == ChangeState.FAILED
    assert "no enabled connector named 'claude'" in change.failure


def test_a_full_budget_blocks_the_change_and_a_raise_goes_on() -> None:
    """Row 240."""
    change = make_planning(says("planner", GOOD))
    set_budget(change, Usd(1_000))
    work(change)
    assert (change.state, change.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
    assert change.stop_detail["work"] == "planning"
    assert change.stop_detail["refusals"][0]["kind"] == "change"
    assert Reservation.objects.count() == 0
    set_budget(change, Usd(1_000_000), key="raised")
    assert resume_work(change, because="raised", now=timezone.now())
    assert change.state == ChangeState.PLANNING
    assert work(change).state == ChangeState.RUNNING
    assert not resume_work(change, because="raised", now=timezone.now())


def test_a_passing_error_is_tried_again_later_and_not_for_ever() -> None:
    change = make_planning({"when": {"role": "planner"}, "steps": [{"fails": "timeout"}]})
    waits = []
    for _ in range(7):
        before = timezone.now()
        work(change)
        if change.state != ChangeState.PLANNING:
            break
        assert change.not_before is not None
        waits.append(round((change.not_before - before).total_seconds()))
        Change.objects.filter(pk=change.pk).update(not_before=before)
    assert waits == [5, 10, 20, 40, 80, 160]
    assert change.state == ChangeState.FAILED


def test_two_workers_plan_once_and_a_dead_ones_work_is_taken_again() -> None:
    change = make_planning(says("planner", GOOD))
    now = timezone.now()
    first = take_work(change.pk, now=now)
    assert first is not None
    work(change)
    assert change.state == ChangeState.PLANNING
    assert take_work(change.pk, now=now + timedelta(seconds=119)) is None
    assert take_work(change.pk, now=now + timedelta(seconds=121)) is not None


def test_the_work_of_a_killed_worker_is_due_again_at_once() -> None:
    """Whoever was killed never writes again, so nobody waits for its lease."""
    change = make_planning(says("planner", GOOD))
    now = timezone.now()
    alive = take_work(change.pk, now=now)
    assert alive is not None
    assert free_dead_work(now) == 0
    machine = this_process().rsplit(":", 2)[0]
    Change.objects.filter(pk=change.pk).update(work_key=f"{machine}:4194304:1:{'0' * 32}")
    assert free_dead_work(now) == 1
    assert work(change).state == ChangeState.RUNNING
    with pytest.raises(WorkLost):
        alive.renew(now)


def test_the_question_of_a_killed_worker_is_charged_as_unknown_and_not_waited_for() -> None:
    """Unknown is never zero: what may have been billed counts, and the stop is told to a person at once."""
    change = make_planning(says("planner", GOOD))
    set_budget(change, Usd.dollars("0.10"))
    now = timezone.now()
    held = reserve(
        key="killed:1",
        meters=payers_for(change, purpose="planner", key="killed", now=now).meters,
        amount=Amount(Usd.dollars("0.08"), 1_000, 1),
        context=CallContext(
            organization_id=change.organization_id, change_id=change.pk, purpose="planner", model="m"
        ),
        owner="killed",
        lease_seconds=400,
    )
    assert isinstance(held, Held)
    machine = this_process().rsplit(":", 2)[0]
    Change.objects.filter(pk=change.pk).update(
        work_key=f"{machine}:4194304:1:{'0' * 32}", not_before=now + timedelta(seconds=100)
    )
    free_dead_work(now)
    assert Reservation.objects.get().state == "unknown"
    assert (work(change).state, change.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")


def test_where_a_plan_needs_approval_a_person_sees_it_first() -> None:
    change = work(make_planning(says("planner", GOOD), plan_needs_approval=True))
    assert change.state == ChangeState.AWAITING_APPROVAL
    assert not change.tasks.exists()
    plan = plan_on(change)
    assert plan is not None
    estimate = estimate_plan(change, plan)
    assert estimate is not None
    assert Usd(0) < estimate[0] < estimate[1]
    approve_plan(change, by=change.author, now=NOW)
    assert states(change) == ["ready", "pending", "ready"]
    with pytest.raises(IllegalMove):
        approve_plan(change, by=change.author, now=NOW)


def test_an_edited_plan_is_read_as_strictly_as_the_planners() -> None:
    change = work(make_planning(says("planner", GOOD), plan_needs_approval=True))
    circle = plan_data({"id": "A", "depends_on": ["B"]}, {"id": "B", "depends_on": ["A"]})
    with pytest.raises(InvalidInput, match="A -> B -> A") as refused:
        approve_plan(change, by=change.author, now=NOW, edited=circle)
    assert refused.value.field == "plan"
    assert not change.tasks.exists()
    approve_plan(change, by=change.author, now=NOW, edited=plan_data({"id": "ONE", "size": "medium"}))
    assert [task.key for task in change.tasks.all()] == ["ONE"]
    assert change.receipts.get(decision="approved").reasons == ["approved_edited"]


def test_a_person_may_ask_for_another_plan() -> None:
    change = work(make_planning(says("planner", GOOD), plan_needs_approval=True))
    plan_again(change, by=change.author, now=timezone.now())
    assert (change.state, change.plan) == (ChangeState.PLANNING, None)
    assert work(change).state == ChangeState.AWAITING_APPROVAL


def test_the_planner_answers_on_sonnet() -> None:
    assert PLANNER.tier.word == "sonnet"


def test_a_fault_of_ours_is_tried_again_a_few_times_and_then_named() -> None:
    """Nothing repeats for ever, and nothing hangs: the trunk's commit is not in the repository."""
    change = make_planning(says("planner", GOOD))
    Trunk.objects.filter(project=change.project).update(commit="f" * 40)
    for _ in range(6):
        before = timezone.now()
        assert work(change).state == ChangeState.PLANNING
        assert change.not_before is not None
        assert change.not_before > before
        Change.objects.filter(pk=change.pk).update(not_before=before)
    assert work(change).state == ChangeState.FAILED
    assert change.failure == "planning stopped: internal fault: GitError"


def test_planning_waits_for_held_money_however_often_it_asks_and_says_it_once() -> None:
    """Issue 3, held is not spent: while its own amount fits what is spent, nothing stops it."""
    change = make_planning(says("planner", GOOD))
    set_budget(change, Usd.dollars("0.10"))
    in_the_way = hold(change)
    for _ in range(100):
        assert work(change).state == ChangeState.PLANNING
        assert (change.waiting_for, change.work_key) == ("held_money:change_budget", "")
        make_it_due(change)
    assert change.events.filter(kind="change.work.delayed").count() == 1
    settle(in_the_way.reservation_id, cost=Usd(1_000), usage=ONE_TOKEN, rates={})
    assert work(change).state == ChangeState.RUNNING
    assert change.waiting_for == ""


def test_planning_that_waits_for_held_money_is_woken_when_a_hold_of_its_organization_ends() -> None:
    """By another Change's question, by a run that ends, by a raise; not by a refusal, nor in another organization."""
    change = make_planning(says("planner", GOOD))
    set_budget(change, Usd.dollars("0.10"), kind=MeterKind.ORGANIZATION)
    in_the_way = hold(change)
    work(change)
    assert not is_due(change), "it waits"
    beside = make_due_plan(change)
    assert work(beside).waiting_for == "held_money:monthly_budget"
    assert not is_due(change), "who is refused wakes nobody, or the two would wake each other for ever"
    work(make_planning(says("planner", GOOD)))
    assert not is_due(change), "another organization's hold"
    settle(in_the_way.reservation_id, cost=Usd(1_000), usage=ONE_TOKEN, rates={})
    make_it_due(beside)
    assert work(beside).state == ChangeState.RUNNING
    assert is_due(change)
    assert work(change).state == ChangeState.RUNNING


def test_a_raise_wakes_planning_that_waits_for_held_money() -> None:
    change = make_planning(says("planner", GOOD))
    set_budget(change, Usd.dollars("0.10"))
    hold(change)
    work(change)
    assert not is_due(change)
    raise_budget(
        change=change,
        kind=MeterKind.CHANGE,
        to=Usd.dollars("1"),
        by=make_member(change.organization, Role.ADMIN),
        reason="",
        key="k",
        now=timezone.now(),
    )
    assert is_due(change)
    assert work(change).state == ChangeState.RUNNING


def is_due(change: Change) -> bool:
    return due_changes(timezone.now()).filter(pk=change.pk).exists()


def make_it_due(change: Change) -> None:
    Change.objects.filter(pk=change.pk).update(not_before=timezone.now())


def make_due_plan(beside: Change) -> Change:
    """Another Change of that project that is due for its plan."""
    change = make_change(beside.project, state=ChangeState.PLANNING)
    make_criterion(change)
    make_due(change, now=timezone.now())
    return change


def hold(change: Change) -> Held:
    """Somebody's call in flight: nearly all of ten cents."""
    held = reserve(
        key=uuid4().hex,
        meters=payers_for(change, purpose="planner", key="x", now=timezone.now()).meters,
        amount=Amount(Usd.dollars("0.099"), 1_000, 1),
        context=CallContext(
            organization_id=change.organization_id, change_id=change.pk, purpose="planner", model="m"
        ),
        owner="a test",
        lease_seconds=400,
    )
    assert isinstance(held, Held), held
    return held
