"""The two append-only tables: what happened, and why it was decided so. Endpoints are told in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from agents.spec import Noted
from tasks.models import Change, DecisionReceipt, Event, Task, TaskRun
from tasks.telling import tell


def record(
    kind: str,
    *,
    change: Change,
    task: Task | None = None,
    run: TaskRun | None = None,
    data: Mapping[str, Any] | None = None,
    key: str | None = None,
    now: datetime,
) -> None:
    """Append one Event. With a `key` the fact is recorded once, however often it is told (row 236)."""
    event = Event(
        organization_id=change.organization_id,
        change=change,
        task=task,
        run=run,
        kind=kind,
        data=dict(data or {}),
        key=key,
        at=now,
    )
    # A second telling meets the unique key and is dropped without spoiling the transaction around it.
    Event.objects.bulk_create([event], ignore_conflicts=key is not None)
    tell(event)


def record_for_organization(
    kind: str, *, organization_id: UUID, data: Mapping[str, Any], key: str, now: datetime
) -> None:
    """Append one Event that belongs to no single Change, such as a month's budget that runs low. Once per `key`."""
    event = Event(organization_id=organization_id, kind=kind, data=dict(data), key=key, at=now)
    Event.objects.bulk_create([event], ignore_conflicts=True)
    tell(event)


def write_receipt(
    kind: str,
    decision: str,
    *,
    change: Change,
    task: Task | None = None,
    run: TaskRun | None = None,
    reasons: Sequence[str] = (),
    detail: Mapping[str, Any] | None = None,
    now: datetime,
) -> DecisionReceipt:
    """Append one receipt: the verdict in a fixed word, its reasons in fixed words, figures in `detail`."""
    receipt: DecisionReceipt = DecisionReceipt.objects.create(
        change=change,
        task=task,
        run=run,
        kind=kind,
        decision=decision,
        reasons=list(reasons),
        detail=dict(detail or {}),
        at=now,
    )
    return receipt


def tell_noted(
    noted: Noted, *, change: Change, task: Task | None = None, run: TaskRun | None = None, now: datetime
) -> None:
    """What the engine noted, as an event; that another account stood in also gets a receipt: it decides who pays."""
    record(noted.kind, change=change, task=task, run=run, data=noted.data, key=noted.key, now=now)
    if noted.kind == "model.fallback":
        write_receipt(
            "fallback",
            "stands_in",
            change=change,
            task=task,
            run=run,
            reasons=[str(noted.data["because"])],
            detail=noted.data,
            now=now,
        )
