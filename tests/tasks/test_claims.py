"""Claims warn and never block (rows 220 to 222, example 21a)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connections

from tasks.attempts.watch import end_dead_runs
from tasks.claims import CLAIM_SECONDS, release_claims, renew_claims, take_claims
from tasks.models import Claim, Event, TaskRun
from tasks.owners import this_process
from tasks.states import RunState
from tests.budgets.processes import books_on_disk, in_processes, spawn
from tests.factories.tasks import NOW, make_change, make_run, make_task

pytestmark = pytest.mark.django_db
ROUNDS = 30


def at(seconds: int):  # type: ignore[no-untyped-def]  # a test's shorthand
    return NOW + timedelta(seconds=seconds)


def test_a_lease_is_renewed_at_half_life_and_not_before() -> None:
    """Example 21a."""
    run = make_run()
    take_claims(run, ["api.py"], now=at(0))
    renew_claims(run, now=at(50))
    assert Claim.objects.get().lease_until == at(120)
    renew_claims(run, now=at(60))
    assert Claim.objects.get().lease_until == at(180)


def test_a_second_agent_starts_and_the_contention_is_told_once() -> None:
    """Example 21a: t=70."""
    change = make_change()
    first, second = (make_run(make_task(change, state="running")) for _ in range(2))
    take_claims(first, ["api.py", "ui.py"], now=at(0))
    assert take_claims(second, ["api.py"], now=at(70)) == ("api.py",)
    assert Claim.objects.filter(run=second).count() == 1
    event = Event.objects.get(kind="claim.contended")
    assert event.run_id == second.pk
    assert event.data == {"resource": "api.py", "held_by": [str(first.pk)]}


def test_a_lapsed_lease_contends_with_nobody() -> None:
    """Row 222: after a crash the claim ends by itself in 120 s."""
    change = make_change()
    first, second = (make_run(make_task(change, state="running")) for _ in range(2))
    take_claims(first, ["api.py"], now=at(0))
    assert take_claims(second, ["api.py"], now=at(120)) == ()


def test_another_projects_claim_on_the_same_path_means_nothing() -> None:
    take_claims(make_run(), ["api.py"], now=NOW)
    assert take_claims(make_run(), ["api.py"], now=NOW) == ()


def test_the_end_of_a_run_releases_its_claims_and_no_others() -> None:
    mine, other = make_run(), make_run()
    take_claims(mine, ["a", "b"], now=NOW)
    take_claims(other, ["a"], now=NOW)
    assert release_claims(mine) == 2
    assert list(Claim.objects.values_list("run_id", flat=True)) == [other.pk]


def test_claiming_twice_keeps_one_claim() -> None:
    run = make_run()
    take_claims(run, ["a", "a"], now=NOW)
    take_claims(run, ["a"], now=NOW)
    assert Claim.objects.count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_two_processes_that_claim_the_same_path_at_once_never_both_miss_it(tmp_path: Path) -> None:
    """Row 220: whoever looks before it claims sees nobody, and so does the other."""
    change = make_change()
    pairs = [[make_run(make_task(change, state="running")).pk for _ in range(2)] for _ in range(ROUNDS)]
    together = multiprocessing.get_context("fork").Barrier(2)

    def claims(number: int) -> int:
        told = 0
        for at_round, pair in enumerate(pairs):
            run = TaskRun.objects.select_related("task__change").get(pk=pair[number])
            together.wait(30)
            told += len(take_claims(run, [f"file-{at_round}.py"], now=NOW))
        return told

    with books_on_disk(tmp_path):
        told = in_processes(2, claims)
        rounds = {data["resource"] for data in Event.objects.values_list("data", flat=True)}
        claimed = Claim.objects.count()
        assert len(rounds) == ROUNDS
        assert sum(told) == Event.objects.filter(kind="claim.contended").count() >= ROUNDS
        assert claimed == 2 * ROUNDS  # nobody was kept out
        Event.objects.all().delete()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_claims_of_a_killed_holder_go_with_its_run(tmp_path: Path) -> None:
    """Row 222: kill -9. On this machine it is known at once; elsewhere the lease ends in 120 s."""
    change = make_change()
    held, waits = (make_run(make_task(change, state="running")) for _ in range(2))

    def holds() -> None:
        run = TaskRun.objects.select_related("task__change").get(pk=held.pk)
        TaskRun.objects.filter(pk=run.pk).update(owner=this_process())
        take_claims(run, ["api.py"], now=NOW)
        connections.close_all()
        signal.pause()

    with books_on_disk(tmp_path):
        connections.close_all()
        holder = spawn(holds)
        until = time.monotonic() + 30
        while not Claim.objects.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert end_dead_runs(NOW) == 0  # it lives
        os.kill(holder.pid, signal.SIGKILL)
        holder.join(10)
        assert take_claims(waits, ["api.py"], now=at(1)) == ("api.py",)  # still its claim
        release_claims(waits)
        assert take_claims(waits, ["api.py"], now=at(CLAIM_SECONDS)) == ()  # what any machine knows
        assert end_dead_runs(at(2)) == 1
        assert TaskRun.objects.get(pk=held.pk).state == RunState.FAILED
        assert list(Claim.objects.values_list("run_id", flat=True)) == [UUID(str(waits.pk))]
