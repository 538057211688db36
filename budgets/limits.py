"""Limits: read one that somebody typed, set it with its audit row, and let a raise that expires return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from budgets.decisions import CALLS_LIMIT_MAX, TOKENS_MAX, Unit, period_of, unit_of
from budgets.errors import KeyReused
from budgets.keys import PLATFORM_SUBJECT, MeterKey, MeterKind
from budgets.meters import ensure_meters, meter_key, read_meters
from budgets.models import LimitChange, LimitRule, Meter
from budgets.money import AMOUNT_MICRO_MAX, AMOUNT_USD_MAX, NotAnAmount, Usd, parse_usd
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Membership, Organization, Project, User

REASON_CHARACTERS_MAX = 2_000
KEY_CHARACTERS_MAX = 200
EXPIRY_DAYS_MAX = 366
RETURNED_PER_SWEEP_MAX = 200

Limit = Usd | int | None
_MAX_OF = {Unit.USD: AMOUNT_MICRO_MAX, Unit.TOKENS: TOKENS_MAX, Unit.CALLS: CALLS_LIMIT_MAX}
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

    Idempotent by `key` in the organization; raises `KeyReused` for a key with another amount, `InvalidInput`
    for a bad value, `NotVisible` for a project or user of another organization. With `expires_at` the limit
    returns by itself. Lowering it below what is spent is allowed, and stops the next call. May run inside the
    caller's transaction, which then should be short: the meter is locked. The door has checked who may.
    """
    unit = unit or unit_of(kind)
    after = _checked_limit(kind, unit, to)
    _check_words(
        reason, key, reason_needed=reason_needed or _project_wants_reason(kind, organization_id, subject)
    )
    _check_expiry(expires_at, now)
    _check_subject(kind, organization_id, subject)
    meter = meter_key(kind, organization_id, subject, now=now)
    with transaction.atomic():
        earlier = _change_of(organization_id, key)
        if earlier is not None:
            return _repeated(earlier, kind, subject, unit, after)
        rule = _locked_rule(meter)
        before = _plain(getattr(rule, _COLUMN[unit]))
        if before == after:
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


def read_limit(kind: MeterKind, raw: object, *, field: str = "limit", currency: str = "USD") -> Limit:
    """What a person or client sent as a limit: an amount, a whole number of calls, or nothing for unlimited.

    Raises `InvalidInput`: negative, NaN, an exponent, a comma, too large, another currency.
    """
    if currency != "USD":
        raise InvalidInput(
            field, f"{currency!r} is not a known currency", "Give US dollars.", code="unknown_currency"
        )
    if raw is None or raw == "":
        return None
    if unit_of(kind) is Unit.USD:
        try:
            return parse_usd(raw)
        except NotAnAmount as error:
            raise InvalidInput(
                field, str(error), 'Give US dollars such as "12.50".', code="bad_amount"
            ) from None
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= CALLS_LIMIT_MAX):
        problem = "a number of calls is whole and not negative"
        raise InvalidInput(field, problem, f"Give 0 to {CALLS_LIMIT_MAX:,}, such as 1000.", code="bad_amount")
    return int(text)


def is_raise(before: Limit, after: Limit) -> bool:
    """Whether `after` allows more than `before` (row 199)."""
    old, new = _plain(before), _plain(after)
    return old is not None and (new is None or new > old)


def return_expired(now: datetime) -> int:
    """Let raises whose time is over return to what the history says; how many were closed.

    The newest change that lasts, or has not expired, is the one in force. Every expired change gets exactly
    one closing row, also when a later change stands.
    """
    due = LimitChange.objects.filter(expires_at__lte=now, returned_by__isnull=True).order_by(
        "expires_at", "id"
    )
    return sum(_return_one(change, now) for change in due[:RETURNED_PER_SWEEP_MAX])


