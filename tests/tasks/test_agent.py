"""The logical Agent of a Task (rows 5 to 8, 10)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents.models import ToolCall
from tasks.agent import Agent
from tasks.errors import IllegalMove
from tasks.models import Event, Task, TaskRun
from tasks.states import TaskState
from tests.factories.tasks import NOW, make_run, make_task
from tests.tasks.world import DONE, World

pytestmark = pytest.mark.django_db


def test_a_task_has_one_agent_however_often_it_is_asked_for() -> None:
    task = make_task()
    assert Agent(task.pk) == Agent(task.pk)
    assert Agent(task.pk).id == task.agent_id == f"agt_{task.pk}"


def test_resuming_records_the_event_once_and_starts_nothing() -> None:
    """Row 6."""
    task = make_task()
    for _ in range(2):
        Agent(task.pk).resume("approval_decided", key="a1", data={"approval": 7}, now=NOW)
    event = Event.objects.get(kind="agent.resumed")
    assert event.data == {"event": "approval_decided", "approval": 7}
    assert not TaskRun.objects.exists()
    assert Task.objects.get(pk=task.pk).woken_at is None


def test_an_agent_without_an_attempt_is_idle_and_one_with_it_counts_its_checks() -> None:
    """Rows 8, 9."""
    task = make_task(state=TaskState.RUNNING)
    assert Agent(task.pk).get_state(now=NOW).idle
    run = make_run(task)
    state = Agent(task.pk).get_state(now=NOW + timedelta(seconds=130))
    assert (state.run_id, state.attempt, state.checks_left, state.idle) == (run.pk, 1, 13, False)


def test_a_cancelled_agent_starts_nothing_and_blocks_what_stands_on_it() -> None:
    world = World()
    world.play(DONE)
    task = world.task()
    behind = world.task(needs=(task,))
    assert Agent(task.pk).cancel(because="person", now=world.clock.now())
    assert not Agent(task.pk).cancel(because="person", now=world.clock.now())
    world.work(rounds=3)
    assert not TaskRun.objects.exists()
    assert world.fresh(behind).blocked_by == task


def test_finished_work_cannot_be_cancelled() -> None:
    with pytest.raises(IllegalMove):
        Agent(make_task(state=TaskState.DONE).pk).cancel(because="person", now=NOW)


def test_losing_private_state_changes_no_status() -> None:
    """Row 7."""
    world = World()
    world.play(DONE)
    task = world.task()
    world.run_once(task)
    before = Agent(task.pk).get_state(now=world.clock.now())
    ToolCall.objects.all().delete()
    assert Agent(task.pk).get_state(now=world.clock.now()) == before
    assert before.task is TaskState.DONE
