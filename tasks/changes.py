"""A Change's life as people steer it: submit, start, pause, resume, cancel, try again."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F

from budgets.keys import MeterKind
from budgets.limits import set_limit
from tasks.errors import IllegalMove, NotStopped
from tasks.events import record
from tasks.fence import make_due
from tasks.models import Change, Criterion, Trunk
from tasks.pauses import withdraw_pauses
from tasks.states import ENDED_CHANGES, ChangeState, TaskState
from tasks.transitions import locked_change, move_change, move_task
from tasks.wake import wake_task
from tasks.wanted import WantedChange, WantedCriterion, checked
from tasks.windows import reopen_task
from tenants.audit import note
from tenants.errors import InvalidInput
from tenants.models import Organization, Project, User

__all__ = [
    "WantedChange",
    "WantedCriterion",
    "cancel_change",
    "pause_change",
    "resume_change",
    "retry_change",
    "start_draft",
    "submit_change",
]

CANCELLED_TASKS = (TaskState.PENDING, TaskState.READY, TaskState.RUNNING, TaskState.BLOCKED, TaskState.FAILED)


@transaction.atomic
def submit_change(
    project: Project, wanted: WantedChange, *, by: User, now: datetime, plan_waits: bool = False
) -> Change:
    """Write down a Change with its criteria and its meter, and hand it to the planner unless it is a draft.

    With `plan_waits` a person approves its plan, whatever the project says. Raises InvalidInput naming the
    field; nothing is kept then.
    """
    wanted = checked(wanted)
    _can_take_changes(project)
    change: Change = Change.objects.create(
        organization_id=project.organization_id,
        project=project,
        number=_next_number(project),
        author=by,
        title=wanted.title,
        goal=wanted.goal,
        invariants=list(wanted.invariants),
        plan_needs_approval=plan_waits,
    )
    Criterion.objects.bulk_create(
        Criterion(change=change, position=position, text=each.text, command=each.command)
        for position, each in enumerate(wanted.criteria, start=1)
    )
    if wanted.budget is not None:
        set_limit(
            organization_id=project.organization_id,
            kind=MeterKind.CHANGE,
            subject=str(change.pk),
            to=wanted.budget,
            by=by,
            reason="asked for with the change",
            key=f"submit:{change.pk}",
            now=now,
        )
    figures = {"criteria": len(wanted.criteria), "budget": wanted.budget.micro if wanted.budget else None}
    told = figures | {"draft": wanted.draft}
    record("change.submitted", change=change, data=told, key=f"change.submitted:{change.pk}", now=now)
    note(change.organization, by, "change.submitted", change.key, after={"title": change.title} | figures)
    if not wanted.draft:
        _start_planning(change, because="submitted", now=now)
    return change


@transaction.atomic
def start_draft(change: Change, *, by: User, now: datetime) -> None:
    """Hand a draft over. Raises IllegalMove for anything that is no draft."""
    locked = locked_change(change.pk)
    if locked.state != ChangeState.DRAFT:
        raise IllegalMove(locked, ChangeState.PLANNING)
    _start_planning(locked, because="handed_over", now=now)
    note(locked.organization, by, "change.started", locked.key)
    change.refresh_from_db()


@transaction.atomic
def cancel_change(change: Change, *, by: User, now: datetime, reason: str = "") -> None:
    """End a Change and every Task that is not done. Runs notice it at their next beat; composing loses its fence."""
    locked = locked_change(change.pk)
    move_change(
        locked, ChangeState.CANCELLED, because="cancelled", now=now, also={"work_key": "", "not_before": None}
    )
    for task in locked.tasks.filter(state__in=CANCELLED_TASKS).order_by("position"):
        move_task(task, TaskState.CANCELLED, because="change_cancelled", now=now)
    withdraw_pauses(locked, now=now)
    note(locked.organization, by, "change.cancelled", locked.key, reason=reason)
    change.refresh_from_db()


@transaction.atomic
def pause_change(change: Change, *, by: User, now: datetime) -> None:
    """Start nothing new for this Change; what runs goes on. Pausing twice changes nothing."""
    locked = locked_change(change.pk)
    if locked.state in ENDED_CHANGES:
        raise IllegalMove(locked, "paused")
    if locked.paused_at is None:
        Change.objects.filter(pk=locked.pk).update(paused_at=now)
        record("change.paused", change=locked, now=now)
        note(locked.organization, by, "change.paused", locked.key)
    change.refresh_from_db()


@transaction.atomic
def resume_change(change: Change, *, by: User, now: datetime) -> None:
    """Let a paused Change go on. Resuming what is not paused changes nothing."""
    locked = locked_change(change.pk)
    if locked.paused_at is not None:
        Change.objects.filter(pk=locked.pk).update(paused_at=None)
        record("change.resumed", change=locked, now=now)
        note(locked.organization, by, "change.resumed", locked.key)
        # Whoever is at work keeps it: a paid answer that is on its way must not be asked for again.
        if locked.not_before is not None and not locked.work_key:
            make_due(locked, now=now)
        for task in locked.tasks.filter(state=TaskState.READY):
            wake_task(task.pk)
    change.refresh_from_db()


@transaction.atomic
def retry_change(change: Change, *, by: User, reason: str = "", key: str, now: datetime) -> None:
    """Try a failed Change again: its plan, its failed Tasks, or its composition, whichever failed.

    Raises NotStopped for a Change that did not fail.
    """
    locked = locked_change(change.pk)
    if locked.state != ChangeState.FAILED:
        raise NotStopped(f"{locked.key} has not failed", "Only a failed change is tried again.")
    tasks = list(locked.tasks.all())
    failed = [task for task in tasks if task.state == TaskState.FAILED]
    if not tasks:
        move_change(locked, ChangeState.PLANNING, because="tried_again", now=now, also={"plan_problem": ""})
        make_due(locked, now=now)
    elif failed:
        move_change(locked, ChangeState.RUNNING, because="tried_again", now=now)
        for task in failed:
            reopen_task(task, by=by, reason=reason, key=key, now=now)
    else:
        move_change(locked, ChangeState.COMPOSING, because="tried_again", now=now)
        make_due(locked, now=now)
    note(locked.organization, by, "change.retried", locked.key, reason=reason)
    change.refresh_from_db()


def _start_planning(change: Change, *, because: str, now: datetime) -> None:
    move_change(change, ChangeState.PLANNING, because=because, now=now)
    make_due(change, now=now)


def _can_take_changes(project: Project) -> None:
    if project.archived_at is not None:
        raise InvalidInput("project", "is archived", "Bring the project back first.", code="project_archived")
    if not Trunk.objects.filter(project=project).exists():
        raise InvalidInput(
            "project",
            "has no repository yet",
            "An admin brings it in on the project's page, or over REST.",
            code="no_repository",
        )


def _next_number(project: Project) -> int:
    """The update locks the organization's row, so two submissions never read the same number."""
    ours = Organization.objects.filter(pk=project.organization_id)
    ours.update(last_change_number=F("last_change_number") + 1)
    number: int = ours.values_list("last_change_number", flat=True).get()
    return number
