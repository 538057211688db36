"""Raising a limit, reopening an attempt window, and stops that end by themselves (rows 196 to 199)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from budgets.decisions import Amount, Unit, unit_of
from budgets.keys import MeterKey, MeterKind
from budgets.limits import AlreadyDone, Limit, Unchanged, is_raise, set_limit
from budgets.meters import meter_key, read_meters, refusals
from budgets.money import Usd
from routing.words import MAX_ATTEMPTS_PER_TIER
from tasks.dependents import BlockedBy, settle_dependents, standings_of, verdicts
from tasks.dispatch import wake_waiting_for_money
from tasks.errors import NotStopped
from tasks.events import record, write_receipt
from tasks.fence import resume_work
from tasks.models import Change, Reopening, Task
from tasks.states import ENDED_CHANGES, ChangeState, TaskState
from tasks.stops import (
    BUDGET_KINDS,
    ENDS_WITH_ITS_PERIOD,
    FRESH_WINDOW,
    RAISED_BY,
    may_reopen_without_raising,
)
from tasks.transitions import locked_change, move_task
from tenants import audit
from tenants.access import require_role
from tenants.errors import InvalidInput
from tenants.models import Role, User

KEY_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 2_000
RESUMED_PER_SWEEP_MAX = 500
RAISABLE = tuple(dict.fromkeys(kind for kinds in RAISED_BY.values() for kind in kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisePreview:
    """What a raise would do, before anybody presses the button. `before` and `to` of None: no limit."""

    kind: MeterKind
    before: Limit
    to: Limit
    spent: Usd | int
    held: Usd | int
    is_raise: bool
    reopens: tuple[Task, ...]
    gives_back: tuple[Task, ...]  # dependents which those stops had blocked
    resumes: tuple[Change, ...]  # Changes whose own work stopped at this limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What a raise did. `replayed`: this key had done it before, and nothing was done now."""

    reopened: tuple[Task, ...]
    changes_resumed: tuple[Change, ...] = ()
    replayed: bool = False


def preview_raise(change: Change, kind: MeterKind, to: Limit, *, now: datetime) -> RaisePreview:
    """Only reads. A page shows "this will reopen CH-42/T3, T4" from it."""
    reading = read_meters([_key_of(change, kind, now=now)])[0]
    in_money = unit_of(kind) is Unit.USD
    before: Limit = reading.limit_usd if in_money else reading.limit_calls
    stopped = list(_stopped_tasks(change, kind))
    return RaisePreview(
        kind=kind,
        before=before,
        to=to,
        spent=reading.spent_usd if in_money else reading.spent_calls,
        held=reading.held_usd if in_money else reading.held_calls,
        is_raise=is_raise(before, to),
        reopens=tuple(stopped),
        gives_back=tuple(_given_back(stopped)),
        resumes=tuple(_stopped_changes(change, kind)),
    )


def raise_budget(
    *,
    change: Change,
    kind: MeterKind,
    to: Limit,
    by: User,
    reason: str,
    key: str,
    expires_at: datetime | None = None,
    now: datetime,
) -> Raised:
    """Raise one of the limits that pay for this Change, and reopen exactly the Tasks that it stopped.

    Row 196: a raise of the change, project or user budget also reopens the Tasks of this Change that
    repeated failures stopped. Once per `key`: the same raise again changes nothing. Raises `RoleTooLow`
    below ADMIN, and `InvalidInput` for what is no raise (row 199).
    """
    _may(by, change.organization_id, Role.ADMIN)
    reason = _checked(change, kind, reason, key)
    with transaction.atomic():
        for change_id in _changes_to_lock(change, kind):
            locked_change(change_id)
        known = tuple(Task.objects.filter(reopenings__key=_reopening_key(kind, key)).select_related("change"))
        done = set_limit(
            organization_id=change.organization_id,
            kind=kind,
            subject=_subject_of(change, kind),
            to=to,
            by=by,
            reason=reason,
            key=key,
            expires_at=expires_at,
            now=now,
        )
        if isinstance(done, AlreadyDone):
            return Raised(reopened=known, replayed=True)
        if isinstance(done, Unchanged) or not is_raise(_limit(kind, done.before), _limit(kind, done.after)):
            raise _no_raise(kind, done.before)  # the transaction takes back what was written
        return _lift(change, kind, by=by, reason=reason, key=_reopening_key(kind, key), now=now)


