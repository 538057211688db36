"""Meters: who pays for a call, what is left, and a period's rows on first use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from budgets.decisions import Amount, MeterReading, Refusal, period_of, why_refused
from budgets.keys import PLATFORM_SUBJECT, MeterKey, MeterKind
from budgets.models import LimitRule, Meter
from budgets.money import Usd
from tenants.audit import note

__all__ = [
    "MeterKey",
    "MeterKind",
    "at_period",
    "daily_meter",
    "effective_limits",
    "ensure_meters",
    "follow_defaults",
    "meter_key",
    "payer_meters",
    "read_meters",
    "refusals",
]

# In the audit list, and what explains to the audit of the books a meter that stands above its limit.
LIMIT_FOLLOWED = "limit.followed"
# Whose limit is the deployment's until somebody sets another.
_DEFAULTED = (
    MeterKind.ORGANIZATION,
    MeterKind.DAILY_CALLS,
    MeterKind.CLASSIFIER_CALLS,
    MeterKind.EMBEDDINGS,
)


def payer_meters(
    *,
    organization_id: UUID,
    project_id: UUID | None,
    user_id: UUID | None,
    change_id: UUID | None,
    connector: str,
    counts_daily: bool,
    now: datetime,
) -> tuple[MeterKey, ...]:
    """Every meter that pays for a call of these payers, in the order in which a refusal is named (row 22).

    A call made before a Change exists has no change meter (row 147). The platform's meter joins when
    somebody has set a limit for the platform (row 15).
    """
    subjects = [
        (MeterKind.CHANGE, change_id),
        (MeterKind.PROJECT, project_id),
        (MeterKind.USER, user_id),
        (MeterKind.ORGANIZATION, organization_id),
        (MeterKind.DAILY_CALLS, organization_id if counts_daily else None),
        (MeterKind.PROVIDER, connector or None),
    ]
    keys = [
        meter_key(kind, organization_id, str(subject), now=now)
        for kind, subject in subjects
        if subject is not None
    ]
    if LimitRule.objects.filter(name=platform_key(now).rule_name).exists():
        keys.append(platform_key(now))
    return tuple(keys)


def daily_meter(kind: MeterKind, organization_id: UUID, *, now: datetime) -> MeterKey:
    """An organization's counter of calls of one sort for the UTC day of `now` (rows 70, 209)."""
    return meter_key(kind, organization_id, str(organization_id), now=now)


def meter_key(kind: MeterKind, organization_id: UUID | None, subject: str, *, now: datetime) -> MeterKey:
    """The meter of that subject in the period of `now`."""
    return MeterKey(kind, organization_id, subject, period_of(kind, now))


def platform_key(now: datetime) -> MeterKey:
    return meter_key(MeterKind.PLATFORM, None, PLATFORM_SUBJECT, now=now)


def at_period(keys: Iterable[MeterKey], *, now: datetime) -> tuple[MeterKey, ...]:
    """The same meters in the period of `now`: asked before each call of a run, which may outlive a day."""
    return tuple(replace(key, period=period_of(key.kind, now)) for key in keys)


def refusals(keys: Sequence[MeterKey], amount: Amount, *, now: datetime) -> tuple[Refusal, ...]:
    """Which of these meters, in the period of `now`, would refuse that amount. Only reads; empty: room on all."""
    return why_refused(read_meters(at_period(keys, now=now)), amount)


def read_meters(keys: Sequence[MeterKey]) -> list[MeterReading]:
    """What the meters show, in the order asked. One that was never used shows its limit and zeros."""
    rows = {
        meter.name: meter.reading() for meter in Meter.objects.filter(name__in=[key.name for key in keys])
    }
    missing = [key for key in keys if key.name not in rows]
    rows |= {key.name: reading for key, reading in zip(missing, effective_limits(missing), strict=True)}
    return [rows[key.name] for key in keys]


