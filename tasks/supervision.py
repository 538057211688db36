"""The domain's hand on a running attempt: cancelled, out of time, still the owner? Renews lease and claims."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from agents.clock import WALL, Clock
from agents.errors import StopRun
from agents.spec import CALL_SECONDS_MAX
from routing.words import EndReason
from tasks.claims import renew_claims
from tasks.models import TaskRun
from tasks.states import ChangeState, RunState, TaskState

RUN_CHECK_SECONDS = 60
RUN_CHECKS_MAX = 15
RUN_SECONDS_MAX = RUN_CHECK_SECONDS * RUN_CHECKS_MAX
# A model call is the longest time without a beat; a lease must outlive it.
RUN_LEASE_SECONDS = CALL_SECONDS_MAX + RUN_CHECK_SECONDS
# Beats come before every call and tool and while commands run: the rows are asked no more often than this.
BEAT_SECONDS = 1
assert BEAT_SECONDS < RUN_CHECK_SECONDS < RUN_LEASE_SECONDS < RUN_SECONDS_MAX

LOST_THE_RUN = "another worker or the watch has ended this run"


def checks_passed(active_since: datetime, now: datetime) -> int:
    """How many 60-second checks an active run has had; at the 15th it is out of time (row 9)."""
    return int((now - active_since).total_seconds()) // RUN_CHECK_SECONDS


class RunSupervisor:
    """Implements `agents.spec.Supervisor` for one run and one fence."""

    def __init__(self, run: TaskRun, *, clock: Clock = WALL) -> None:
        self._run = run
        self._clock = clock
        self._asked_at: datetime | None = None

    def beat(self) -> None:
        """Raises `StopRun`: cancelled (row 10), out of time (row 9), or no longer the owner (C66)."""
        now = self._clock.now()
        if checks_passed(self._run.active_since, now) >= RUN_CHECKS_MAX:
            raise StopRun(EndReason.TIMEOUT, f"the run was still going after {RUN_SECONDS_MAX} seconds")
        if self._asked_at is not None and now - self._asked_at < timedelta(seconds=BEAT_SECONDS):
            return
        self._asked_at = now
        if is_cancelled(self._run.pk):
            raise StopRun(EndReason.CANCELLED, "the Task was cancelled, or a person stopped this attempt")
        if not renew_lease(self._run, now=now):
            raise StopRun(EndReason.WORKER_LOST, LOST_THE_RUN)
        renew_claims(self._run, now=now)

    def seconds_left(self) -> float:
        """Until the last check of the run (rows 9, 126)."""
        passed = (self._clock.now() - self._run.active_since).total_seconds()
        return max(0.0, RUN_SECONDS_MAX - passed)


def renew_lease(run: TaskRun, *, now: datetime) -> bool:
    """False when the run has ended or is fenced off."""
    mine = TaskRun.objects.filter(pk=run.pk, state=RunState.RUNNING, fence=run.fence)
    return bool(mine.update(lease_until=lease_from(now)))


def lease_from(now: datetime) -> datetime:
    return now + timedelta(seconds=RUN_LEASE_SECONDS)


def is_cancelled(run_id: UUID) -> bool:
    """The Task or its Change was cancelled, or a person asked this one attempt to end (rows 10 and 13)."""
    ended = (
        Q(task__state=TaskState.CANCELLED)
        | Q(task__change__state=ChangeState.CANCELLED)
        | Q(stop_asked_at__isnull=False)
    )
    return TaskRun.objects.filter(ended, pk=run_id).exists()
