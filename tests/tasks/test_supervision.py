"""Running attempts under watch: time, cancel, lost workers, fences (rows 7 to 10, 145, 222; C66)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from agents.clock import Clock
from agents.errors import StopRun
from agents.spec import CALL_SECONDS_MAX, Outcome
from budgets.models import Reservation
from budgets.money import Usd
from budgets.reservations import keep, release_unknown
from routing.words import EndReason, Tier
from tasks.attempts.finish import finish
from tasks.attempts.watch import end_dead_runs, refresh_late_costs, watch_runs
from tasks.claims import take_claims
from tasks.errors import LostRace
from tasks.models import ChangeSet, Claim, DecisionReceipt, Event, Task, TaskRun
from tasks.owners import this_process
from tasks.states import ChangeState, RunState, TaskState
from tasks.supervision import RUN_LEASE_SECONDS, RunSupervisor
from tasks.transitions import move_change, move_task
from tests.factories.tasks import NOW, make_run, make_task
from tests.tasks.money import hold, spend
from tests.tasks.world import DONE, TestClock, World, ends

COMPLETED = Outcome(end=EndReason.COMPLETED, intent="done")


def at(seconds: float):  # type: ignore[no-untyped-def]  # a test's shorthand
    return NOW + timedelta(seconds=seconds)


def running(**more: Any) -> TaskRun:
    fields = {"lease_until": at(3_600), "owner": this_process()} | more
    return make_run(make_task(state=TaskState.RUNNING), **fields)


def fresh(run: TaskRun) -> TaskRun:
    found: TaskRun = TaskRun.objects.select_related("task").get(pk=run.pk)
    return found


@pytest.mark.django_db
class TestTheClock:
    def test_a_run_is_out_of_time_at_its_fifteenth_check(self) -> None:
        """Example 1b: 10:14:00 still running, at 10:15:00 timeout."""
        run = running()
        watch_runs(at(14 * 60))
        assert fresh(run).state == RunState.RUNNING
        watch_runs(at(15 * 60 - 1))
        assert fresh(run).state == RunState.RUNNING
        watch_runs(at(15 * 60))
        ended = fresh(run)
        assert (ended.state, ended.end_reason, ended.failure_class) == (
            RunState.FAILED,
            "timeout",
            "transport",
        )
        assert ended.task.state == TaskState.READY  # transport: once more at the same tier

    def test_the_worker_itself_hears_it_too(self) -> None:
        run, clock = running(), TestClock(at(15 * 60 - 1))
        supervisor = RunSupervisor(run, clock=clock)
        supervisor.beat()
        clock.pass_by(1)
        with pytest.raises(StopRun) as stop:
            supervisor.beat()
        assert stop.value.end is EndReason.TIMEOUT

    def test_a_lease_outlives_the_longest_call(self) -> None:
        assert RUN_LEASE_SECONDS > CALL_SECONDS_MAX

    def test_a_beat_renews_lease_and_claims(self) -> None:
        run = running(lease_until=at(10))
        take_claims(run, ["a"], now=at(0))
        RunSupervisor(run, clock=TestClock(at(70))).beat()
        assert fresh(run).lease_until == at(70 + RUN_LEASE_SECONDS)
        assert Claim.objects.get().lease_until == at(190)

    def test_the_watch_renews_the_claims_of_a_worker_that_waits_for_a_model(self) -> None:
        """Row 221: the 60 s check renews."""
        run = running()
        take_claims(run, ["a"], now=at(0))
        watch_runs(at(60))
        assert Claim.objects.get().lease_until == at(180)

    def test_beats_that_follow_at_once_do_not_ask_the_database(self, django_assert_num_queries: Any) -> None:
        supervisor = RunSupervisor(running(), clock=TestClock())
        supervisor.beat()
        with django_assert_num_queries(0):
            supervisor.beat()


@pytest.mark.django_db
class TestCancelling:
    @pytest.mark.parametrize("what", ["task", "change"])
    def test_a_beat_hears_a_cancel_and_the_run_ends_without_a_retry(self, what: str) -> None:
        """Row 10: not a failure."""
        run = running()
        if what == "task":
            move_task(run.task, TaskState.CANCELLED, because="person", now=at(5))
        else:
            move_change(run.task.change, ChangeState.CANCELLED, because="person", now=at(5))
        with pytest.raises(StopRun) as stop:
            RunSupervisor(run, clock=TestClock(at(6))).beat()
        assert stop.value.end is EndReason.CANCELLED
        finish(run, Outcome(end=EndReason.CANCELLED), now=at(7))
        ended = fresh(run)
        assert (ended.state, ended.end_reason, ended.failure_class) == (RunState.CANCELLED, "cancelled", "")
        assert ended.task.state == TaskState.CANCELLED

    def test_work_that_comes_in_after_a_cancel_is_not_taken(self) -> None:
        run = running()
        move_task(run.task, TaskState.CANCELLED, because="person", now=at(5))
        finish(run, COMPLETED, now=at(6))
        assert fresh(run).state == RunState.CANCELLED
        assert not ChangeSet.objects.exists()

    def test_a_cancel_in_the_middle_stops_before_the_next_call(self) -> None:
        world = World()
        world.play({"text": "one"}, {"text": "two"}, DONE)
        task = world.task()

        class CancellingClock(TestClock):
            """Somebody presses cancel after the first call has been settled."""

            def now(self):  # type: ignore[no-untyped-def]  # as in the base
                if Reservation.objects.filter(cost__isnull=False).exists():
                    Task.objects.filter(pk=task.pk, state="running").update(**{"state": "cancelled"})
                self.pass_by(2)
                return super().now()

        world.clock = CancellingClock()
        world.run_once(task)
        assert ends(task) == ["haiku cancelled"]
        assert Reservation.objects.count() == 1
        assert world.fresh(task).state == TaskState.CANCELLED


@pytest.mark.django_db
class TestLostWorkers:
    def test_a_lapsed_lease_is_a_lost_worker_and_the_task_starts_again_without_counting(self) -> None:
        run = running(owner="another-host/b/n:1:1", lease_until=at(100))
        watch_runs(at(99))
        assert fresh(run).state == RunState.RUNNING
        assert end_dead_runs(at(101)) == 0  # of another machine nothing is sure but the lease
        watch_runs(at(100))
        ended = fresh(run)
        assert (ended.end_reason, ended.failure_class) == ("worker_lost", "transport")
        assert (ended.task.state, ended.task.not_before) == (TaskState.READY, at(105))

    def test_a_dead_process_of_this_machine_is_known_at_once(self) -> None:
        run = running(owner=f"{this_process()}9")
        assert end_dead_runs(at(1)) == 1
        assert fresh(run).end_reason == "worker_lost"

    def test_the_worker_that_lost_its_run_writes_nothing(self) -> None:
        """C66: fencing."""
        stale = running(lease_until=at(100), owner="x")
        watch_runs(at(100))
        before = (Event.objects.count(), DecisionReceipt.objects.count())
        with pytest.raises(LostRace):
            finish(stale, COMPLETED, now=at(120))
        with pytest.raises(StopRun) as stop:
            RunSupervisor(stale, clock=TestClock(at(121))).beat()
        assert stop.value.end is EndReason.WORKER_LOST
        assert fresh(stale).end_reason == "worker_lost"
        assert stale.task.changesets.count() == 0
        assert (Event.objects.count(), DecisionReceipt.objects.count()) == before

    @pytest.mark.parametrize("task_state", [TaskState.RUNNING, TaskState.CANCELLED])
    def test_a_run_that_this_worker_has_ended_is_not_ended_again(self, task_state: TaskState) -> None:
        run = running()
        finish(run, COMPLETED, now=at(5))
        Task.objects.filter(pk=run.task_id).update(state=task_state)
        with pytest.raises(LostRace):
            finish(run, COMPLETED, now=at(6))
        assert fresh(run).state == RunState.SUCCEEDED

    def test_a_fence_that_moved_on_keeps_the_old_worker_out_of_a_running_run(self) -> None:
        stale = running()
        TaskRun.objects.filter(pk=stale.pk).update(fence=2)
        with pytest.raises(LostRace):
            finish(stale, COMPLETED, now=at(5))
        assert fresh(stale).state == RunState.RUNNING

    def test_machines_that_restart_twice_do_not_fail_a_task(self) -> None:
        world = World()
        world.play(DONE)
        task = world.task()
        for number in (1, 2, 3):
            run = make_run(
                task,
                attempt=number,
                tier=Tier.HAIKU,
                started_at=world.clock.now(),
                owner="x",
                lease_until=NOW,
            )
            Task.objects.filter(pk=task.pk).update(**{"state": "running"})
            assert watch_runs(world.clock.now()) == 1
            assert fresh(run).end_reason == "worker_lost"
        world.clock.pass_by(5)
        world.run_once(task)
        assert ends(task) == ["haiku worker_lost"] * 3 + ["haiku completed"]

    def test_the_end_of_a_run_counts_what_the_ledger_says(self) -> None:
        run = running(lease_until=at(100), owner="x")
        spend(run.task.change, Usd(700), run_id=run.pk)
        hold(run.task.change, Usd(300), run_id=run.pk)  # in flight when the worker died
        watch_runs(at(100))
        assert (fresh(run).cost, fresh(run).unknown_calls) == (Usd(700), 1)
        spend(run.task.change, Usd(50), run_id=run.pk)  # settled late
        refresh_late_costs(at(120))
        assert fresh(run).cost == Usd(750)

    def test_a_charge_that_is_released_a_day_later_is_no_longer_unknown_on_its_run(self) -> None:
        run = running(lease_until=at(100), owner="x")
        held = hold(run.task.change, Usd(300), run_id=run.pk)
        keep(held.reservation_id, reason="the connection broke")
        watch_runs(at(100))
        assert (fresh(run).cost, fresh(run).unknown_calls) == (Usd(0), 1)
        release_unknown(
            held.reservation_id, by=run.task.change.author, reason="the provider's bill does not show it"
        )
        refresh_late_costs(at(86_400))
        assert (fresh(run).cost, fresh(run).unknown_calls) == (Usd(0), 0)

    def test_two_watchers_end_a_run_once(self) -> None:
        run = running(lease_until=at(1), owner="x")
        assert watch_runs(at(2)) + watch_runs(at(2)) == 1
        assert Event.objects.filter(kind="run.failed", run=run).count() == 1


WORKER = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
django.setup()
from django.conf import settings
from uuid import UUID
from tasks.attempts.run import run_task
print("up", flush=True)
run_task(UUID(sys.argv[1]))
print("finished", flush=True)
"""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_in_the_middle_of_a_call_pays_nothing_twice_and_the_task_ends_done(
    settings: Any,
) -> None:
    """Shows 2 of the issue: kill -9, and a new worker brings it to its end."""
    world = World()
    world.play({"text": "slow", "seconds": 60})
    task = world.task()
    worker = start_worker(task, settings)
    try:
        wait_for(lambda: Reservation.objects.filter(state="held").exists())
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    assert fresh(TaskRun.objects.get()).state == RunState.RUNNING
    now = Clock().now()
    assert end_dead_runs(now) == 1  # at once, long before the lease lapses
    (call,) = Reservation.objects.all()
    assert (call.state, call.cost) == ("unknown", None)  # no hold is lost, and unknown is not zero
    assert call.usd == call.hold_usd
    assert TaskRun.objects.get().unknown_calls == 1
    world.connector.config = {}
    world.play(DONE, attempt=1)  # to a script a lost worker was no attempt
    world.clock = TestClock(now + timedelta(seconds=5))
    world.run_once(task)
    assert ends(task) == ["haiku worker_lost", "haiku completed"]
    assert Reservation.objects.count() == 2
    assert Task.objects.get(pk=task.pk).state == TaskState.DONE


def start_worker(task: Task, settings: Any) -> subprocess.Popen[bytes]:
    """A real process on the tests' own database."""
    database = settings.DATABASES["default"]
    environment = os.environ | {"REMIT_DATA_DIR": str(settings.PLANE.data_dir)}
    script = WORKER
    if database["ENGINE"].endswith("sqlite3"):
        script = script.replace(
            "from uuid import UUID",
            f"settings.DATABASES['default']['NAME'] = {str(database['NAME'])!r}\nfrom uuid import UUID",
        )
    else:
        environment["DATABASE_URL"] = settings.PLANE.database_url.rpartition("/")[0] + f"/{database['NAME']}"
    connections.close_all()
    return subprocess.Popen([sys.executable, "-c", script, str(task.pk)], env=environment)


def wait_for(condition: Any, *, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)
