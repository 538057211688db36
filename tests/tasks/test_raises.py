"""Raising a limit, reopening a window, and stops that end by themselves (rows 196 to 199)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from budgets.errors import KeyReused
from budgets.keys import MeterKind
from budgets.models import LimitChange
from budgets.money import Usd
from routing.escalate import FirstAttempt, Policy, attempt_to_start
from routing.words import EndReason
from tasks.attempts.choice import history_of
from tasks.errors import NotStopped
from tasks.funding import budget_of, stop_change
from tasks.models import Change, Reopening, Task
from tasks.raises import Raised, limit_of_subject, preview_limit, preview_raise, raise_budget, set_budget
from tasks.states import ChangeState, TaskState
from tasks.stops import stop_detail
from tasks.windows import reopen_task, resume_stops
from tenants.errors import InvalidInput, NotVisible, RoleTooLow
from tenants.models import AuditEntry, Role, User
from tests.factories.tasks import NOW, make_change, make_failed_run, make_stopped_task, make_task
from tests.factories.tenants import make_member
from tests.tasks.money import give_budget, spend
from tests.tasks.threads import in_threads

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(minutes=5)
FIVE = Usd.dollars("5")


@pytest.fixture
def change() -> Change:
    found = make_change()
    give_budget(found, Usd.dollars("1"))
    return found


@pytest.fixture
def admin(change: Change) -> User:
    return make_member(change.organization, Role.ADMIN)


def stopped(change: Change, limit: str, **more: object) -> Task:
    refusals = [refused_by("organization")] if limit == "monthly_budget" else []
    detail = stop_detail(limit, reason="budget_refused", refusals=more.pop("refusals", refusals), now=NOW)  # type: ignore[arg-type]  # a test's shorthand
    task = make_stopped_task(change, limit, stop_detail=detail, **more)
    Change.objects.filter(pk=change.pk).update(
        state=ChangeState.BUDGET_BLOCKED, stop_limit=limit, stop_detail=detail
    )
    change.refresh_from_db()
    return task


def refused_by(kind: str, **over: object) -> dict[str, object]:
    """What one meter said when it refused."""
    figures = {"limit": 1, "spent": 1, "held": 0, "amount": 1, "unit": "usd", "waits": False, "ends_at": None}
    return {"kind": kind, "subject": "x", "period": "2026-11", **figures, **over}


def state_of(task: Task) -> str:
    return str(Task.objects.get(pk=task.pk).state)


def lift(
    change: Change, by: User, *, to: Usd | int = FIVE, kind: MeterKind = MeterKind.CHANGE, key: str = "k"
) -> Raised:
    return raise_budget(change=change, kind=kind, to=to, by=by, reason="more", key=key, now=LATER)


@pytest.mark.parametrize("limit", ["change_budget", "max_attempts_per_tier"])
def test_a_raise_reopens_the_task_with_a_fresh_window(change: Change, admin: User, limit: str) -> None:
    task = stopped(change, limit)
    make_failed_run(task, EndReason.RUN_COST_CAP)
    raised = lift(change, admin)
    assert raised.reopened == (task,)
    fresh = Task.objects.get(pk=task.pk)
    assert (fresh.state, fresh.attempts_reset_at, fresh.stop_limit) == (TaskState.READY, LATER, "")
    assert Change.objects.get(pk=change.pk).state == ChangeState.RUNNING
    assert budget_of(change) == FIVE
    # Row 198: nothing in the window, so it routes as attempt 1 again.
    assert attempt_to_start(history_of(fresh), Policy(allow_opus=False)) == FirstAttempt()


def test_a_raise_reopens_exactly_the_tasks_which_that_limit_stopped(change: Change, admin: User) -> None:
    mine = stopped(change, "change_budget")
    other_limit = stopped(change, "project_budget")
    monthly = stopped(change, "monthly_budget")
    elsewhere = make_change(change.project)
    not_mine = stopped(elsewhere, "change_budget")
    assert lift(change, admin).reopened == (mine,)
    assert {state_of(task) for task in (other_limit, monthly, not_mine)} == {TaskState.BLOCKED}


def test_a_project_raise_reopens_its_stops_in_every_change_of_the_project(
    change: Change, admin: User
) -> None:
    other_change = make_change(change.project)
    stranger = make_change()
    here, there, far = (stopped(one, "project_budget") for one in (change, other_change, stranger))
    give_budget(change, Usd.dollars("2"), kind=MeterKind.PROJECT)
    raised = lift(change, admin, kind=MeterKind.PROJECT)
    assert set(raised.reopened) == {here, there}
    assert state_of(far) == TaskState.BLOCKED


def test_a_user_raise_reopens_the_stops_of_that_author(change: Change, admin: User) -> None:
    mine = stopped(change, "user_budget")
    others = stopped(make_change(change.project), "user_budget")
    give_budget(change, Usd.dollars("2"), kind=MeterKind.USER)
    assert lift(change, admin, kind=MeterKind.USER).reopened == (mine,)
    assert state_of(others) == TaskState.BLOCKED


@pytest.mark.parametrize(
    ("limit", "kind", "to"),
    [
        ("monthly_budget", MeterKind.ORGANIZATION, Usd.dollars("500")),
        ("daily_call_cap", MeterKind.DAILY_CALLS, 5_000),
    ],
)
def test_a_monthly_or_daily_raise_resumes_without_a_fresh_window(
    change: Change, admin: User, limit: str, kind: MeterKind, to: Usd | int
) -> None:
    """Row 197."""
    task = stopped(change, limit)
    assert lift(change, admin, kind=kind, to=to).reopened == (task,)
    fresh = Task.objects.get(pk=task.pk)
    assert (fresh.state, fresh.attempts_reset_at) == (TaskState.READY, None)


def test_a_raise_gives_back_exactly_the_dependents_of_that_stop(change: Change, admin: User) -> None:
    mine, other = stopped(change, "change_budget"), stopped(change, "project_budget")
    failed = make_task(change, state=TaskState.FAILED, failure="second_transport_failure")
    blocked = {"state": TaskState.BLOCKED}
    behind_mine = make_task(change, needs=(mine,), blocked_by=mine, **blocked)
    behind_both = make_task(change, needs=(mine, other), blocked_by=mine, **blocked)
    behind_failed = make_task(change, needs=(failed,), blocked_by=failed, **blocked)
    preview = preview_raise(change, MeterKind.CHANGE, FIVE, now=LATER)
    assert (preview.reopens, preview.gives_back, preview.is_raise) == ((mine,), (behind_mine,), True)
    assert preview.before == Usd.dollars("1")
    lift(change, admin)
    assert state_of(behind_mine) == TaskState.PENDING
    assert Task.objects.get(pk=behind_both.pk).blocked_by == other
    assert state_of(behind_failed) == TaskState.BLOCKED


def test_the_same_raise_twice_reopens_once(change: Change, admin: User) -> None:
    task = stopped(change, "change_budget")
    first = lift(change, admin)
    Task.objects.filter(pk=task.pk).update(
        state=TaskState.BLOCKED, stop_limit="change_budget", stop_detail={}
    )  # it stopped again meanwhile
    again = lift(change, admin)
    assert (first.replayed, again.replayed) == (False, True)
    assert [one.pk for one in again.reopened] == [task.pk]
    assert state_of(task) == TaskState.BLOCKED
    assert Reopening.objects.count() == 1
    assert LimitChange.objects.filter(key="k").count() == 1


def test_a_raise_that_names_another_key_reopens_again(change: Change, admin: User) -> None:
    task = stopped(change, "change_budget")
    lift(change, admin, key="one")
    Task.objects.filter(pk=task.pk).update(
        state=TaskState.BLOCKED, stop_limit="change_budget", stop_detail={}
    )
    lift(change, admin, to=Usd.dollars("6"), key="two")
    assert state_of(task) == TaskState.READY
    assert Reopening.objects.count() == 2


@pytest.mark.parametrize("to", [Usd.dollars("1"), Usd.dollars("0.50"), Usd(0)])
def test_an_equal_or_lower_amount_is_no_raise_and_changes_nothing(
    change: Change, admin: User, to: Usd
) -> None:
    """Row 199."""
    task = stopped(change, "change_budget")
    entries = AuditEntry.objects.count()
    with pytest.raises(InvalidInput) as refused:
        lift(change, admin, to=to)
    assert refused.value.code == "not_a_raise"
    assert state_of(task) == TaskState.BLOCKED
    assert budget_of(change) == Usd.dollars("1")
    assert AuditEntry.objects.count() == entries


def test_a_member_may_not_raise(change: Change) -> None:
    task = stopped(change, "change_budget")
    with pytest.raises(RoleTooLow):
        lift(change, make_member(change.organization, Role.MEMBER))
    assert state_of(task) == TaskState.BLOCKED


def test_a_raise_leaves_who_when_from_to_and_why(change: Change, admin: User) -> None:
    stopped(change, "change_budget")
    lift(change, admin)
    row = LimitChange.objects.get(key="k")
    assert (row.by, row.before, row.after, row.reason, row.at) == (admin, 1_000_000, 5_000_000, "more", LATER)
    assert AuditEntry.objects.filter(
        organization=change.organization, actor=admin, action="limit.set"
    ).exists()


def test_a_raise_lets_planning_go_on(admin: User, change: Change) -> None:
    Change.objects.filter(pk=change.pk).update(state=ChangeState.PLANNING)
    change.refresh_from_db()
    stop_change(change, "change_budget", work="planning", now=NOW)
    raised = lift(change, admin)
    fresh = Change.objects.get(pk=change.pk)
    assert [one.pk for one in raised.changes_resumed] == [change.pk]
    assert (fresh.state, fresh.not_before) == (ChangeState.PLANNING, LATER)


def test_a_person_reopens_the_window_after_replan_without_a_raise(change: Change) -> None:
    task = stopped(change, "max_attempts_per_tier")
    member = make_member(change.organization, Role.MEMBER)
    for _ in range(2):  # the same key again does nothing
        reopen_task(task, by=member, reason="read the failures", key="r1", now=LATER)
    fresh = Task.objects.get(pk=task.pk)
    assert (fresh.state, fresh.attempts_reset_at) == (TaskState.READY, LATER)
    assert Reopening.objects.get().by == member
    assert AuditEntry.objects.filter(action="task.reopened").count() == 1


def test_a_failed_task_may_be_reopened_and_its_change_goes_on(change: Change) -> None:
    task = make_task(change, state=TaskState.FAILED, failure="second_transport_failure")
    Change.objects.filter(pk=change.pk).update(state=ChangeState.FAILED)
    reopen_task(task, by=make_member(change.organization), reason="", key="r1", now=LATER)
    assert state_of(task) == TaskState.READY
    assert Change.objects.get(pk=change.pk).state == ChangeState.RUNNING


def test_reopening_does_not_get_around_a_budget(change: Change) -> None:
    task = stopped(change, "project_budget")
    with pytest.raises(NotStopped):
        reopen_task(task, by=make_member(change.organization), reason="", key="r1", now=LATER)
    assert state_of(task) == TaskState.BLOCKED


def test_a_viewer_may_not_reopen(change: Change) -> None:
    task = stopped(change, "max_attempts_per_tier")
    with pytest.raises(RoleTooLow):
        reopen_task(task, by=make_member(change.organization, Role.VIEWER), reason="", key="r", now=LATER)


def refused_call(change: Change, kind: str, amount: int, unit: str = "usd") -> dict[str, object]:
    return {"kind": kind, "subject": str(change.organization_id), "unit": unit, "amount": amount}


def test_a_daily_stop_ends_when_the_day_turns_and_not_before(change: Change) -> None:
    """Row 197: by itself, without a fresh window."""
    give_budget(change, 1, kind=MeterKind.DAILY_CALLS)
    spend(change, Usd(1_000), run_id=uuid4())
    task = stopped(change, "daily_call_cap")
    detail = {**task.stop_detail, "refusals": [refused_call(change, "daily_calls", 1, "calls")]}
    Task.objects.filter(pk=task.pk).update(stop_detail=detail)
    assert resume_stops(NOW + timedelta(hours=13, minutes=59)) == 0
    assert state_of(task) == TaskState.BLOCKED
    assert resume_stops(datetime(2026, 12, 1, tzinfo=UTC)) == 1
    fresh = Task.objects.get(pk=task.pk)
    assert (fresh.state, fresh.attempts_reset_at) == (TaskState.READY, None)


def test_a_monthly_stop_ends_when_the_limit_is_raised_through_any_door(change: Change) -> None:
    spend(change, Usd.dollars("0.90"), run_id=uuid4())
    give_budget(change, Usd.dollars("1"), kind=MeterKind.ORGANIZATION)
    task = stopped(change, "monthly_budget")
    detail = {**task.stop_detail, "refusals": [refused_call(change, "organization", 260_000)]}
    Task.objects.filter(pk=task.pk).update(stop_detail=detail)
    assert resume_stops(LATER) == 0
    give_budget(change, Usd.dollars("2"), kind=MeterKind.ORGANIZATION)
    assert resume_stops(LATER) == 1
    assert state_of(task) == TaskState.READY


def test_a_providers_own_limit_ends_with_the_month(change: Change) -> None:
    task = stopped(change, "monthly_budget", refusals=[])
    assert resume_stops(LATER) == 0
    assert resume_stops(datetime(2026, 12, 1, tzinfo=UTC)) == 1
    assert state_of(task) == TaskState.READY


@pytest.mark.parametrize("amount", [None, 1_000_001])
def test_a_change_budget_never_ends_with_time(change: Change, amount: int | None) -> None:
    """Nor does one that a run's share caused (row 194): its amount is unknown, and only a raise lifts it."""
    task = stopped(change, "change_budget")
    refusal = refused_call(change, "change", 0) | {"amount": amount, "subject": str(change.pk)}
    Task.objects.filter(pk=task.pk).update(stop_detail={**task.stop_detail, "refusals": [refusal]})
    assert resume_stops(datetime(2027, 12, 1, tzinfo=UTC)) == 0
    assert state_of(task) == TaskState.BLOCKED


