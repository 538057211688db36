"""Who pays for a Change, what it has spent, and the stop when nobody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, Sum

from agents.spec import Payers
from budgets.decisions import task_share
from budgets.keys import MeterKey, MeterKind
from budgets.meters import meter_key, payer_meters, read_meters
from budgets.models import Reservation, ReservationState
from budgets.money import ZERO, Usd
from routing.words import EndReason, Tier
from tasks.dependents import settle_dependents
from tasks.events import record, write_receipt
from tasks.models import Change, Task, TaskRun
from tasks.states import OPEN_TASKS, ChangeState, TaskState
from tasks.stops import DECIDED_ON, WAITS_FOR_A_WORD, stop_detail
from tasks.transitions import locked_change, move_change, move_task

AGENT = "agent"
COMPACTION = "compactor"
CONFLICT_REVIEW = "conflict_review"
RETRIEVAL = "retrieval"

# Unknown charges count at their worst case, as on the meters: unknown is never zero.
CHARGED = (ReservationState.SETTLED, ReservationState.UNKNOWN)


def payers_for(
    change: Change,
    *,
    purpose: str,
    key: str,
    task: Task | None = None,
    run: TaskRun | None = None,
    run_id: UUID | None = None,
    tier: Tier | None = None,
    attempt: int | None = None,
    counts_daily: bool = True,
    also: Sequence[MeterKey] = (),
    now: datetime,
) -> Payers:
    """Everyone who pays for a call of this Change, from rows alone (rows 2, 15, 140, 142).

    `run_id` names the attempt when its row does not exist yet; `also` adds counters such as the classifier's.
    `attempt` is a label for logs and scripts.
    """
    if run is not None:
        run_id, tier, attempt = run.pk, Tier(run.tier), attempt or run.attempt
    meters = payer_meters(
        organization_id=change.organization_id,
        project_id=change.project_id,
        user_id=change.author_id,
        change_id=change.pk,
        connector=change.project.connector,
        counts_daily=counts_daily,
        now=now,
    )
    return Payers(
        organization_id=change.organization_id,
        project_id=change.project_id,
        user_id=change.author_id,
        connector=change.project.connector,
        meters=(*meters, *also),
        purpose=purpose,
        key=key,
        change_id=change.pk,
        task_id=task.pk if task else None,
        run_id=run_id,
        tier=tier.word if tier else "",
        labels=_labels(change, task, tier, attempt),
    )


def budget_of(change: Change) -> Usd | None:
    """The Change's own limit; None: it has none, so there is no Task cap either (row 18)."""
    key = meter_key(MeterKind.CHANGE, change.organization_id, str(change.pk), now=change.created_at)
    (reading,) = read_meters([key])
    return reading.limit_usd


def spent_on(change: Change) -> Usd:
    """What the Change's Task runs and conflict reviews cost, from the ledger (row 17)."""
    paid = Reservation.objects.filter(
        Q(run_id__isnull=False) | Q(purpose=CONFLICT_REVIEW), change_id=change.pk, state__in=CHARGED
    )
    total: Usd | None = paid.aggregate(total=Sum("usd"))["total"]
    return total or ZERO


def cost_of_run(run_id: UUID) -> tuple[Usd, int]:
    """The known cost of one attempt, its compaction included (row 21), and how many calls have no known cost."""
    calls = Reservation.objects.filter(run_id=run_id).exclude(state=ReservationState.REFUNDED)
    totals = calls.aggregate(known=Sum("cost"), unknown=Count("pk", filter=Q(cost=None)))
    return totals["known"] or ZERO, totals["unknown"]


def share_of(task: Task) -> Usd | None:
    """The Task's part of what is left of its Change (row 17). None: no cap."""
    budget = budget_of(task.change)
    if budget is None:
        return None
    open_tasks = Task.objects.filter(change=task.change, state__in=OPEN_TASKS).count()
    return task_share(budget, spent_on(task.change), max(1, open_tasks))


def is_spent(change: Change) -> bool:
    """Row 18: it has spent something, and nothing is left."""
    budget, spent = budget_of(change), spent_on(change)
    return budget is not None and spent > ZERO and spent >= budget


@transaction.atomic
def stop_task(
    task: Task,
    limit: str,
    *,
    reason: str,
    refusals: Sequence[Mapping[str, Any]] = (),
    run: TaskRun | None = None,
    note: str = "",
    more: Mapping[str, Any] | None = None,
    held_by: str | None = None,
    now: datetime,
) -> None:
    """A limit ends the Task for now: it is blocked, its dependents too, and its Change shows the stop (row 186).

    Every meter that refused is kept with its figures of this moment, and what would lift the stop.
    """
    change = locked_change(task.change_id)
    refusals = refusals or _figures_for(limit, change)
    run_id = str(run.pk) if run else ""
    detail = stop_detail(limit, reason=reason, refusals=refusals, now=now, run_id=run_id, note=note)
    detail |= more or {}
    move_task(
        task,
        TaskState.BLOCKED,
        because=limit,
        now=now,
        also={"stop_limit": limit, "stop_detail": detail},
        held_by=held_by,
    )
    write_receipt("stop", limit, change=change, task=task, run=run, reasons=[reason], detail=detail, now=now)
    if limit not in WAITS_FOR_A_WORD and limit not in DECIDED_ON:
        record("spend_limited", change=change, task=task, run=run, data={"limit": limit}, now=now)
    settle_dependents(change, now=now)


@transaction.atomic
def stop_change(
    change: Change,
    limit: str,
    *,
    work: str,
    reason: str = "budget_refused",
    refusals: Sequence[Mapping[str, Any]] = (),
    now: datetime,
) -> None:
    """A limit ends the Change's own work ("planning" or "composing") for now."""
    limit = EndReason.MONTHLY_BUDGET.value if limit == EndReason.SPEND_LIMITED else limit  # row 118
    refusals = refusals or _figures_for(limit, change)
    detail = {**stop_detail(limit, reason=reason, refusals=refusals, now=now), "work": work}
    move_change(
        change,
        ChangeState.BUDGET_BLOCKED,
        because=limit,
        now=now,
        also={"stop_limit": limit, "stop_detail": detail},
    )
    write_receipt("stop", limit, change=change, reasons=[reason], detail=detail, now=now)
    record("spend_limited", change=change, data={"limit": limit, "work": work}, now=now)


def _figures_for(limit: str, change: Change) -> list[dict[str, Any]]:
    """The Change's meter, for a stop that no meter refused: a share or the budget itself was used up."""
    if limit != EndReason.CHANGE_BUDGET:
        return []
    key = meter_key(MeterKind.CHANGE, change.organization_id, str(change.pk), now=change.created_at)
    (reading,) = read_meters([key])
    return [
        {
            "kind": str(key.kind),
            "subject": key.subject,
            "period": key.period,
            "unit": "usd",
            "limit": None if reading.limit_usd is None else reading.limit_usd.micro,
            "spent": reading.spent_usd.micro,
            "held": reading.held_usd.micro,
            "amount": None,
            "ends_at": None,
            "waits": False,
            "stop": limit,
        }
    ]


def _labels(change: Change, task: Task | None, tier: Tier | None, attempt: int | None) -> dict[str, str]:
    labels = {
        "change": change.title,
        "task": task.key if task else "",
        "tier": tier.word if tier else "",
        "attempt": str(attempt) if attempt else "",
    }
    return {name: value for name, value in labels.items() if value}