@transaction.atomic
def reopen_task(task: Task, *, by: User, reason: str, key: str, now: datetime) -> Task:
    """A person opens a fresh attempt window without raising anything: after replan, or after a failure.

    Once per `key`. Raises `NotStopped` when it is a budget that stands in the way, or nothing at all.
    """
    _may(by, task.change.organization_id, Role.MEMBER)
    reason = _checked_text(reason, key)
    change = locked_change(task.change_id)
    fresh: Task = Task.objects.select_related("change").get(pk=task.pk)
    if Reopening.objects.filter(task=fresh, key=key).exists():
        return fresh
    _check_reopenable(fresh, change)
    before = {"state": fresh.state, "limit": fresh.stop_limit, "failure": fresh.failure}
    _reopen(fresh, by=by, reason=reason, key=key, now=now)
    audit.note(
        change.organization, by, "task.reopened", f"{change.key}/{fresh.key}", before=before, reason=reason
    )
    settle_dependents(change, now=now)
    fresh.refresh_from_db()
    return fresh


def resume_stops(now: datetime) -> int:
    """Stops of a period end by themselves when there is room again, without a fresh window (row 197). How many."""
    resumed = 0
    stopped = Task.objects.filter(state=TaskState.BLOCKED, stop_limit__in=ENDS_WITH_ITS_PERIOD)
    for task in stopped.select_related("change__project")[:RESUMED_PER_SWEEP_MAX]:
        if _has_room_again(task.change, task.stop_detail, now=now):
            resumed += _resume(task, now=now)
    changes = Change.objects.filter(
        state=ChangeState.BUDGET_BLOCKED, stop_limit__in=ENDS_WITH_ITS_PERIOD, stop_detail__has_key="work"
    )
    for change in changes.select_related("project")[:RESUMED_PER_SWEEP_MAX]:
        if _has_room_again(change, change.stop_detail, now=now):
            resumed += resume_work(change, because="room_again", now=now)
    return resumed


def _may(by: User, organization_id: UUID, at_least: Role) -> None:
    """An operator acts for any tenant, through the admin; everybody else needs the role there."""
    if not (by.is_active and by.is_superuser):
        require_role(by, organization_id, at_least)


def _lift(change: Change, kind: MeterKind, *, by: User, reason: str, key: str, now: datetime) -> Raised:
    stopped = list(_stopped_tasks(change, kind))
    reopened = [task for task in stopped if _reopen(task, by=by, reason=reason, key=key, now=now)]
    for touched in {task.change_id for task in reopened}:
        settle_dependents(locked_change(touched), now=now)
    resumed = [one for one in _stopped_changes(change, kind) if resume_work(one, because="raised", now=now)]
    wake_waiting_for_money(change, now=now)
    for task in reopened:
        task.refresh_from_db()
    return Raised(reopened=tuple(reopened), changes_resumed=tuple(resumed))


def _reopen(task: Task, *, by: User | None, reason: str, key: str, now: datetime) -> bool:
    """False when this key has reopened it before: a raise reopens a Task at most once."""
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


def _has_room_again(change: Change, detail: dict[str, object], *, now: datetime) -> bool:
    refused = detail.get("refusals")
    if not isinstance(refused, list) or not refused:
        return str(detail.get("at", ""))[:7] < now.isoformat()[:7]  # a provider's own limit: the next month
    for refusal in refused:
        amount = refusal.get("amount") or 0
        unit = Unit(refusal["unit"])
        kind = MeterKind(refusal["kind"])
        owner = None if kind is MeterKind.PLATFORM else change.organization_id
        wanted = Amount(
            usd=Usd(amount if unit is Unit.USD else 0),
            tokens=amount if unit is Unit.TOKENS else 0,
            calls=amount if unit is Unit.CALLS else 1,
        )
        if refusals([meter_key(kind, owner, str(refusal["subject"]), now=now)], wanted, now=now):
            return False
    return True


def _stopped_tasks(change: Change, kind: MeterKind) -> QuerySet[Task]:
    """Exactly the Tasks which that limit stopped; of the Change in view also those that failed too often (row 196)."""
    limits = [limit for limit, kinds in RAISED_BY.items() if kind in kinds and limit != MAX_ATTEMPTS_PER_TIER]
    by_limit = Q(stop_limit__in=limits) & _scope_of(change, kind, "change__")
    replanned = Q(stop_limit=MAX_ATTEMPTS_PER_TIER, change=change) if kind in BUDGET_KINDS else Q(pk=None)
    tasks: QuerySet[Task] = Task.objects.filter(by_limit | replanned, state=TaskState.BLOCKED).exclude(
        change__state__in=ENDED_CHANGES
    )
    return tasks.select_related("change").order_by("change_id", "position")


