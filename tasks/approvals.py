"""A person decides about one command, or says what became of one (rows 228, 229 and 232). Neither runs anything."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from agents import continuation
from agents.models import Approval, ApprovalState
from tasks.dependents import settle_dependents
from tasks.events import record, write_receipt
from tasks.models import Change, Task, TaskRun
from tasks.states import ENDED_CHANGES, TaskState
from tasks.stops import APPROVAL_NEEDED, EFFECT_UNCERTAIN
from tasks.transitions import locked_change, move_task
from tasks.windows import REASON_CHARACTERS_MAX
from tenants import audit, text
from tenants.access import require_role, role_of
from tenants.errors import NotVisible
from tenants.models import Role, User

# A command is an act in the project's name: whoever may raise its budgets may say yes to it.
ROLE = Role.ADMIN
REASON_IN_A_NOTE_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """An approval with the rows that it is about."""

    approval: Approval
    run: TaskRun

    @property
    def task(self) -> Task:
        task: Task = self.run.task
        return task

    @property
    def change(self) -> Change:
        change: Change = self.run.task.change
        return change

    @property
    def command(self) -> str:
        return shlex.join(self.approval.argv)

    @property
    def is_pending(self) -> bool:
        return bool(self.approval.state == ApprovalState.PENDING)

    @property
    def is_uncertain(self) -> bool:
        """The command began, and nobody has said yet what became of it."""
        stop = self.task.stop_detail if self.task.stop_limit == EFFECT_UNCERTAIN else {}
        return bool(stop.get("approval") == str(self.approval.pk))


def approvals_of(change: Change) -> QuerySet[Approval]:
    rows: QuerySet[Approval] = Approval.objects.filter(continuation__change_id=change.pk)
    return rows.select_related("continuation", "decided_by", "reconciliation")


def approval_for(user: User, approval_id: UUID) -> Asked:
    """What a person may see of it; raises `NotVisible`."""
    rows = Approval.objects.visible_to(user).select_related("continuation", "decided_by", "reconciliation")
    approval = rows.filter(pk=approval_id).first()
    run = _run_of(approval) if approval is not None else None
    if approval is None or run is None:
        raise NotVisible("approval")
    return Asked(approval, run)


def may_decide(user: User | None, organization_id: UUID) -> bool:
    """Asked again when an attempt goes on: whoever said yes may have lost their role since (row 230)."""
    role = None if user is None else role_of(user, organization_id)
    return role is not None and role >= ROLE


@transaction.atomic
def decide(
    asked: Asked, *, approves: bool, bound: Mapping[str, Any], by: User, reason: str, now: datetime
) -> bool:
    """Store yes or no; the Task is due, and the worker that takes it goes on. False: decided just so before.

    `bound` is what the person saw. Raises RoleTooLow below ADMIN, InvalidInput for a no without a reason, and
    `Mismatch` for everything that does not fit: nothing is changed then.
    """
    require_role(by, asked.approval.organization_id, ROLE)
    reason = text.free_text("reason", reason, characters_max=REASON_CHARACTERS_MAX, required=not approves)
    change = locked_change(asked.change.pk)
    if not continuation.decide(asked.approval, approves=approves, bound=bound, by=by, reason=reason, now=now):
        return False
    word = "approved" if approves else "declined"
    task: Task = Task.objects.select_related("change").get(pk=asked.task.pk)
    detail = {"approval": str(asked.approval.pk), "argv": asked.approval.argv, "by": str(by.pk)}
    write_receipt(
        "approval", word, change=change, task=task, run=asked.run, reasons=[word], detail=detail, now=now
    )
    told = {"approval": str(asked.approval.pk), "by": str(by.pk)}
    record(f"approval.{word}", change=change, task=task, run=asked.run, data=told, now=now)
    audit.note(
        change.organization,
        by,
        f"approval.{word}",
        f"{change.key}/{task.key}",
        after={"argv": asked.approval.argv, "approval": str(asked.approval.pk)},
        reason=reason,
    )
    _lift(task, change, APPROVAL_NEEDED, because=word, now=now)
    return True


@transaction.atomic
def reconcile(asked: Asked, *, took_effect: bool, by: User, reason: str, now: datetime) -> bool:
    """Store what became of a command whose worker died; the next attempt is told. False: said just so before.

    Raises RoleTooLow below ADMIN, InvalidInput without a reason, and `Mismatch` where nothing is in doubt.
    """
    require_role(by, asked.approval.organization_id, ROLE)
    reason = text.free_text("reason", reason, characters_max=REASON_CHARACTERS_MAX, required=True)
    change = locked_change(asked.change.pk)
    if not continuation.reconcile(asked.approval, took_effect=took_effect, by=by, reason=reason, now=now):
        return False
    task: Task = Task.objects.select_related("change").get(pk=asked.task.pk)
    word = "took_effect" if took_effect else "no_effect"
    said = "it took effect" if took_effect else "it had no effect"
    note = (
        f"The approved command `{asked.command}` ran in an earlier attempt, whose worker died. A person looked: "
        f"{said}. {reason[:REASON_IN_A_NOTE_CHARACTERS_MAX]}"
    )
    Task.objects.filter(pk=task.pk).update(notes=[*task.notes, note])
    detail = {"approval": str(asked.approval.pk), "argv": asked.approval.argv, "by": str(by.pk)}
    write_receipt(
        "reconciliation",
        word,
        change=change,
        task=task,
        run=asked.run,
        reasons=[word],
        detail=detail,
        now=now,
    )
    told = {"approval": str(asked.approval.pk), "by": str(by.pk), "was": word}
    record("approval.reconciled", change=change, task=task, run=asked.run, data=told, now=now)
    audit.note(
        change.organization,
        by,
        "approval.reconciled",
        f"{change.key}/{task.key}",
        after={"argv": asked.approval.argv, "took_effect": took_effect},
        reason=reason,
    )
    _lift(task, change, EFFECT_UNCERTAIN, because=word, now=now)
    return True


def _lift(task: Task, change: Change, limit: str, *, because: str, now: datetime) -> None:
    """The stop is over where it still stands; a worker takes the Task when its Change lets it."""
    if task.state == TaskState.BLOCKED and task.stop_limit == limit and change.state not in ENDED_CHANGES:
        move_task(task, TaskState.PENDING, because=because, now=now)
        settle_dependents(change, now=now)


def _run_of(approval: Approval) -> TaskRun | None:
    runs = TaskRun.objects.select_related("task__change__project", "task__change__organization")
    found: TaskRun | None = runs.filter(pk=approval.continuation.run_id).first()
    return found
