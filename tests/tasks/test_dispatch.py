"""Wakes that are lost, doubled, late or too many; and who may start (rows 13, 16; examples 2b)."""

from __future__ import annotations

import os
import subprocess
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from budgets.models import Reservation
from tasks.admission import AGENTS_PER_CHANGE_MAX
from tasks.dispatch import (
    START_LEASE_SECONDS,
    WAKE_AGAIN_SECONDS,
    free_abandoned_starts,
    give_back,
    take,
    wake_lost,
    wake_next,
    wake_waiting_for_money,
)
from tasks.errors import LostRace
from tasks.models import Event, Task, TaskRun
from tasks.owners import is_surely_dead, this_process
from tasks.states import ChangeState, TaskState
from tasks.transitions import move_task
from tests.factories.budgets import make_context, make_hold, make_payers
from tests.factories.tasks import NOW, make_change, make_run, make_task
from tests.tasks.threads import in_threads

ME = "this worker"
ALL_STATES_BUT_READY = [state for state in TaskState if state not in (TaskState.READY, TaskState.BLOCKED)]


def at(seconds: float):  # type: ignore[no-untyped-def]  # a test's shorthand
    return NOW + timedelta(seconds=seconds)


def woken() -> set[str]:
    return set(Task.objects.filter(woken_at__isnull=False).values_list("key", flat=True))


@pytest.mark.django_db
class TestTaking:
    def test_a_due_task_is_taken_once(self) -> None:
        task = make_task()
        assert take(task.pk, owner=ME, now=NOW) == task
        assert take(task.pk, owner="another", now=NOW) is None
        fresh = Task.objects.get(pk=task.pk)
        assert (fresh.state, fresh.owner, fresh.not_before) == (TaskState.READY, ME, at(START_LEASE_SECONDS))
        assert Event.objects.filter(kind="agent.wake").count() == 1

    def test_a_task_that_waits_for_its_retry_is_not_due(self) -> None:
        task = make_task(not_before=at(5))
        assert take(task.pk, owner=ME, now=at(4.9)) is None
        assert take(task.pk, owner=ME, now=at(5)) is not None

    @pytest.mark.parametrize("state", ALL_STATES_BUT_READY)
    def test_a_redelivered_wake_for_another_state_starts_nothing(self, state: TaskState) -> None:
        assert take(make_task(state=state).pk, owner=ME, now=NOW) is None

    @pytest.mark.parametrize("state", [ChangeState.CANCELLED, ChangeState.FAILED, ChangeState.COMPOSING])
    def test_a_change_that_is_not_worked_on_starts_nothing(self, state: ChangeState) -> None:
        assert take(make_task(make_change(state=state)).pk, owner=ME, now=NOW) is None

    def test_a_wake_for_a_task_that_is_gone_starts_nothing(self) -> None:
        assert take(make_change().pk, owner=ME, now=NOW) is None

    def test_a_start_that_lasts_too_long_may_be_taken_again(self) -> None:
        task = make_task()
        take(task.pk, owner="stuck", now=NOW)
        assert take(task.pk, owner=ME, now=at(START_LEASE_SECONDS)) is not None
        with pytest.raises(LostRace):
            move_task(task, TaskState.RUNNING, because="started", now=NOW, held_by="stuck")

    def test_a_paused_change_starts_nothing_and_says_so(self) -> None:
        task = make_task(make_change(paused_at=NOW))
        assert take(task.pk, owner=ME, now=NOW) is None
        assert Task.objects.get(pk=task.pk).waiting_for == "paused"

    def test_the_ninth_agent_waits_until_a_run_ends(self) -> None:
        """Example 2b: 0 receipts, 0 runs, the note; then it starts."""
        change = make_change()
        running = [make_task(change, state=TaskState.RUNNING) for _ in range(AGENTS_PER_CHANGE_MAX)]
        ninth = make_task(change)
        assert take(ninth.pk, owner=ME, now=NOW) is None
        fresh = Task.objects.get(pk=ninth.pk)
        assert (fresh.state, fresh.waiting_for) == (TaskState.READY, "blocked_limit")
        assert TaskRun.objects.count() == ninth.receipts.count() == 0
        move_task(running[0], TaskState.DONE, because="completed", now=NOW)
        assert take(ninth.pk, owner=ME, now=NOW) is not None

    def test_starting_tasks_count_as_active(self) -> None:
        change = make_change()
        tasks = [make_task(change) for _ in range(9)]
        taken = [take(task.pk, owner=ME, now=NOW) for task in tasks]
        assert [task is not None for task in taken] == [True] * 8 + [False]

    def test_the_last_place_goes_to_the_oldest_and_the_younger_wake_passes_on(self) -> None:
        change = make_change()
        for _ in range(7):
            make_task(change, state=TaskState.RUNNING)
        older, younger = make_task(change), make_task(change)
        assert take(younger.pk, owner=ME, now=NOW) is None
        assert woken() == {older.key}
        assert take(older.pk, owner=ME, now=NOW) is not None

    def test_eight_agents_of_one_change_do_not_hold_up_another(self) -> None:
        full = make_change()
        for _ in range(8):
            make_task(full, state=TaskState.RUNNING)
        assert take(make_task().pk, owner=ME, now=NOW) is not None