def effective_limits(keys: Sequence[MeterKey]) -> list[MeterReading]:
    """What these meters would start with: the rule of the subject, else the deployment's default."""
    rules = {rule.name: rule for rule in LimitRule.objects.filter(name__in=[key.rule_name for key in keys])}
    return [_starting(key, rules.get(key.rule_name)) for key in keys]


def ensure_meters(keys: Sequence[MeterKey]) -> None:
    """Make the missing rows of a period, in a transaction of their own.

    Sorted, and without a word on conflict: two first callers of a month neither race nor deadlock. The
    rules are locked, so no row is born with the limit of a moment ago.
    """
    ordered = sorted(keys, key=lambda key: key.name)
    with transaction.atomic():
        rules = LimitRule.objects.filter(name__in=[key.rule_name for key in ordered]).order_by("name")
        locked = {rule.name: rule for rule in rules.select_for_update()}
        Meter.objects.bulk_create(
            [_row(key, _starting(key, locked.get(key.rule_name))) for key in ordered], ignore_conflicts=True
        )


def follow_defaults(now: datetime) -> int:
    """Let the open meters without a rule have the deployment's limits of now; how many changed.

    A setting that the operator changed holds with the next sweep, not with the next month. Each row is
    compared with what was read, so a limit that a person sets at this moment stands.
    """
    ruled = LimitRule.objects.filter(
        organization=OuterRef("organization"), kind=OuterRef("kind"), subject=OuterRef("subject")
    )
    count = 0
    for kind in _DEFAULTED:
        period = period_of(kind, now)
        for meter in Meter.objects.select_related("organization").filter(
            ~Exists(ruled), kind=kind, period=period
        ):
            start = _starting(meter.key, None)
            before = {"limit_usd": meter.limit_usd, "limit_calls": meter.limit_calls}
            after = {"limit_usd": start.limit_usd, "limit_calls": start.limit_calls}
            if before != after:
                count += _follow(meter, Meter.objects.filter(~Exists(ruled), **_or_null(before)), after)
    return count


@transaction.atomic
def _follow(meter: Meter, as_read: QuerySet[Meter], after: dict[str, Any]) -> bool:
    """The row and a line for the organization's admins, who did not do this."""
    if not as_read.filter(pk=meter.pk).update(**after):
        return False
    if meter.organization is not None:
        note(
            meter.organization,
            None,
            LIMIT_FOLLOWED,
            f"{meter.kind} {meter.subject}",
            before={"limit_usd": _micro(meter.limit_usd), "limit_calls": meter.limit_calls},
            after={"limit_usd": _micro(after["limit_usd"]), "limit_calls": after["limit_calls"]},
            reason="the deployment's setting changed",
        )
    return True


def _micro(amount: Usd | None) -> int | None:
    return None if amount is None else amount.micro


def _or_null(values: dict[str, Any]) -> dict[str, Any]:
    """Equal to each of these, also where it is null."""
    return {
        (name if value is not None else f"{name}__isnull"): (value if value is not None else True)
        for name, value in values.items()
    }


def _starting(key: MeterKey, rule: LimitRule | None) -> MeterReading:
    if rule is not None:
        return MeterReading(
            key=key,
            limit_usd=rule.limit_usd,
            limit_tokens=rule.limit_tokens,
            limit_calls=rule.limit_calls,
        )
    if key.kind is MeterKind.ORGANIZATION:
        return MeterReading(key=key, limit_usd=settings.PLANE.monthly_limit)
    calls = {
        MeterKind.DAILY_CALLS: settings.PLANE.calls_per_day_max,
        MeterKind.CLASSIFIER_CALLS: settings.PLANE.classifier_calls_per_day_max,
        MeterKind.EMBEDDINGS: settings.PLANE.embeddings_per_day_max,
    }
    return MeterReading(key=key, limit_calls=calls.get(key.kind))


def _row(key: MeterKey, start: MeterReading) -> Meter:
    return Meter(
        name=key.name,
        organization_id=key.organization_id,
        kind=key.kind,
        subject=key.subject,
        period=key.period,
        limit_usd=start.limit_usd,
        limit_tokens=start.limit_tokens,
        limit_calls=start.limit_calls,
    )