def _stopped_changes(change: Change, kind: MeterKind) -> QuerySet[Change]:
    limits = [limit for limit, kinds in RAISED_BY.items() if kind in kinds]
    changes: QuerySet[Change] = Change.objects.filter(
        _scope_of(change, kind, ""),
        state=ChangeState.BUDGET_BLOCKED,
        stop_limit__in=limits,
        stop_detail__has_key="work",
    )
    return changes.order_by("pk")


def _scope_of(change: Change, kind: MeterKind, path: str) -> Q:
    if kind is MeterKind.CHANGE:
        return Q(**{f"{path}pk": change.pk})
    if kind is MeterKind.PROJECT:
        return Q(**{f"{path}project_id": change.project_id})
    within = Q(**{f"{path}organization_id": change.organization_id})
    return within & Q(**{f"{path}author_id": change.author_id}) if kind is MeterKind.USER else within


def _changes_to_lock(change: Change, kind: MeterKind) -> list[UUID]:
    """In the order of their ids, so that two raises cannot wait for each other."""
    touched = {change.pk, *_stopped_tasks(change, kind).values_list("change_id", flat=True)}
    return sorted(touched | {one.pk for one in _stopped_changes(change, kind)})


def _given_back(stopped: Sequence[Task]) -> Iterable[Task]:
    lifted = {task.pk for task in stopped}
    for change_id in dict.fromkeys(task.change_id for task in stopped):
        tasks = {task.pk: task for task in Task.objects.filter(change_id=change_id)}
        after = [
            replace(one, stopped=False, state=TaskState.PENDING) if one.id in lifted else one
            for one in standings_of(tasks)
        ]
        for task_id, verdict in verdicts(after).items():
            was_blocked = tasks[task_id].state == TaskState.BLOCKED and task_id not in lifted
            if was_blocked and not isinstance(verdict, BlockedBy):
                yield tasks[task_id]


def _check_reopenable(task: Task, change: Change) -> None:
    if change.state in ENDED_CHANGES:
        raise NotStopped(f"{change.key} has ended", "Submit a new Change")
    if task.state == TaskState.FAILED:
        return
    if task.state != TaskState.BLOCKED or not task.stop_limit:
        raise NotStopped(f"{task.key} did not stop", "Only a stopped or failed Task has a window to reopen")
    if not may_reopen_without_raising(task.stop_limit, task.stop_detail.get("refusals", [])):
        raise NotStopped(f"{task.key} stopped at {task.stop_limit}", "Raise that limit")


def _checked(change: Change, kind: MeterKind, reason: str, key: str) -> str:
    if kind not in RAISABLE:
        names = ", ".join(RAISABLE)
        raise InvalidInput(
            "kind", f"{kind} cannot be raised here", f"Name one of {names}.", code="not_raisable"
        )
    reason = _checked_text(reason, key)
    if change.project.raise_needs_reason and not reason:
        raise InvalidInput("reason", "this project wants a reason", "Say why.", code="reason_needed")
    return reason


def _checked_text(reason: str, key: str) -> str:
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidInput("key", "the key is empty or too long", f"1 to {KEY_CHARACTERS_MAX} characters.")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput("reason", "the reason is too long", f"At most {REASON_CHARACTERS_MAX} characters.")
    return reason.strip()


def _no_raise(kind: MeterKind, before: int | None) -> InvalidInput:
    now_at = "unlimited" if before is None else str(_limit(kind, before))
    return InvalidInput(
        "to", f"this is not more than the limit of now ({now_at})", "Name a higher one.", code="not_a_raise"
    )


def _limit(kind: MeterKind, value: int | None) -> Limit:
    if value is None:
        return None
    return Usd(value) if unit_of(kind) is Unit.USD else value


def _reopening_key(kind: MeterKind, key: str) -> str:
    return f"{kind}:{key}"[:KEY_CHARACTERS_MAX]


def _subject_of(change: Change, kind: MeterKind) -> str:
    subjects = {
        MeterKind.CHANGE: change.pk,
        MeterKind.PROJECT: change.project_id,
        MeterKind.USER: change.author_id,
        MeterKind.ORGANIZATION: change.organization_id,
        MeterKind.DAILY_CALLS: change.organization_id,
    }
    return str(subjects[kind])


def _key_of(change: Change, kind: MeterKind, *, now: datetime) -> MeterKey:
    return meter_key(kind, change.organization_id, _subject_of(change, kind), now=now)