def _return_one(change: LimitChange, now: datetime) -> bool:
    meter = meter_key(MeterKind(change.kind), change.organization_id, change.subject, now=now)
    unit = Unit(change.unit)
    with transaction.atomic():
        rule = _locked_rule(meter)
        if LimitChange.objects.filter(returns=change).exists():
            return False  # another sweeper was first
        before = _plain(getattr(rule, _COLUMN[unit]))
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
            key=f"return:{change.pk}",
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
    running: LimitChange | None = history.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now)).last()
    if running is not None:
        return running.after
    first: LimitChange | None = history.first()
    return current if first is None else first.before


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
        at=now,
    )
    if rule.organization is not None:
        _note(change, rule.organization)
    return change


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
    earlier: LimitChange, kind: MeterKind, subject: str, unit: Unit, after: int | None
) -> AlreadyDone:
    if (earlier.kind, earlier.subject, earlier.unit, earlier.after) != (kind, subject, unit, after):
        raise KeyReused(earlier.key)
    return AlreadyDone(earlier)


def _checked_limit(kind: MeterKind, unit: Unit, to: Limit) -> int | None:
    if to is None:
        return None
    right_type = type(to) is (Usd if unit is Unit.USD else int)
    value = _plain(to)
    if not right_type or value is None or not 0 <= value <= _MAX_OF[unit]:
        most = f"${AMOUNT_USD_MAX:,}" if unit is Unit.USD else f"{_MAX_OF[unit]:,} {unit}"
        raise InvalidInput(
            "limit",
            f"{to} is no limit of a {kind} meter",
            f"Give 0 to {most}, or none at all.",
            code="bad_amount",
        )
    return value


def _check_words(reason: str, key: str, *, reason_needed: bool) -> None:
    if reason_needed and not reason.strip():
        raise InvalidInput(
            "reason", "a reason is needed here", "Say why the limit changes.", code="reason_needed"
        )
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput(
            "reason", "the reason is too long", f"Use at most {REASON_CHARACTERS_MAX} characters."
        )
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidInput("key", "a key is needed", f"Send a text of 1 to {KEY_CHARACTERS_MAX} characters.")


def _check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is None:
        return
    if expires_at.tzinfo is None or not now < expires_at <= now + timedelta(days=EXPIRY_DAYS_MAX):
        raise InvalidInput(
            "expires_at",
            "this is no moment in the coming year",
            f"Give a time with its zone, at most {EXPIRY_DAYS_MAX} days from now.",
        )


def _check_subject(kind: MeterKind, organization_id: UUID | None, subject: str) -> None:
    """What can be checked here belongs to the organization; a Change is checked by the domain above."""
    if kind is MeterKind.PLATFORM:
        assert organization_id is None, "the platform's limit belongs to no organization"
        assert subject == PLATFORM_SUBJECT, f"the platform's subject is {PLATFORM_SUBJECT!r}"
        return
    assert organization_id is not None, f"a {kind} limit belongs to an organization"
    own = str(organization_id)
    if kind in (MeterKind.PROJECT, MeterKind.USER):
        of_organization = (Project if kind is MeterKind.PROJECT else Membership).objects.of_organization(
            organization_id
        )
        lookup = {"pk": subject} if kind is MeterKind.PROJECT else {"user_id": subject}
        try:
            visible = of_organization.filter(**lookup).exists()
        except ValidationError:  # not even an id
            visible = False
        if not visible:
            raise NotVisible(str(kind))
    elif kind not in (MeterKind.CHANGE, MeterKind.PROVIDER) and subject != own:
        raise NotVisible(str(kind))


def _project_wants_reason(kind: MeterKind, organization_id: UUID | None, subject: str) -> bool:
    if kind is not MeterKind.PROJECT or organization_id is None:
        return False
    try:
        wanted = Project.objects.of_organization(organization_id).filter(pk=subject, raise_needs_reason=True)
        return bool(wanted.exists())
    except ValidationError:
        return False


def _typed(unit: Unit, value: int | None) -> Limit:
    return Usd(value) if unit is Unit.USD and value is not None else value


def _plain(value: Limit) -> int | None:
    return value.micro if isinstance(value, Usd) else value
