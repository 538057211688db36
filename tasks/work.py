"""What a due Change needs now: a plan, the integrate rule, or its composition. One worker at a time."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import structlog
from django.db import transaction
from django.utils import timezone

from tasks.asking import stop_after_fault
from tasks.candidates import compose
from tasks.conflicts import collision_of, integrate, stuck_starts
from tasks.fence import WorkHold, WorkLost, due_changes, resume_work, take_work
from tasks.models import Change
from tasks.planning import plan_change
from tasks.states import ChangeState, TaskState
from tasks.transitions import locked_change, move_change

__all__ = ["due_changes", "work_on"]

log = structlog.get_logger(__name__)


def work_on(change_id: UUID) -> None:
    """Do the Change's own work if it is due and nobody else does it. Safe to call at any time, any number of times."""
    hold = take_work(change_id, now=timezone.now())
    if hold is None:
        return
    try:
        _work(hold)
    except WorkLost as lost:
        # Cancelled, or taken by another worker: its rows are not ours to write.
        log.info("the work of this change is somebody else's now", change=str(change_id), lost=str(lost))
    except Exception as fault:
        log.exception("work on a change broke", change=str(change_id))
        with suppress(WorkLost):
            stop_after_fault(hold, fault, now=timezone.now())


def _work(hold: WorkHold) -> None:
    change: Change = Change.objects.get(pk=hold.change_id)
    match change.state:
        case ChangeState.BUDGET_BLOCKED:
            resume_work(change, because="period_turned", now=timezone.now())
        case ChangeState.PLANNING:
            plan_change(hold)
        case ChangeState.COMPOSING:
            compose(hold)
        case ChangeState.RUNNING:
            _after_the_tasks(hold, change)
        case _:
            hold.end()


def _after_the_tasks(hold: WorkHold, change: Change) -> None:
    stuck = stuck_starts(change)
    collision = collision_of(stuck[0]) if stuck else None
    if collision is not None:
        if integrate(hold, collision):
            return
    elif _all_done(change) and _begin_composing(hold):
        compose(hold)
        return
    hold.end()


def _all_done(change: Change) -> bool:
    states = set(change.tasks.exclude(state=TaskState.CANCELLED).values_list("state", flat=True))
    return states == {TaskState.DONE}


@transaction.atomic
def _begin_composing(hold: WorkHold) -> bool:
    with hold.writing():
        locked = locked_change(hold.change_id)
        if locked.state != ChangeState.RUNNING or not _all_done(locked):
            return False
        move_change(locked, ChangeState.COMPOSING, because="tasks_done", now=timezone.now())
        return True
