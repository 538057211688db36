"""Limits: set one with its audit row, and let a raise that expires return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from budgets.decisions import Unit, period_of, unit_of
from budgets.errors import KeyReused
from budgets.keys import MeterKey, MeterKind
from budgets.limit_input import (
    Limit,
    check_expiry,
    check_subject,
    check_words,
    checked_limit,
    is_raise,
    plain,
    project_wants_reason,
    read_limit,
)
from budgets.meters import ensure_meters, meter_key, read_meters
from budgets.models import LimitChange, LimitRule, Meter
from budgets.money import Usd
from budgets.wake import AHEAD_SECONDS_MAX, is_soon, wake_at
from tenants.apart import apart
from tenants.audit import note
from tenants.models import Organization, User

__all__ = [
    "AlreadyDone",
    "Limit",
    "Unchanged",
    "is_raise",
    "limit_of",
    "read_limit",
    "return_expired",
    "set_clocks",
    "set_limit",
]

RETURNED_PER_SWEEP_MAX = 200
ENDS_PER_SWEEP_MAX = 200
_COLUMN = {Unit.USD: "limit_usd", Unit.TOKENS: "limit_tokens", Unit.CALLS: "limit_calls"}


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """This key has set this limit before: nothing was done again."""

    change: LimitChange


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The limit has this value already: nothing was written. Plain numbers, as on a `LimitChange`."""

    before: int | None
    after: int | None


def set_limit(
    *,
    organization_id: UUID | None,
    kind: MeterKind,
    subject: str,
    to: Limit,
    by: User | None,
    reason: str,
    key: str,
    now: datetime,
    unit: Unit | None = None,
    expires_at: datetime | None = None,
    reason_needed: bool = False,
) -> LimitChange | AlreadyDone | Unchanged:
    """Set what a subject may use: its open period at once, and every later one. None is unlimited, 0 is nothing.

    Idempotent by `key` in the organization; raises `KeyReused` for a key with another amount or expiry, `InvalidInput`
    for a bad value, `NotVisible` for a project or user of another organization. With `expires_at` the limit
    returns by itself. Lowering it below what is spent is allowed, and stops the next call. May run inside the
    caller's transaction, which then should be short: the meter is locked. The door has checked who may.
    """
    unit = unit or unit_of(kind)
    after = checked_limit(kind, unit, to)
    check_words(
        reason, key, reason_needed=reason_needed or project_wants_reason(kind, organization_id, subject)
    )
    check_expiry(expires_at, now)
    check_subject(kind, organization_id, subject)
    meter = meter_key(kind, organization_id, subject, now=now)
    with _one_use_of(key), transaction.atomic():
        rule = _locked_rule(meter)
        # Under the lock: of two at once with one key, the second finds what the first has written.
        earlier = _change_of(organization_id, key)
        if earlier is not None:
            return _repeated(earlier, meter, unit=unit, after=after, expires_at=expires_at)
        before = plain(getattr(rule, _COLUMN[unit]))
        if before == after and not _would_outlast(rule, unit, expires_at, now):
            return Unchanged(before, after)
        return _write(
            rule,
            unit,
            before=before,
            after=after,
            by=by,
            reason=reason.strip(),
            key=key,
            now=now,
            expires_at=expires_at,
        )


def limit_of(
    *, organization_id: UUID | None, kind: MeterKind, subject: str, now: datetime, unit: Unit | None = None
) -> Limit:
    """The limit in force: of the open period when it has begun, else the one it would start with."""
    reading = read_meters([meter_key(kind, organization_id, subject, now=now)])[0]
    limit: Limit = getattr(reading, _COLUMN[unit or unit_of(kind)])
    return limit


def return_expired(now: datetime) -> int:
    """Let raises whose time is over return to what the history says; how many were closed.

    The newest change that lasts, or has not expired, is the one in force. Every expired change gets exactly
    one closing row, also when a later change stands.
    """
    due = LimitChange.objects.filter(expires_at__lte=now, returned_by__isnull=True).order_by(
        "expires_at", "id"
    )
    returned = 0
    for change in due[:RETURNED_PER_SWEEP_MAX]:
        with apart("return_limit", change=str(change.pk)):
            returned += _return_one(change, now)
    return returned


def set_clocks(now: datetime) -> int:
    """Have each limit for a time that ends soon returned at its very end, not by the sweep after it; how many ends.

    Asked by each sweep, so that no message waits in a broker for days.
    """
    soon = LimitChange.objects.filter(
        expires_at__gt=now,
        expires_at__lte=now + timedelta(seconds=AHEAD_SECONDS_MAX),
        returned_by__isnull=True,
    )
    ends = list(
        soon.order_by("expires_at").values_list("expires_at", flat=True).distinct()[:ENDS_PER_SWEEP_MAX]
    )
    for ends_at in ends:
        wake_at(ends_at)
    return len(ends)


def _return_one(change: LimitChange, now: datetime) -> bool:
    meter = meter_key(MeterKind(change.kind), change.organization_id, change.subject, now=now)
    unit = Unit(change.unit)
    with transaction.atomic():
        rule = _locked_rule(meter)
        if LimitChange.objects.filter(returns=change).exists():
            return False  # another sweeper was first
        before = plain(getattr(rule, _COLUMN[unit]))
        after = _in_force(change, now, current=before)
        reason = (
            "the time of this limit is over" if before != after else "its time is over; a later limit stands"
        )
        _write(
            rule,
            unit,
            before=before,
            after=after,
            by=None,
            reason=reason,
            # Nobody can have used it: keys are people's to choose. `returns` makes it happen once.
            key=f"return:{uuid4()}",
            now=now,
            returns=change,
        )
    return True


