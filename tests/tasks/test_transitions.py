"""One table, one mover: every arrow of every state machine, and every missing one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from routing.words import EndReason, FailureClass
from tasks.errors import IllegalMove, LostRace
from tasks.models import Change, Event, Task, TaskRun
from tasks.states import (
    CHANGE_MOVES,
    RUN_MOVES,
    TASK_MOVES,
    ChangeState,
    RunState,
    TaskState,
)
from tasks.transitions import move_change, move_run, move_task
from tests.factories.tasks import NOW, make_change, make_run, make_task

pytestmark = pytest.mark.django_db

STOP = {"stop_limit": "change_budget"}


def columns_of(state: TaskState | ChangeState) -> dict[str, Any]:
    return STOP if state in (TaskState.BLOCKED, ChangeState.BUDGET_BLOCKED) else {}


@pytest.mark.parametrize(("start", "to"), list(product(TaskState, TaskState)), ids=str)
def test_a_task_moves_along_its_table_and_not_otherwise(start: TaskState, to: TaskState) -> None:
    task = make_task(state=start, **columns_of(start))
    if to in TASK_MOVES[start]:
        move_task(task, to, because="test", now=NOW, also=columns_of(to))
        assert Task.objects.get(pk=task.pk).state == task.state == to
        assert Event.objects.filter(task=task, kind=f"task.{to}", data={"because": "test"}).count() == 1
    else:
        with pytest.raises(IllegalMove):
            move_task(task, to, because="test", now=NOW)
        assert Task.objects.get(pk=task.pk).state == start
        assert not Event.objects.exists()


@pytest.mark.parametrize(("start", "to"), list(product(ChangeState, ChangeState)), ids=str)
def test_a_change_moves_along_its_table_and_not_otherwise(start: ChangeState, to: ChangeState) -> None:
    change = make_change(state=start, **columns_of(start))
    if to in CHANGE_MOVES[start]:
        move_change(change, to, because="test", now=NOW, also=columns_of(to))
        assert Change.objects.get(pk=change.pk).state == to
    else:
        with pytest.raises(IllegalMove):
            move_change(change, to, because="test", now=NOW)


@pytest.mark.parametrize("to", RunState)
def test_a_run_ends_once(to: RunState) -> None:
    run = make_run()
    if to not in RUN_MOVES[RunState.RUNNING]:
        with pytest.raises(IllegalMove):
            move_run(run, to, because="test", now=NOW)
        return
    also = {"failure_class": FailureClass.TRANSPORT} if to is RunState.FAILED else {}
    move_run(run, to, because=EndReason.TIMEOUT, now=NOW, also=also)
    if to is RunState.PAUSED:
        assert (run.ended_at, run.end_reason) == (None, "")
        return
    with pytest.raises(IllegalMove):
        move_run(run, RunState.CANCELLED, because="test", now=NOW)


def test_the_second_of_two_movers_loses_and_writes_nothing() -> None:
    mine = make_task()
    theirs = Task.objects.get(pk=mine.pk)
    move_task(theirs, TaskState.RUNNING, because="first", now=NOW)
    with pytest.raises(LostRace):
        move_task(mine, TaskState.CANCELLED, because="second", now=NOW)
    assert Task.objects.get(pk=mine.pk).state == TaskState.RUNNING
    assert Event.objects.filter(task=mine).count() == 1


def test_what_belongs_to_a_state_ends_with_it() -> None:
    task = make_task(state=TaskState.BLOCKED, stop_limit="change_budget", stop_detail={"at": "now"})
    move_task(task, TaskState.READY, because="raised", now=NOW)
    fresh = Task.objects.get(pk=task.pk)
    assert (fresh.stop_limit, fresh.stop_detail, fresh.blocked_by) == ("", {}, None)


def test_an_end_has_its_time_and_loses_it_when_reopened() -> None:
    task = make_task(state=TaskState.RUNNING)
    move_task(task, TaskState.DONE, because="completed", now=NOW)
    assert Task.objects.get(pk=task.pk).ended_at == NOW
    move_task(task, TaskState.READY, because="integrate", now=NOW)
    assert Task.objects.get(pk=task.pk).ended_at is None


def test_a_worker_that_lost_its_fence_ends_nothing() -> None:
    """C66: the watch moved the fence on; the old worker wakes up and wants to write."""
    stale = make_run()
    TaskRun.objects.filter(pk=stale.pk).update(fence=stale.fence + 1)
    with pytest.raises(LostRace):
        move_run(stale, RunState.SUCCEEDED, because=EndReason.COMPLETED, now=NOW)
    assert TaskRun.objects.get(pk=stale.pk).state == RunState.RUNNING


def test_only_the_owner_of_a_start_may_finish_it() -> None:
    task = make_task(owner="other worker")
    with pytest.raises(LostRace):
        move_task(task, TaskState.RUNNING, because="started", now=NOW, held_by="this worker")
    move_task(task, TaskState.RUNNING, because="started", now=NOW, held_by="other worker")
    assert Task.objects.get(pk=task.pk).owner == ""
