"""A ModelTask as detached metadata: no prompt, header, key or raw error, and no authority (row 160)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from budgets.models import Invocation, ModelTask
from budgets.money import ZERO, Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationView:
    id: UUID
    key: str
    logical: str
    parent: str
    purpose: str
    phase: str
    connector: str
    model: str
    state: str
    http_status: int | None
    output_validation: str
    usage: dict[str, Any] | None
    known_cost: Usd | None
    charged_tokens: int
    charged_cost: Usd | None
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Known subtotals beside the counts of what is unknown. Cache and reasoning are parts, never added twice."""

    calls: int
    charged_tokens: int
    charged_cost: Usd
    total_tokens: int
    known_cost: Usd
    unknown_usage_invocations: int  # logical ones, without usage from any attempt
    unknown_cost_invocations: int
    unknown_charge_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    task_id: UUID
    invocations: tuple[InvocationView, ...]
    totals: Totals


def snapshot(task_id: UUID) -> TaskView:
    """How the allowance stands, and every attempt under it."""
    task = ModelTask.objects.get(pk=task_id)
    rows = list(task.invocations.all())
    return TaskView(
        task_id=task_id, invocations=tuple(_view(row) for row in rows), totals=_totals(task, rows)
    )


def _totals(task: ModelTask, rows: list[Invocation]) -> Totals:
    counted = [row for row in rows if row.state != "refunded"]
    logical = {row.logical for row in counted}
    return Totals(
        calls=task.calls,
        charged_tokens=task.charged_tokens,
        charged_cost=task.charged_cost,
        total_tokens=sum(row.charged_tokens for row in counted if row.usage is not None),
        known_cost=sum((row.known_cost for row in counted if row.known_cost is not None), ZERO),
        unknown_usage_invocations=len(logical - {row.logical for row in counted if row.usage is not None}),
        unknown_cost_invocations=len(
            logical - {row.logical for row in counted if row.known_cost is not None}
        ),
        unknown_charge_attempts=sum(row.state == "unknown" for row in rows),
    )


def _view(row: Invocation) -> InvocationView:
    return InvocationView(
        id=row.pk,
        key=row.key,
        logical=row.logical,
        parent=row.parent,
        purpose=row.purpose,
        phase=row.phase,
        connector=row.connector,
        model=row.model,
        state=row.state,
        http_status=row.http_status,
        output_validation=row.output_validation,
        usage=row.usage,
        known_cost=row.known_cost,
        charged_tokens=row.charged_tokens,
        charged_cost=row.charged_cost,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
