"""Raising a limit: what it would reopen, and what it reopens (rows 196, 199)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from budgets.decisions import Unit, unit_of
from budgets.keys import MeterKey, MeterKind
from budgets.limits import AlreadyDone, Limit, Unchanged, is_raise, set_limit
from budgets.meters import meter_key, read_meters
from budgets.money import Usd
from routing.words import MAX_ATTEMPTS_PER_TIER
from tasks.dependents import BlockedBy, settle_dependents, standings_of, verdicts
from tasks.dispatch import wake_waiting_for_money
from tasks.fence import resume_work
from tasks.models import Change, Task
from tasks.states import ENDED_CHANGES, ChangeState, TaskState
from tasks.stops import (
    BUDGET_KINDS,
    RAISED_BY,
)
from tasks.transitions import locked_change
from tasks.windows import KEY_CHARACTERS_MAX, check_role, checked_text, reopen
from tenants.errors import InvalidInput
from tenants.models import Role, User

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
    check_role(by, change.organization_id, Role.ADMIN)
    reason = _checked(change, kind, reason, key)
    with transaction.atomic():
        for change_id in _changes_to_lock(change, kind):
            locked_change(change_id)
        known = Task.objects.of_organization(change.organization_id).filter(
            reopenings__key=_reopening_key(kind, key)
        )
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
            return Raised(reopened=tuple(known.select_related("change")), replayed=True)
        if isinstance(done, Unchanged) or not is_raise(_limit(kind, done.before), _limit(kind, done.after)):
            raise _no_raise(kind, done.before)  # the transaction takes back what was written
        return _lift(change, kind, by=by, reason=reason, key=_reopening_key(kind, key), now=now)


def _lift(change: Change, kind: MeterKind, *, by: User, reason: str, key: str, now: datetime) -> Raised:
    stopped = list(_stopped_tasks(change, kind))
    reopened = [task for task in stopped if reopen(task, by=by, reason=reason, key=key, now=now)]
    for touched in {task.change_id for task in reopened}:
        settle_dependents(locked_change(touched), now=now)
    resumed = [one for one in _stopped_changes(change, kind) if resume_work(one, because="raised", now=now)]
    wake_waiting_for_money(change, now=now)
    for task in reopened:
        task.refresh_from_db()
    return Raised(reopened=tuple(reopened), changes_resumed=tuple(resumed))


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


def _checked(change: Change, kind: MeterKind, reason: str, key: str) -> str:
    if kind not in RAISABLE:
        names = ", ".join(RAISABLE)
        raise InvalidInput(
            "kind", f"{kind} cannot be raised here", f"Name one of {names}.", code="not_raisable"
        )
    reason = checked_text(reason, key)
    if change.project.raise_needs_reason and not reason:
        raise InvalidInput("reason", "this project wants a reason", "Say why.", code="reason_needed")
    return reason


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
