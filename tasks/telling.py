"""What endpoints are told of an event: the event and its Change in the shapes of REST, and no other words.

No goal, no packet, no output of a model and no note of an agent goes along: who wants more asks REST for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from budgets.keys import MeterKind
from budgets.models import Meter, Reservation, ReservationState
from budgets.money import ZERO, exact
from tasks.models import Change, Event, Task
from tasks.states import TaskState
from webhooks.deliveries import listeners, write_deliveries
from webhooks.kinds import KINDS

# Of a stop: which limit, since when, every meter that refused with its figures, and who may lift it.
STOP_FACTS = ("at", "limit", "reason", "run", "refusals", "ways_out", "work")


def tell(event: Event) -> None:
    """Write the deliveries of an event that was just recorded, in its transaction. One query when nobody hears."""
    if event.kind not in KINDS:
        return
    endpoints = listeners(event.organization_id, event.kind)
    if not endpoints:
        return
    if event.pk is None:  # a keyed event, told again perhaps: the row that is there counts
        event = Event.objects.get(key=event.key)
    data = {
        "event": _event(event),
        "change": None if event.change_id is None else _change(event.change_id),
        "task": None if event.task_id is None else _task(event.task_id),
    }
    write_deliveries(
        endpoints, message_id=f"evt_{event.pk}", kind=event.kind, created=event.at, data=data, now=event.at
    )


def _event(event: Event) -> dict[str, Any]:
    """As `EventOutput` shows it."""
    return {
        "id": event.pk,
        "kind": event.kind,
        "change": _id(event.change_id),
        "task": _id(event.task_id),
        "run": _id(event.run_id),
        "data": event.data,
        "at": _time(event.at),
    }


def _change(change_id: Any) -> dict[str, Any]:
    """As `ChangeOutput` shows it, with the stop."""
    change: Any = (
        Change.objects.select_related("author")
        .annotate(
            tasks_count=Count("tasks", distinct=True),
            tasks_done=Count("tasks", filter=Q(tasks__state=TaskState.DONE), distinct=True),
            criteria_count=Count("criteria", distinct=True),
        )
        .get(pk=change_id)
    )
    return {
        "id": str(change.pk),
        "key": change.key,
        "project": str(change.project_id),
        "organization": str(change.organization_id),
        "author": change.author.email,
        "title": change.title,
        "state": change.state,
        "paused_at": _time(change.paused_at),
        "tasks_count": change.tasks_count,
        "tasks_done": change.tasks_done,
        "criteria_count": change.criteria_count,
        "money": _money(change),
        "stop_limit": change.stop_limit,
        "created_at": _time(change.created_at),
        "updated_at": _time(change.updated_at),
        "ended_at": _time(change.ended_at),
        "stop": _stop(change.stop_detail) if change.stop_limit else None,
    }


def _money(change: Change) -> dict[str, Any]:
    """As `MoneyOutput` shows it: unknown charges are in `spent` at their worst case, and counted apart."""
    meter = Meter.objects.filter(kind=MeterKind.CHANGE, subject=str(change.pk)).first()
    limit, spent, held = (meter.limit_usd, meter.spent_usd, meter.held_usd) if meter else (None, ZERO, ZERO)
    left = None if limit is None else max(ZERO, limit - spent - held)
    unknown = Reservation.objects.filter(change_id=change.pk, state=ReservationState.UNKNOWN)
    return {
        "limit": None if limit is None else exact(limit),
        "spent": exact(spent),
        "held": exact(held),
        "left": None if left is None else exact(left),
        "unknown_calls": unknown.count(),
    }


def _stop(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Without the agent's own words about it."""
    return {name: detail[name] for name in STOP_FACTS if name in detail}


def _task(task_id: Any) -> dict[str, Any]:
    """As `TaskBriefOutput` shows it, with its state and what stopped it."""
    task: Task = Task.objects.get(pk=task_id)
    return {
        "id": str(task.pk),
        "key": task.key,
        "title": task.title,
        "state": task.state,
        "stop_limit": task.stop_limit,
        "stop": _stop(task.stop_detail) if task.stop_limit else None,
    }


def _id(value: Any) -> str | None:
    return None if value is None else str(value)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
