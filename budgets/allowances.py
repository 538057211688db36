"""Allowances that clients open for a project: ModelTasks with an owner, seen by whoever sees the project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import Q, QuerySet

from budgets.model_tasks import TaskLimits, cancel_task, open_task, report_external
from budgets.models import Invocation, ModelTask
from budgets.money import Usd
from budgets.prices import REPORTED_TOKENS_MAX, why_unusable
from providers.messages import Usage
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Project, User

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

# What each answer about an allowance lists, besides the calls of its questions.
REPORTS_MAX = 500
EXTERNAL = "external"
STATES = ("open", "cancelled", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Usage outside of Remit, as the client counted it. `id` names it: said twice it counts once (row 162).

    `tokens` has the names of `Usage`; `cost` None: by the price list, where that knows the model.
    """

    id: str
    tokens: Mapping[str, Any]
    cost: Usd | None = None
    model: str = ""


def open_allowance(project: Project, limits: TaskLimits, *, by: User, now: datetime) -> ModelTask:
    """Any subset of the limits, at least one (row 148). Raises InvalidInput."""
    if project.archived_at is not None:
        raise InvalidInput("", "the project is archived", "Bring it back first.", code="project_archived")
    if limits.deadline is not None and limits.deadline <= now:
        raise InvalidInput("deadline", "has passed", "Give a time in the future, or none.")
    made = open_task(project.organization_id, limits, now=now, project_id=project.pk, by_id=by.pk)
    if made is None:
        raise InvalidInput(
            "", "an allowance without any limit allows nothing to be counted", "Give at least one limit."
        )
    note(project.organization, by, "allowance.opened", str(made))
    return allowance_for(by, made)


def allowances_of(project: Project, state: str = "", *, now: datetime) -> QuerySet[ModelTask]:
    """Newest first; with a state of `STATES` only those."""
    rows = ModelTask.objects.filter(project=project).select_related("by")
    past = Q(deadline__lte=now)
    match state:
        case "cancelled":
            return rows.filter(cancelled_at__isnull=False)
        case "expired":
            return rows.filter(past, cancelled_at=None)
        case "open":
            return rows.filter(~past | Q(deadline=None), cancelled_at=None)
        case _:
            return rows


def allowance_for(user: User | AnonymousUser, allowance_id: UUID) -> ModelTask:
    """One that this person sees: a client's, not one that the plane keeps for itself. Raises NotVisible."""
    rows = ModelTask.objects.visible_to(user).filter(project__isnull=False)
    found: ModelTask | None = (
        rows.select_related("project__organization", "by").filter(pk=allowance_id).first()
    )
    if found is None:
        raise NotVisible("allowance")
    return found


def state_of(allowance: ModelTask, *, now: datetime) -> str:
    if allowance.cancelled_at is not None:
        return "cancelled"
    return "expired" if allowance.deadline is not None and allowance.deadline <= now else "open"


def cancel_allowance(allowance: ModelTask, *, by: User, now: datetime) -> None:
    """Nothing more is admitted; what is on its way still settles on it. A second time changes nothing."""
    if allowance.cancelled_at is not None:
        return
    cancel_task(allowance.pk, now=now)
    note(allowance.organization, by, "allowance.cancelled", str(allowance.pk))


def report_usage(allowance: ModelTask, report: Report, *, now: datetime) -> None:
    """Raises InvalidInput, or ConflictingReport for a known id with other values."""
    usage = Usage(**report.tokens)
    # An explicit zero is known here (row 162); what cannot be true is nobody's report.
    if usage.input + usage.output and why_unusable(usage):
        raise InvalidInput(
            "usage",
            "contradicts itself or is too large",
            f"Reasoning is a part of output; a report has at most {REPORTED_TOKENS_MAX:,} tokens.",
        )
    others = Invocation.objects.filter(task=allowance, phase=EXTERNAL).exclude(key=f"{EXTERNAL}:{report.id}")
    if others.count() >= REPORTS_MAX:
        raise InvalidInput("", f"this allowance has {REPORTS_MAX} reports already", "Open another one.")
    report_external(
        allowance.pk,
        report_id=report.id,
        usage=usage,
        cost=report.cost,
        purpose=EXTERNAL,
        model=report.model,
        now=now,
    )