def _in_force(change: LimitChange, now: datetime, *, current: int | None) -> int | None:
    """The limit after an expiry: the newest change that lasts or still runs, else what was before them all."""
    history = LimitChange.objects.filter(
        **_of(change.organization_id),
        kind=change.kind,
        subject=change.subject,
        unit=change.unit,
        returns__isnull=True,
    ).order_by("at", "id")
    running = _running(history, now)
    if running is not None:
        return running.after
    first: LimitChange | None = history.first()
    return current if first is None else first.before


@contextmanager
def _one_use_of(key: str) -> Iterator[None]:
    """Two at once with one key and different limits: the index lets one through, and the other is told."""
    try:
        yield
    except IntegrityError as error:
        if "limit_change_once_per_key" not in str(error) and "budgets_limitchange" not in str(error):
            raise
        raise KeyReused(key) from error


def _running(history: QuerySet[LimitChange], now: datetime) -> LimitChange | None:
    found: LimitChange | None = (
        history.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now)).order_by("at", "id").last()
    )
    return found


def _would_outlast(rule: LimitRule, unit: Unit, expires_at: datetime | None, now: datetime) -> bool:
    """Whether setting the very limit in force says something new: that it stays longer than its raise would."""
    history = LimitChange.objects.filter(
        **_of(rule.organization_id), kind=rule.kind, subject=rule.subject, unit=unit, returns__isnull=True
    )
    running = _running(history, now)
    ends = None if running is None else running.expires_at
    return ends is not None and (expires_at is None or expires_at > ends)


def _write(
    rule: LimitRule,
    unit: Unit,
    *,
    before: int | None,
    after: int | None,
    by: User | None,
    reason: str,
    key: str,
    now: datetime,
    expires_at: datetime | None = None,
    returns: LimitChange | None = None,
) -> LimitChange:
    """The rule, the open meters and the audit rows, together. The rule is locked; then meters by id."""
    at = _after_the_last(rule, unit, now)
    check_expiry(expires_at, at)
    limit = _typed(unit, after)
    setattr(rule, _COLUMN[unit], limit)
    rule.save(update_fields=[_COLUMN[unit]])
    open_meters = Meter.objects.filter(
        **_of(rule.organization_id),
        kind=rule.kind,
        subject=rule.subject,
        period__gte=period_of(MeterKind(rule.kind), now),
    )
    ids = list(open_meters.order_by("pk").select_for_update().values_list("pk", flat=True))
    Meter.objects.filter(pk__in=ids).update(**{_COLUMN[unit]: limit})
    change: LimitChange = LimitChange.objects.create(
        key=key,
        organization_id=rule.organization_id,
        kind=rule.kind,
        subject=rule.subject,
        unit=unit,
        before=before,
        after=after,
        by=by,
        reason=reason,
        expires_at=expires_at,
        returns=returns,
        at=at,
    )
    if rule.organization is not None:
        _note(change, rule.organization)
    if expires_at is not None and is_soon(expires_at, now=now):
        wake_at(expires_at)
    return change


def _after_the_last(rule: LimitRule, unit: Unit, now: datetime) -> datetime:
    """When this change happened, in the order in which the lock let them through.

    `now` was read before the wait, perhaps by the clock of another machine.
    """
    history = LimitChange.objects.filter(
        **_of(rule.organization_id), kind=rule.kind, subject=rule.subject, unit=unit
    )
    last: LimitChange | None = history.order_by("at", "id").last()
    return now if last is None or last.at < now else last.at + timedelta(microseconds=1)


def _note(change: LimitChange, organization: Organization) -> None:
    shown = {"unit": str(change.unit), "expires_at": change.expires_at and change.expires_at.isoformat()}
    note(
        organization,
        change.by,
        "limit.returned" if change.returns_id else "limit.set",
        f"{change.kind} {change.subject}",
        before={"limit": change.before, "unit": str(change.unit)},
        after={"limit": change.after, **shown},
        reason=change.reason,
    )


def _locked_rule(meter: MeterKey) -> LimitRule:
    """The rule, locked, with what is in force so far; the open period's row exists before it changes."""
    ensure_meters([meter])
    found: LimitRule | None = LimitRule.objects.select_for_update().filter(name=meter.rule_name).first()
    if found is not None:
        return found
    start = read_meters([meter])[0]
    LimitRule.objects.bulk_create(
        [
            LimitRule(
                name=meter.rule_name,
                organization_id=meter.organization_id,
                kind=meter.kind,
                subject=meter.subject,
                limit_usd=start.limit_usd,
                limit_tokens=start.limit_tokens,
                limit_calls=start.limit_calls,
            )
        ],
        ignore_conflicts=True,
    )
    rule: LimitRule = LimitRule.objects.select_for_update().get(name=meter.rule_name)
    return rule


def _of(organization_id: UUID | None) -> dict[str, Any]:
    """A lookup that also finds the platform's own rows."""
    return {"organization_id": organization_id}


def _change_of(organization_id: UUID | None, key: str) -> LimitChange | None:
    found: LimitChange | None = LimitChange.objects.filter(**_of(organization_id), key=key).first()
    return found


def _repeated(
    earlier: LimitChange, meter: MeterKey, *, unit: Unit, after: int | None, expires_at: datetime | None
) -> AlreadyDone:
    was = (earlier.kind, earlier.subject, earlier.unit, earlier.after, earlier.expires_at)
    if was != (meter.kind, meter.subject, unit, after, expires_at):
        raise KeyReused(earlier.key)
    return AlreadyDone(earlier)


def _typed(unit: Unit, value: int | None) -> Limit:
    return Usd(value) if unit is Unit.USD and value is not None else value
