"""A person ends one attempt without cancelling its Change."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from routing.words import EndReason
from tasks.errors import NotStopped
from tasks.events import record
from tasks.funding import stop_task
from tasks.models import TaskRun
from tasks.pauses import end_paused
from tasks.states import OPEN_RUNS, RunState
from tasks.stops import STOPPED_BY_PERSON
from tasks.transitions import locked_change
from tasks.windows import REASON_CHARACTERS_MAX
from tenants import audit, text
from tenants.access import require_role
from tenants.models import Role, User


@transaction.atomic
def stop_run(run: TaskRun, *, by: User, reason: str = "", now: datetime) -> TaskRun:
    """Ask one attempt to end at its next beat, before its next call or tool; its Task then waits for a person.

    A call that is on its way is waited for and paid. An attempt that gets its work done before it hears
    this is done. One that waits for a yes ends at once. Asking twice changes nothing. Raises RoleTooLow
    below MEMBER, NotStopped for an attempt that has ended.
    """
    require_role(by, run.task.change.organization_id, Role.MEMBER)
    reason = text.free_text("reason", reason, characters_max=REASON_CHARACTERS_MAX)
    change = locked_change(run.task.change_id)
    fresh: TaskRun = TaskRun.objects.select_related("task__change").get(pk=run.pk)
    if fresh.state not in OPEN_RUNS:
        raise NotStopped(
            f"attempt {fresh.attempt} of {fresh.task.key} has ended", "There is nothing to stop."
        )
    if fresh.stop_asked_at is not None:
        return fresh
    asked = {"stop_asked_at": now, "stop_asked_by": by, "stop_reason": reason}
    TaskRun.objects.filter(pk=fresh.pk, state=fresh.state).update(**asked)
    record("run.stop_asked", change=change, task=fresh.task, run=fresh, data={"by": str(by.pk)}, now=now)
    audit.note(
        change.organization,
        by,
        "run.stopped",
        f"{change.key}/{fresh.task.key}/{fresh.attempt}",
        reason=reason,
    )
    if fresh.state == RunState.PAUSED:
        end_paused(fresh, RunState.CANCELLED, end=EndReason.CANCELLED, now=now)
        note = f"{by.email}: {reason}" if reason else by.email
        stop_task(fresh.task, STOPPED_BY_PERSON, reason=STOPPED_BY_PERSON, run=fresh, note=note, now=now)
    fresh.refresh_from_db()
    return fresh
