"""The checks of running attempts from outside: out of time, owner dead, lease lapsed (rows 8 to 10)."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

import structlog
from django.db.models import Q

from agents.spec import Outcome
from budgets.errors import ClosedDifferently
from budgets.models import Reservation, ReservationState
from budgets.reservations import keep, runs_corrected_since
from routing.words import EndReason
from tasks.attempts.finish import finish, refresh_cost
from tasks.claims import renew_claims
from tasks.dispatch import wake_waiting_for_money
from tasks.errors import LostRace
from tasks.models import TaskRun
from tasks.owners import is_surely_dead
from tasks.states import RunState
from tasks.supervision import RUN_CHECKS_MAX, RUN_SECONDS_MAX, checks_passed, is_cancelled
from tenants.apart import apart

# A call of a run that was ended from outside may still settle for about this long.
LATE_SETTLEMENT_SECONDS = 900
# How far back a correction of the books is looked for: two days, so that a beat that was down misses none.
CORRECTIONS_SECONDS = 172_800

log = structlog.get_logger(__name__)


def watch_runs(now: datetime) -> int:
    """Look at every running attempt once; how many were ended. Another watcher may look at the same time."""
    ended = 0
    for run in _running():
        with apart("watch_run", run=str(run.pk)):
            ended += _watch(run, now=now)
    return ended


def end_dead_runs(now: datetime) -> int:
    """Only those whose worker is surely gone: cheap enough for every beat, so a killed worker costs seconds."""
    ended = 0
    for run in (run for run in _running() if is_surely_dead(run.owner)):
        with apart("end_dead_run", run=str(run.pk)):
            if _end(run, EndReason.WORKER_LOST, "the worker process is gone", now=now):
                ended += 1
                _keep_holds(run, now=now)
    return ended


def refresh_late_costs(now: datetime) -> None:
    """Runs show what the ledger has learnt since they ended: a moment ago, or by a late bill or a release."""
    recent = Q(ended_at__gte=now - timedelta(seconds=LATE_SETTLEMENT_SECONDS))
    corrected = Q(pk__in=runs_corrected_since(now - timedelta(seconds=CORRECTIONS_SECONDS)))
    for run in TaskRun.objects.filter(recent | corrected):
        refresh_cost(run)


def why_ended(run: TaskRun, *, now: datetime) -> EndReason | None:
    """What a check finds; None: the attempt may go on."""
    gone = is_surely_dead(run.owner) or run.lease_until <= now
    if is_cancelled(run.pk) and gone:  # a living worker sees the cancel itself, and closes its workspace
        return EndReason.CANCELLED
    if checks_passed(run.active_since, now) >= RUN_CHECKS_MAX:
        return EndReason.TIMEOUT
    return EndReason.WORKER_LOST if gone else None


def _running() -> list[TaskRun]:
    return list(TaskRun.objects.filter(state=RunState.RUNNING).select_related("task__change__project"))


def _watch(run: TaskRun, *, now: datetime) -> bool:
    match why_ended(run, now=now):
        case None:
            renew_claims(run, now=now)
            return False
        case EndReason.TIMEOUT as end:
            return _end(run, end, f"the run was still going after {RUN_SECONDS_MAX} seconds", now=now)
        case EndReason.WORKER_LOST as end:
            return _end(run, end, "the worker did not renew its lease", now=now)
        case end:
            return _end(run, end, "", now=now)


def _keep_holds(run: TaskRun, *, now: datetime) -> None:
    """Nobody is left to say what a dead worker's call cost: it is charged at its worst case, as unknown.

    The reaper would do so minutes later; until then others would wait for a hold that never ends well.
    """
    open_holds = Reservation.objects.filter(run_id=run.pk, state=ReservationState.HELD)
    for reservation_id in open_holds.values_list("pk", flat=True):
        with contextlib.suppress(ClosedDifferently):  # the reaper was faster
            keep(reservation_id, reason="the worker process died during the call", actor="watch")
    refresh_cost(run)
    wake_waiting_for_money(run.task.change.organization_id, now=now)


def _end(run: TaskRun, end: EndReason, note: str, *, now: datetime) -> bool:
    try:
        finish(run, Outcome(end=end, note=note), now=now)
    except LostRace:  # it ended by itself at this moment
        return False
    log.warning("run ended by the watch", run=str(run.pk), end=str(end))
    return True
