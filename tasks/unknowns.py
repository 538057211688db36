"""A charge that nobody could read becomes one event, for people and for endpoints."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import CharField, Exists, OuterRef, Value
from django.db.models.functions import Cast, Concat

from budgets.models import Reservation, ReservationState
from tasks.events import record, record_for_organization
from tasks.models import Change, Event
from tenants.apart import apart

UNKNOWN_CHARGE = "reservation.unknown"
# A charge is told within seconds; what a stopped deployment left lying, within a day of its close.
LOOK_BACK_HOURS = 24
TOLD_AT_ONCE_MAX = 200


def tell_unknown_charges(now: datetime) -> int:
    """Make the events that are missing, one per reservation; how many."""
    told = Event.objects.filter(
        key=Concat(Value(f"{UNKNOWN_CHARGE}:"), Cast(OuterRef("pk"), CharField()), output_field=CharField())
    )
    fresh = (
        Reservation.objects.filter(
            ~Exists(told),
            state=ReservationState.UNKNOWN,
            closed_at__gt=now - timedelta(hours=LOOK_BACK_HOURS),
        )
        .order_by("closed_at", "pk")
        .select_related("organization")[:TOLD_AT_ONCE_MAX]
    )
    count = 0
    for each in list(fresh):
        with apart("tell_unknown_charge", call=str(each.pk)):
            count += _tell(each, now)
    return count


@transaction.atomic
def _tell(reservation: Reservation, now: datetime) -> bool:
    """The event's key makes it happen once, whichever sweep is first."""
    key = f"{UNKNOWN_CHARGE}:{reservation.pk}"
    data = {
        "call": reservation.pk,
        "purpose": reservation.purpose,
        "model": reservation.model,
        "tier": reservation.tier,
        "unit": "usd",
        "charged": None if reservation.usd is None else reservation.usd.micro,
        "run": None if reservation.run_id is None else str(reservation.run_id),
    }
    change = (
        Change.objects.of_organization(reservation.organization_id).filter(pk=reservation.change_id).first()
    )
    if change is not None:
        record(UNKNOWN_CHARGE, change=change, data=data, key=key, now=now)
    else:
        record_for_organization(
            UNKNOWN_CHARGE, organization_id=reservation.organization_id, data=data, key=key, now=now
        )
    return True
