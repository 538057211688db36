"""The entries of Celery: thin, and safe to run twice, late or not at all (rows 13, 30; shows 2 and 3 of the issue)."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from celery import current_app
from django.utils import timezone

from tasks import jobs
from tasks.models import Task, TaskRun, Trunk
from tasks.owners import this_process
from tasks.states import RunState, TaskState
from tasks.wake import WAKE_CHANGE, WAKE_TASK, wake_task
from tests.factories.tasks import make_run, make_stopped_task, make_task, make_trunk
from tests.factories.tenants import make_project
from tests.tasks.repositories import make_repository
from tests.tasks.world import DONE, World, ends

pytestmark = pytest.mark.django_db


def test_the_names_that_wakes_use_are_registered() -> None:
    """The only call by name in the house."""
    assert {WAKE_TASK, WAKE_CHANGE, "tasks.sweep", "tasks.watch_runs"} <= set(current_app.tasks)


def test_a_wake_that_is_doubled_runs_the_task_once() -> None:
    world = World()
    world.play(DONE)
    task = world.task()
    for _ in range(3):
        jobs.wake(str(task.pk))
    assert ends(task) == ["haiku completed"]


def test_a_wake_for_nothing_does_nothing() -> None:
    jobs.wake(str(uuid4()))
    jobs.work_on_change(str(uuid4()))


def test_a_sweep_brings_back_what_a_dead_worker_left() -> None:
    now = timezone.now()
    gone = f"{this_process()}9"
    started = make_task(owner=gone, not_before=now + timedelta(minutes=10))
    run = make_run(
        make_task(state=TaskState.RUNNING), owner=gone, started_at=now, lease_until=now + timedelta(hours=1)
    )
    for _ in range(2):
        jobs.sweep()
    assert TaskRun.objects.get(pk=run.pk).end_reason == "worker_lost"
    fresh = Task.objects.get(pk=started.pk)
    assert (fresh.owner, fresh.woken_at is not None) == ("", True)


@pytest.mark.django_db(transaction=True)
def test_a_broken_row_of_one_tenant_keeps_the_sweep_from_nobody_else() -> None:
    """A repository that is gone, a stop whose detail cannot be read: retries of all tenants hang on this sweep."""
    now = timezone.now()
    make_trunk(make_project(), generation=2, indexed_generation=1)  # its repository is gone
    odd = make_stopped_task(limit="monthly_budget", stop_detail={"refusals": ["unreadable"]})
    sound = make_project()
    make_repository(sound)
    Trunk.objects.filter(project=sound).update(generation=3)
    run = make_run(
        make_task(state=TaskState.RUNNING),
        owner=f"{this_process()}9",
        started_at=now,
        lease_until=now + timedelta(hours=1),
    )
    lost = make_task()
    jobs.sweep()
    assert TaskRun.objects.get(pk=run.pk).end_reason == "worker_lost"
    assert Task.objects.get(pk=lost.pk).woken_at is not None
    assert Task.objects.get(pk=odd.pk).state == TaskState.BLOCKED
    assert Trunk.objects.get(project=sound).indexed_generation == 3


def test_the_watch_ends_what_is_out_of_time_and_nothing_else() -> None:
    now = timezone.now()
    old, young = (
        make_run(
            make_task(state=TaskState.RUNNING),
            owner=this_process(),
            started_at=now - timedelta(seconds=seconds),
            lease_until=now + timedelta(hours=1),
        )
        for seconds in (901, 800)
    )
    for _ in range(2):
        jobs.watch_runs()
    assert TaskRun.objects.get(pk=old.pk).end_reason == "timeout"
    assert TaskRun.objects.get(pk=young.pk).state == RunState.RUNNING


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_away_loses_a_wake_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show 3: emptying the broker costs one beat."""

    def away(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(current_app, "send_task", away)
    task = make_task()
    wake_task(task.pk)
    assert Task.objects.get(pk=task.pk).state == TaskState.READY