def test_a_stop_that_was_written_just_after_the_raise_is_lifted_by_the_sweep(change: Change) -> None:
    """The call was refused, then a person raised the limit, then the end of the run was written."""
    task = stopped(change, "change_budget")
    refusal = refused_call(change, "change", 1_500_000) | {"subject": str(change.pk)}
    Task.objects.filter(pk=task.pk).update(stop_detail={**task.stop_detail, "refusals": [refusal]})
    assert resume_stops(LATER) == 0
    give_budget(change, FIVE)
    assert resume_stops(LATER) == 1
    assert state_of(task) == TaskState.READY


def test_a_replayed_raise_tells_nothing_of_another_tenant(change: Change, admin: User) -> None:
    stranger = make_change()
    give_budget(stranger, Usd.dollars("1"))
    theirs = stopped(stranger, "change_budget")
    lift(stranger, make_member(stranger.organization, Role.ADMIN))
    mine = stopped(change, "change_budget")
    lift(change, admin)
    again = lift(change, admin)
    assert [task.pk for task in again.reopened] == [mine.pk] != [theirs.pk]


def test_a_limit_that_is_nobodys_to_raise_here_is_refused(change: Change, admin: User) -> None:
    with pytest.raises(InvalidInput) as refused:
        lift(change, admin, kind=MeterKind.PLATFORM)
    assert refused.value.code == "not_raisable"