@pytest.mark.django_db
class TestWaking:
    def test_the_beat_finds_a_lost_wake_and_does_not_repeat_itself(self) -> None:
        make_task()
        assert wake_lost(NOW) == 1
        assert wake_lost(at(WAKE_AGAIN_SECONDS - 1)) == 0
        assert wake_lost(at(WAKE_AGAIN_SECONDS)) == 1

    def test_a_nudge_from_before_the_retry_does_not_keep_the_beat_away(self) -> None:
        make_task(woken_at=at(0), not_before=at(5))
        assert wake_lost(at(4)) == 0
        assert wake_lost(at(5)) == 1

    def test_the_beat_wakes_only_what_may_start(self) -> None:
        make_task(not_before=at(5))
        make_task(state=TaskState.RUNNING)
        make_task(make_change(paused_at=NOW))
        make_task(make_change(state=ChangeState.CANCELLED))
        full = make_change()
        for _ in range(8):
            make_task(full, state=TaskState.RUNNING)
        make_task(full)
        assert wake_lost(NOW) == 0

    def test_one_wake_for_each_free_place_oldest_first(self) -> None:
        change = make_change()
        for _ in range(6):
            make_task(change, state=TaskState.RUNNING)
        names = [make_task(change).key for _ in range(4)]
        wake_next(change, now=NOW)
        assert woken() == set(names[:2])

    def test_who_waits_for_held_money_is_due_at_once_when_a_hold_ends(
        self, django_capture_on_commit_callbacks: Any
    ) -> None:
        change = make_change()
        waits = make_task(change, not_before=at(10), waiting_for="held_money:change")
        retries = make_task(change, not_before=at(5), waiting_for="retry")
        stranger = make_task(not_before=at(10), waiting_for="held_money:change")
        began = make_task(change, not_before=at(10), waiting_for="held_money:change")
        with django_capture_on_commit_callbacks(execute=True):
            wake_waiting_for_money(change.organization_id, besides=began, now=NOW)
        assert Task.objects.get(pk=waits.pk).not_before == NOW
        assert Task.objects.get(pk=began.pk).not_before == at(10)  # it has just asked
        assert Task.objects.get(pk=retries.pk).not_before == at(5)
        assert Task.objects.get(pk=stranger.pk).not_before == at(10)

    def test_a_start_whose_process_is_gone_is_due_at_once(self) -> None:
        gone = subprocess.Popen(["sleep", "60"])
        owner = this_process().replace(f":{os.getpid()}:", f":{gone.pid}:").rpartition(":")[0]
        owner = f"{owner}:{started_of(gone.pid)}"
        mine, dead, elsewhere = (make_task() for _ in range(3))
        take(mine.pk, owner=this_process(), now=NOW)
        take(dead.pk, owner=owner, now=NOW)
        take(elsewhere.pk, owner="another-host/b/n:1:1", now=NOW)
        assert free_abandoned_starts(at(1)) == 0
        gone.kill()
        gone.wait()
        assert free_abandoned_starts(at(1)) == 1
        assert take(dead.pk, owner=ME, now=at(1)) is not None

    @pytest.mark.parametrize(
        ("purpose", "model", "state"),
        [
            ("embedding", "hashing-v1", "refunded"),  # works in the worker itself: nothing was sent
            ("embedding", "http:bge", "unknown"),
            ("classifier", "claude-haiku-5-5", "unknown"),
        ],
    )
    def test_what_a_dead_start_held_does_not_wait_for_its_lease(
        self, purpose: str, model: str, state: str
    ) -> None:
        """It is given back only when it certainly never left; otherwise it is charged, as unknown."""
        dead, runs = make_task(), make_task(state="running")
        run = make_run(runs)
        meters = make_payers(dead.change.organization)
        more = {"purpose": purpose, "model": model}
        hold = make_hold(meters, context=make_context(meters, task_id=dead.pk, run_id=uuid4(), **more))
        others = make_hold(meters, context=make_context(meters, task_id=runs.pk, run_id=run.pk, **more))
        take(dead.pk, owner=this_process().rpartition(":")[0] + ":1", now=NOW)
        assert free_abandoned_starts(at(1)) == 1
        assert Reservation.objects.get(pk=hold.reservation_id).state == state
        assert Reservation.objects.get(pk=others.reservation_id).state == "held"

    def test_giving_back_needs_the_start(self) -> None:
        task = make_task()
        take(task.pk, owner="other", now=NOW)
        task.owner = ME
        assert not give_back(task, not_before=NOW, waiting_for="index")


def started_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_process_is_dead_only_when_that_is_sure() -> None:
    mine = this_process()
    assert not is_surely_dead(mine)
    assert is_surely_dead(f"{mine}9")  # the same number, started at another time
    assert not is_surely_dead("another-host/boot/ns:1:1")
    assert not is_surely_dead("")
    assert not is_surely_dead("nonsense")


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_that_take_a_task_at_once_one_gets_it() -> None:
    """Row 146's twin for Tasks: doubled deliveries on real threads."""
    task = make_task()
    got = in_threads(6, lambda number: take(task.pk, owner=f"worker {number}", now=NOW))
    assert sum(one is not None for one in got) == 1


@pytest.mark.django_db(transaction=True)
def test_no_race_lets_a_ninth_agent_in() -> None:
    change = make_change()
    tasks = [make_task(change) for _ in range(12)]
    got = in_threads(12, lambda number: take(tasks[number].pk, owner=f"worker {number}", now=NOW))
    assert sum(one is not None for one in got) <= AGENTS_PER_CHANGE_MAX
    assert Task.objects.exclude(owner="").count() == sum(one is not None for one in got)


@pytest.mark.django_db(transaction=True)
def test_of_many_movers_of_one_state_one_wins() -> None:
    task = make_task()
    loaded = threading.Barrier(4)

    def move_together(number: int) -> bool:
        mine = Task.objects.select_related("change").get(pk=task.pk)
        loaded.wait(10)
        try:
            move_task(mine, TaskState.RUNNING, because=str(number), now=NOW)
        except LostRace:
            return False
        return True

    assert sum(in_threads(4, move_together)) == 1
    assert Event.objects.filter(kind="task.running").count() == 1
