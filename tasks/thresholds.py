"""A soft threshold that a meter has passed becomes one event, for the inbox and for webhooks."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from budgets.keys import MeterKind
from budgets.models import ThresholdCrossing
from budgets.thresholds import mark_told, untold_crossings
from tasks.events import record, record_for_organization
from tasks.models import Change
from tenants.apart import apart

BUDGET_THRESHOLD = "budget.threshold"


def tell_thresholds(now: datetime) -> int:
    """Make the events that are due, each with its mark in one transaction; how many."""
    told = 0
    for crossing in untold_crossings():
        with apart("tell_threshold", crossing=str(crossing.pk)):
            told += _tell(crossing, now)
    return told


@transaction.atomic
def _tell(crossing: ThresholdCrossing, now: datetime) -> bool:
    if not mark_told(crossing, now=now):
        return False  # another sweep was first
    if crossing.organization_id is None:
        return False  # the platform's own meter: no tenant hears of it
    meter = crossing.meter
    data = {
        "meter": meter.kind,
        "subject": meter.subject,
        "period": meter.period,
        "unit": crossing.unit,
        "percent": crossing.percent,
        "limit": crossing.limit,
        "spent": crossing.spent,
    }
    key = f"{BUDGET_THRESHOLD}:{crossing.pk}"
    change = Change.objects.filter(pk=UUID(meter.subject)).first() if meter.kind == MeterKind.CHANGE else None
    if change is not None:
        record(BUDGET_THRESHOLD, change=change, data=data, key=key, now=now)
    else:
        record_for_organization(
            BUDGET_THRESHOLD, organization_id=crossing.organization_id, data=data, key=key, now=now
        )
    return True