@pytest.mark.django_db(transaction=True)
def test_the_same_raise_pressed_twice_at_once_reopens_once() -> None:
    """Two clicks, two workers: the Change's row lets one in first, the key sends the other back."""
    change = make_change()
    give_budget(change, Usd.dollars("1"))
    admin = make_member(change.organization, Role.ADMIN)
    task = stopped(change, "change_budget")
    results = in_threads(3, lambda _: lift(Change.objects.get(pk=change.pk), admin))
    assert sorted(result.replayed for result in results) == [False, True, True]
    assert Reopening.objects.filter(task=task).count() == 1
    assert state_of(task) == TaskState.READY


def test_a_raise_of_the_organization_leaves_alone_what_the_providers_meter_or_account_stopped(
    change: Change, admin: User
) -> None:
    """Three meters and a provider's own limit stop as `monthly_budget`: each raise lifts its own stops."""
    ours = stopped(change, "monthly_budget")
    meter = stopped(change, "monthly_budget", refusals=[refused_by("provider")])
    account = stopped(change, "monthly_budget", refusals=[])
    both = stopped(change, "monthly_budget", refusals=[refused_by("organization"), refused_by("provider")])
    raised = lift(change, admin, kind=MeterKind.ORGANIZATION, to=Usd.dollars("500"))
    assert set(raised.reopened) == {ours, both}
    assert {state_of(task) for task in (meter, account)} == {TaskState.BLOCKED}
    whose = limit_of_subject(change.organization, MeterKind.PROVIDER, change.project.connector)
    set_budget(whose, Usd.dollars("1"), by=admin, reason="", key="down", now=LATER)
    done = set_budget(whose, Usd.dollars("2"), by=admin, reason="", key="up", now=LATER)
    assert done.raised.reopened == (meter,)


