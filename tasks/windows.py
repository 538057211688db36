"""Attempt windows: opened again by a person or a raise; and stops that end by themselves (rows 196 to 198)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from budgets.decisions import Amount, Unit
from budgets.keys import MeterKind
from budgets.meters import meter_key, refusals
from budgets.money import Usd
from tasks.dependents import settle_dependents
from tasks.errors import NotStopped
from tasks.events import record, write_receipt
from tasks.fence import resume_work
from tasks.models import Change, Reopening, Task
from tasks.states import ENDED_CHANGES, ChangeState, TaskState
from tasks.stops import (
    DECIDED_ON,
    ENDS_WITH_ITS_PERIOD,
    ENDS_WITH_ROOM,
    FRESH_WINDOW,
    may_reopen_without_raising,
)
from tasks.transitions import locked_change, move_task
from tenants import audit
from tenants.access import require_role
from tenants.apart import apart
from tenants.errors import InvalidInput
from tenants.models import Role, User

KEY_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 2_000
RESUMED_PER_SWEEP_MAX = 500


@transaction.atomic
def reopen_task(task: Task, *, by: User, reason: str, key: str, now: datetime) -> Task:
    """A person opens a fresh attempt window without raising anything: after replan, or after a failure.

    Once per `key`. Raises `NotStopped` when it is a budget that stands in the way, or nothing at all.
    """
    check_role(by, task.change.organization_id, Role.MEMBER)
    reason = checked_text(reason, key)
    change = locked_change(task.change_id)
    fresh: Task = Task.objects.select_related("change").get(pk=task.pk)
    if Reopening.objects.filter(task=fresh, key=key).exists():
        return fresh
    _check_reopenable(fresh, change)
    before = {"state": fresh.state, "limit": fresh.stop_limit, "failure": fresh.failure}
    reopen(fresh, by=by, reason=reason, key=key, now=now)
    audit.note(
        change.organization, by, "task.reopened", f"{change.key}/{fresh.key}", before=before, reason=reason
    )
    settle_dependents(change, now=now)
    fresh.refresh_from_db()
    return fresh


def resume_stops(now: datetime) -> int:
    """Stops end by themselves when there is room again, without a fresh window (row 197). How many."""
    resumed = 0
    stopped = Task.objects.filter(state=TaskState.BLOCKED, stop_limit__in=ENDS_WITH_ROOM)
    # In any order: those that stay stopped must not hide the others behind the bound of one sweep.
    for task in stopped.select_related("change__project").order_by("?")[:RESUMED_PER_SWEEP_MAX]:
        with apart("resume_task", task=str(task.pk)):
            if _has_room_again(task.change, task.stop_limit, task.stop_detail, now=now):
                resumed += _resume(task, now=now)
    changes = Change.objects.filter(
        state=ChangeState.BUDGET_BLOCKED, stop_limit__in=ENDS_WITH_ROOM, stop_detail__has_key="work"
    )
    for change in changes.select_related("project").order_by("?")[:RESUMED_PER_SWEEP_MAX]:
        with apart("resume_change", change=str(change.pk)):
            if _has_room_again(change, change.stop_limit, change.stop_detail, now=now):
                resumed += resume_work(change, because="room_again", now=now)
    return resumed


def reopen(task: Task, *, by: User | None, reason: str, key: str, now: datetime) -> bool:
    """Lift a stop. False when this key has lifted it before: a raise reopens a Task at most once.

    Call with the Change locked, and settle its dependents afterwards.
    """
    limit = task.stop_limit
    if Reopening.objects.filter(task=task, key=key).exists():
        return False
    Reopening.objects.create(task=task, key=key, by=by, stop_limit=limit, reason=reason, at=now)
    window = {} if limit and limit not in FRESH_WINDOW else {"attempts_reset_at": now}
    move_task(task, TaskState.PENDING, because="reopened", now=now, also=window)
    write_receipt(
        "reset",
        "fresh_window" if window else "resumed",
        change=task.change,
        task=task,
        reasons=[limit or "failed"],
        detail={"by": str(by.pk) if by else "", "key": key},
        now=now,
    )
    return True


def checked_text(reason: str, key: str) -> str:
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidInput("key", "the key is empty or too long", f"1 to {KEY_CHARACTERS_MAX} characters.")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput("reason", "the reason is too long", f"At most {REASON_CHARACTERS_MAX} characters.")
    return reason.strip()


def check_role(by: User, organization_id: UUID, at_least: Role) -> None:
    """An operator acts for any tenant, through the admin; everybody else needs the role there."""
    if not (by.is_active and by.is_superuser):
        require_role(by, organization_id, at_least)


@transaction.atomic
def _resume(task: Task, *, now: datetime) -> bool:
    change = locked_change(task.change_id)
    fresh: Task = Task.objects.select_related("change").get(pk=task.pk)
    if fresh.state != TaskState.BLOCKED or fresh.stop_limit != task.stop_limit:
        return False
    limit = fresh.stop_limit
    move_task(fresh, TaskState.PENDING, because="room_again", now=now)
    write_receipt("reset", "resumed", change=change, task=fresh, reasons=[limit], now=now)
    record("task.resumed", change=change, task=fresh, data={"limit": limit}, now=now)
    settle_dependents(change, now=now)
    return True


def _has_room_again(change: Change, limit: str, detail: Mapping[str, Any], *, now: datetime) -> bool:
    """Whether every meter that refused would now take what it refused. An unknown amount fits no limit."""
    refused = detail.get("refusals") or []
    if not refused:  # a provider's own limit: the next month
        return limit in ENDS_WITH_ITS_PERIOD and str(detail.get("at", ""))[:7] < now.isoformat()[:7]
    return not any(_would_refuse(change, refusal, now=now) for refusal in refused)


def _would_refuse(change: Change, refusal: Mapping[str, Any], *, now: datetime) -> bool:
    kind, unit, amount = MeterKind(refusal["kind"]), Unit(refusal["unit"]), refusal.get("amount")
    usd = None if amount is None else Usd(amount)
    wanted = Amount(
        usd=usd if unit is Unit.USD else Usd(0),
        tokens=amount if unit is Unit.TOKENS and amount else 0,
        calls=amount if unit is Unit.CALLS and amount else 1,
    )
    organization_id = None if kind is MeterKind.PLATFORM else change.organization_id
    return bool(
        refusals([meter_key(kind, organization_id, str(refusal["subject"]), now=now)], wanted, now=now)
    )


def _check_reopenable(task: Task, change: Change) -> None:
    if change.state in ENDED_CHANGES:
        raise NotStopped(f"{change.key} has ended", "Submit a new Change")
    if task.state == TaskState.FAILED:
        return
    if task.state != TaskState.BLOCKED or not task.stop_limit:
        raise NotStopped(f"{task.key} did not stop", "Only a stopped or failed Task has a window to reopen")
    if task.stop_limit in DECIDED_ON:
        raise NotStopped(f"{task.key} waits for a decision about a command", "Decide about it on its page")
    if not may_reopen_without_raising(task.stop_limit, task.stop_detail.get("refusals", [])):
        raise NotStopped(f"{task.key} stopped at {task.stop_limit}", "Raise that limit")
