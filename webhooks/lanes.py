"""Lanes: each endpoint is served by one worker at a time, each organization by a few; so no slow one stops the rest.

A lane is taken by moving its lease, the least recently served first. A worker that was killed loses it by time.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from providers.deadlines import CONNECT_SECONDS
from tenants.audit import note
from webhooks.models import Delivery, DeliveryState, Endpoint
from webhooks.schedule import is_hopeless, rest_seconds

# A request in all: connecting, sending, waiting and reading.
SEND_SECONDS_MAX = 10.0
# Longer than a request and a slow name server together; renewed before each request.
LEASE_SECONDS = 60
LANES_PER_ORGANIZATION_MAX = 2
LANES_TRIED_MAX = 20
assert CONNECT_SECONDS < SEND_SECONDS_MAX
assert LEASE_SECONDS >= 4 * SEND_SECONDS_MAX, "a lease must outlive its request"


@dataclass(frozen=True, slots=True)
class Lane:
    """The right to send to one endpoint, until the lease ends."""

    endpoint_id: UUID
    key: str


def waiting(now: datetime) -> QuerySet[Endpoint]:
    """Endpoints that may be served now, the least recently served first. Those of a busy organization are left out."""
    due = Delivery.objects.filter(endpoint=OuterRef("pk"), state=DeliveryState.PENDING, not_before__lte=now)
    busy = (
        Endpoint.objects.filter(lease_until__gt=now)
        .values("organization_id")
        .annotate(lanes=Count("pk"))
        .filter(lanes__gte=LANES_PER_ORGANIZATION_MAX)
        .values("organization_id")
    )
    found: QuerySet[Endpoint] = Endpoint.objects.filter(
        Q(lease_until__isnull=True) | Q(lease_until__lte=now),
        Q(rests_until__isnull=True) | Q(rests_until__lte=now),
        Exists(due),
        enabled=True,
    ).exclude(organization_id__in=busy)
    return found.order_by(F("served_at").asc(nulls_first=True), "pk")


def take_lane(now: datetime) -> Lane | None:
    """The next lane that nobody else took meanwhile; None when nothing may be sent now."""
    for endpoint in waiting(now)[:LANES_TRIED_MAX]:
        lane = _take(endpoint, now)
        if lane is not None:
            return lane
    return None


def renew(lane: Lane, now: datetime) -> bool:
    """Keep the lane for one more request. False when it was lost, or the endpoint was switched off."""
    held = Endpoint.objects.filter(pk=lane.endpoint_id, lease_key=lane.key, enabled=True)
    return bool(held.update(lease_until=now + timedelta(seconds=LEASE_SECONDS)))


def release(lane: Lane) -> None:
    Endpoint.objects.filter(pk=lane.endpoint_id, lease_key=lane.key).update(lease_key="", lease_until=None)


def locked_endpoint(endpoint_id: UUID) -> Endpoint | None:
    """The endpoint's row, locked until the transaction ends; always before any of its deliveries."""
    rows = Endpoint.objects.select_for_update(of=("self",), no_key=True).select_related("organization")
    endpoint: Endpoint | None = rows.filter(pk=endpoint_id).first()
    return endpoint


def note_success(endpoint: Endpoint, now: datetime) -> None:
    Endpoint.objects.filter(pk=endpoint.pk).update(
        failing_since=None, failures=0, rests_until=None, succeeded_at=now
    )


def note_failure(endpoint: Endpoint, now: datetime) -> None:
    """One more in a row, on the locked row: it rests, and after days of nothing else it is switched off."""
    endpoint.failures += 1
    endpoint.failing_since = endpoint.failing_since or now
    Endpoint.objects.filter(pk=endpoint.pk).update(
        failures=endpoint.failures,
        failing_since=endpoint.failing_since,
        rests_until=now + timedelta(seconds=rest_seconds(endpoint.failures)),
    )
    if is_hopeless(failing_since=endpoint.failing_since, failures=endpoint.failures, now=now):
        switch_off(endpoint, Endpoint.Off.FAILING, now)


def switch_off(endpoint: Endpoint, because: Endpoint.Off, now: datetime) -> None:
    """By Remit itself: audited, and shown in the admins' inbox. What was still due is given up by the caller."""
    on = Endpoint.objects.filter(pk=endpoint.pk, enabled=True)
    if on.update(enabled=False, off_because=because, off_at=now, lease_key="", lease_until=None):
        note(
            endpoint.organization,
            None,
            "webhook.switched_off",
            str(endpoint),
            after={"because": because.label, "failures": endpoint.failures},
        )


@transaction.atomic
def _take(endpoint: Endpoint, now: datetime) -> Lane | None:
    """The organization's lanes are locked together, in one order: two workers never take one lane too many."""
    lanes = list(
        Endpoint.objects.select_for_update(no_key=True)
        .filter(organization_id=endpoint.organization_id)
        .order_by("pk")
    )
    if sum(_is_held(one, now) for one in lanes) >= LANES_PER_ORGANIZATION_MAX:
        return None
    ours = next((one for one in lanes if one.pk == endpoint.pk), None)
    if (
        ours is None
        or not ours.enabled
        or _is_held(ours, now)
        or (ours.rests_until and ours.rests_until > now)
    ):
        return None
    lane = Lane(endpoint.pk, secrets.token_hex(16))
    Endpoint.objects.filter(pk=endpoint.pk).update(
        lease_key=lane.key, lease_until=now + timedelta(seconds=LEASE_SECONDS), served_at=now
    )
    return lane


def _is_held(endpoint: Endpoint, now: datetime) -> bool:
    return endpoint.lease_until is not None and endpoint.lease_until > now