def test_long_keys_that_begin_alike_are_two_raises(change: Change, admin: User) -> None:
    """A key may have 200 characters; the row that remembers a reopening must not cut it."""
    first, second = "k" * 199 + "1", "k" * 199 + "2"
    stopped(change, "change_budget")
    assert len(lift(change, admin, key=first).reopened) == 1
    again = Task.objects.get(change=change)
    Task.objects.filter(pk=again.pk).update(state=TaskState.BLOCKED, stop_limit="change_budget")
    assert len(lift(change, admin, key=second, to=Usd.dollars("6")).reopened) == 1


def test_lowering_below_what_is_spent_stops_the_next_call_and_reopens_nothing(
    change: Change, admin: User
) -> None:
    spend(change, Usd.dollars("0.5"))
    stopped(change, "change_budget")
    whose = limit_of_subject(change.organization, MeterKind.CHANGE, str(change.pk))
    preview = preview_limit(whose, Usd.dollars("0.2"), now=LATER)
    assert (preview.is_raise, preview.stops_the_next_call, preview.reopens) == (False, True, ())
    done = set_budget(whose, Usd.dollars("0.2"), by=admin, reason="", key="k", now=LATER)
    assert (done.is_raise, done.raised.reopened, budget_of(change)) == (False, (), Usd.dollars("0.2"))


