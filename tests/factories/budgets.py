"""The smallest valid payers, holds and meters."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from budgets.decisions import Amount
from budgets.keys import MeterKey, MeterKind
from budgets.limits import set_limit
from budgets.meters import ensure_meters, meter_key, payer_meters
from budgets.models import Meter
from budgets.money import Usd
from budgets.reservations import CallContext, Held, reserve
from tenants.models import Organization
from tests.factories.tenants import make_member, make_organization, make_project

_numbers = count(1)
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def make_payers(organization: Organization | None = None, **over: Any) -> tuple[MeterKey, ...]:
    """The meters that pay for a call of a Change: a real project and member, a fresh Change, unless given."""
    organization = organization or make_organization()
    given: dict[str, Any] = {
        "organization_id": organization.pk,
        "project_id": over["project_id"] if "project_id" in over else make_project(organization).pk,
        "user_id": over["user_id"] if "user_id" in over else make_member(organization).pk,
        "change_id": uuid4(),
        "connector": "main",
        "counts_daily": True,
        "now": NOON,
    } | over
    return payer_meters(**given)


def make_context(meters: tuple[MeterKey, ...], **over: Any) -> CallContext:
    """The context that fits these meters."""
    organization_id = next(key.organization_id for key in meters if key.organization_id)
    people = (MeterKind.PROJECT, MeterKind.USER, MeterKind.CHANGE)
    subjects = {key.kind: UUID(key.subject) for key in meters if key.kind in people}
    given: dict[str, Any] = {
        "organization_id": organization_id,
        "purpose": "agent",
        "model": "claude-sonnet-5-5",
        "tier": "sonnet",
        "connector": "main",
        "project_id": subjects.get(MeterKind.PROJECT),
        "user_id": subjects.get(MeterKind.USER),
        "change_id": subjects.get(MeterKind.CHANGE),
    } | over
    return CallContext(**given)


def make_hold(meters: tuple[MeterKey, ...] | None = None, usd: int | None = 260_000, **over: Any) -> Held:
    """Money held on every meter; fails when one refuses. `usd` in micro-dollars, None for unpriced."""
    meters = meters or make_payers()
    given: dict[str, Any] = {
        "key": f"call-{next(_numbers)}-{uuid4().hex[:8]}",
        "meters": meters,
        "amount": Amount(None if usd is None else Usd(usd), tokens=56_000),
        "context": make_context(meters),
        "owner": "worker",
        "lease_seconds": 600,
    } | over
    held = reserve(**given)
    assert isinstance(held, Held), held
    return held


def make_meter(
    kind: MeterKind = MeterKind.PROVIDER, organization: Organization | None = None, **over: Any
) -> Meter:
    """A row for one subject, with its default limit unless given (`limit_usd=Usd(1)`)."""
    organization = organization or make_organization()
    key = meter_key(
        kind, organization.pk, over.pop("subject", f"account-{next(_numbers)}"), now=over.pop("now", NOON)
    )
    ensure_meters([key])
    Meter.objects.filter(name=key.name).update(**over)
    meter: Meter = Meter.objects.get(name=key.name)
    return meter


def limit(meter: MeterKey, to: Usd | int | None, /, *, now: datetime = NOON, **over: Any) -> Any:
    """Set the limit of that meter's subject, as Remit itself; checks no membership."""
    given: dict[str, Any] = {
        "organization_id": meter.organization_id,
        "kind": meter.kind,
        "subject": meter.subject,
        "to": to,
        "by": None,
        "reason": "for the test",
        "key": f"limit-{next(_numbers)}",
        "now": now,
    } | over
    return set_limit(**given)
