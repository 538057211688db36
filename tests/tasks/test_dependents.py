"""What an end, a stop or a reopening means for the other Tasks and the Change (row 14)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.dependents import (
    AllDone,
    BlockedBy,
    Broken,
    GoesOn,
    Halted,
    Standing,
    outlook,
    settle_dependents,
    verdicts,
)
from tasks.models import Change, Task
from tasks.states import ChangeState, TaskState
from tests.factories.tasks import NOW, make_change, make_stopped_task, make_task

T = TaskState


def standing(number: int, state: TaskState, *on: int, stopped: bool = False) -> Standing:
    needs = frozenset(UUID(int=other) for other in on)
    return Standing(id=UUID(int=number), position=number, state=state, stopped=stopped, needs=needs)


def verdict_of(number: int, *tasks: Standing) -> object:
    return verdicts(tasks)[UUID(int=number)]


def test_a_task_is_ready_when_all_it_needs_is_done() -> None:
    done, waits = standing(1, T.DONE), standing(2, T.RUNNING)
    assert verdict_of(3, done, waits, standing(3, T.PENDING, 1)) is T.READY
    assert verdict_of(3, done, waits, standing(3, T.PENDING, 1, 2)) is T.PENDING
    assert verdict_of(3, standing(3, T.PENDING)) is T.READY


@pytest.mark.parametrize("state", [T.FAILED, T.CANCELLED])
def test_a_failure_blocks_everything_behind_it(state: TaskState) -> None:
    tasks = (standing(1, state), standing(2, T.PENDING, 1), standing(3, T.PENDING, 2))
    assert verdict_of(2, *tasks) == verdict_of(3, *tasks) == BlockedBy(UUID(int=1))


def test_a_stop_blocks_everything_behind_it_and_its_end_gives_it_back() -> None:
    stopped = standing(1, T.BLOCKED, stopped=True)
    behind = (standing(2, T.BLOCKED, 1), standing(3, T.BLOCKED, 2))
    assert verdict_of(3, stopped, *behind) == BlockedBy(UUID(int=1))
    lifted = standing(1, T.READY)
    assert verdict_of(2, lifted, *behind) is verdict_of(3, lifted, *behind) is T.PENDING


def test_two_stops_block_one_dependent_until_both_are_lifted() -> None:
    one, two = standing(1, T.BLOCKED, stopped=True), standing(2, T.BLOCKED, stopped=True)
    behind = standing(3, T.BLOCKED, 1, 2)
    assert verdict_of(3, one, two, behind) == BlockedBy(UUID(int=1))
    assert verdict_of(3, standing(1, T.READY), two, behind) == BlockedBy(UUID(int=2))


def test_running_and_ended_tasks_are_left_alone() -> None:
    tasks = (standing(1, T.FAILED), standing(2, T.RUNNING, 1), standing(3, T.DONE, 1))
    assert verdicts(tasks) == {}


def test_a_stop_of_its_own_is_not_replaced_by_a_dependencys() -> None:
    tasks = (standing(1, T.FAILED), standing(2, T.BLOCKED, 1, stopped=True))
    assert verdicts(tasks) == {}


def test_a_ready_task_waits_again_when_its_dependency_is_reopened() -> None:
    assert verdict_of(2, standing(1, T.READY), standing(2, T.READY, 1)) is T.PENDING


def test_the_outlook_of_a_change() -> None:
    done, failed = standing(1, T.DONE), standing(2, T.FAILED)
    assert outlook([done]) == AllDone()
    assert outlook([done, standing(2, T.CANCELLED)]) == AllDone()
    assert outlook([done, standing(2, T.RUNNING)]) == GoesOn()
    assert outlook([]) == GoesOn()
    assert outlook([done, failed, standing(3, T.BLOCKED, 2)]) == Broken((UUID(int=2),))
    assert outlook([failed, standing(3, T.RUNNING)]) == GoesOn()
    assert outlook([failed, standing(3, T.BLOCKED, stopped=True), standing(4, T.READY)]) == Halted()


STATES = st.sampled_from([*T])


@given(st.lists(st.tuples(STATES, st.booleans(), st.sets(st.integers(1, 7))), min_size=1, max_size=7))
def test_applying_the_verdicts_twice_changes_nothing_more(
    rows: list[tuple[TaskState, bool, set[int]]],
) -> None:
    tasks = [
        standing(number, state, *(on for on in needs if on < number), stopped=stopped and state is T.BLOCKED)
        for number, (state, stopped, needs) in enumerate(rows, start=1)
    ]
    first = verdicts(tasks)
    applied = [
        Standing(
            id=task.id,
            position=task.position,
            state=T.BLOCKED if isinstance(first.get(task.id), BlockedBy) else first.get(task.id, task.state),  # type: ignore[arg-type]  # a verdict that is no block is a state
            stopped=task.stopped,
            needs=task.needs,
        )
        for task in tasks
    ]
    assert verdicts(applied) == first


@pytest.mark.django_db
def test_a_stop_blocks_the_change_with_its_figures_and_the_end_of_it_lets_it_go_on() -> None:
    """Row 240: the exact limit and all refused meters in detail."""
    change = make_change()
    detail = {"at": NOW.isoformat(), "refusals": [{"kind": "change"}]}
    stopped = make_stopped_task(change, "change_budget", stop_detail=detail)
    behind = make_task(change, needs=(stopped,))
    settle_dependents(change, now=NOW)
    fresh = Change.objects.get(pk=change.pk)
    assert (fresh.state, fresh.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
    assert fresh.stop_detail["refusals"] == [{"kind": "change"}]
    assert fresh.stop_detail["task"] == stopped.key
    behind.refresh_from_db()
    assert (behind.state, behind.blocked_by) == (T.BLOCKED, stopped)

    Task.objects.filter(pk=stopped.pk).update(state=T.READY, stop_limit="", stop_detail={})
    settle_dependents(change, now=NOW)
    behind.refresh_from_db()
    assert (behind.state, behind.blocked_by) == (T.PENDING, None)
    assert Change.objects.get(pk=change.pk).state == ChangeState.RUNNING


@pytest.mark.django_db
def test_the_change_is_due_for_composing_when_all_is_done() -> None:
    change = make_change()
    make_task(change, state=T.DONE)
    settle_dependents(change, now=NOW)
    assert Change.objects.get(pk=change.pk).not_before == NOW


@pytest.mark.django_db
def test_a_change_whose_last_way_on_failed_fails_and_says_which_task() -> None:
    change = make_change()
    failed = make_task(change, state=T.FAILED, failure="second_transport_failure")
    make_task(change, needs=(failed,))
    settle_dependents(change, now=NOW)
    fresh = Change.objects.get(pk=change.pk)
    assert (fresh.state, fresh.failure) == (ChangeState.FAILED, "T1: second_transport_failure")


@pytest.mark.django_db
def test_two_stopped_tasks_show_the_older_stop_until_it_is_lifted() -> None:
    change = make_change()
    older = make_stopped_task(change, "max_attempts_per_tier", stop_detail={"at": "2026-11-30T10:00:00"})
    make_stopped_task(change, "change_budget", stop_detail={"at": "2026-11-30T11:00:00"})
    settle_dependents(change, now=NOW)
    assert change.stop_limit == "max_attempts_per_tier"
    Task.objects.filter(pk=older.pk).update(state=T.READY, stop_limit="", stop_detail={})
    settle_dependents(change, now=NOW)
    fresh = Change.objects.get(pk=change.pk)
    assert (fresh.state, fresh.stop_limit) == (ChangeState.BUDGET_BLOCKED, "change_budget")