def test_setting_a_limit_is_for_admins_and_for_their_own_organization(change: Change, admin: User) -> None:
    whose = limit_of_subject(change.organization, MeterKind.ORGANIZATION, "")
    member = make_member(change.organization, Role.MEMBER)
    with pytest.raises(RoleTooLow):
        set_budget(whose, FIVE, by=member, reason="", key="k", now=LATER)
    stranger = make_change()
    for kind, subject in [
        (MeterKind.CHANGE, str(stranger.pk)),
        (MeterKind.CHANGE, "no id"),
        (MeterKind.ORGANIZATION, str(stranger.organization_id)),
        (MeterKind.PROVIDER, "nobody"),
    ]:
        with pytest.raises(NotVisible):
            limit_of_subject(change.organization, kind, subject)
    for kind, foreign in [(MeterKind.PROJECT, stranger.project_id), (MeterKind.USER, stranger.author_id)]:
        with pytest.raises(NotVisible):
            set_budget(
                limit_of_subject(change.organization, kind, str(foreign)),
                FIVE,
                by=admin,
                reason="",
                key="k",
                now=LATER,
            )
    assert LimitChange.objects.filter(by__isnull=False).count() == 0


def test_stops_that_stay_hide_no_stop_that_ends(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep looks at a bounded number of stops; which ones must not be the same each time."""
    monkeypatch.setattr("tasks.windows.RESUMED_PER_SWEEP_MAX", 1)
    limits = [9_000_000, 1, 9_000_000]
    tasks = [
        stopped(
            change, "change_budget", refusals=[refused_by("change", amount=amount, subject=str(change.pk))]
        )
        for amount in limits
    ]
    for _ in range(100):
        resume_stops(LATER)
    assert [state_of(task) == TaskState.BLOCKED for task in tasks] == [True, False, True]


@pytest.mark.django_db(transaction=True)
def test_one_key_with_two_amounts_at_once_sets_one_limit() -> None:
    """The other is told that the key is taken, whoever comes first; nothing is lost and nothing counts twice."""
    change = make_change()
    give_budget(change, Usd.dollars("1"))
    admin = make_member(change.organization, Role.ADMIN)

    def press(number: int) -> object:
        kind = MeterKind.PROJECT if number % 2 else MeterKind.CHANGE
        whose = limit_of_subject(
            change.organization, kind, str(change.project_id if number % 2 else change.pk)
        )
        try:
            return set_budget(whose, Usd(7_000_000 + number), by=admin, reason="", key="one", now=LATER)
        except KeyReused as error:
            return error

    results = in_threads(6, press)
    assert sum(isinstance(each, KeyReused) for each in results) == 5
    assert LimitChange.objects.filter(key="one").count() == 1
