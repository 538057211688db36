"""Deliveries: written with their event, taken one by one, ended once. The only writer of their state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import random
from typing import Any, assert_never
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from providers.sealing import KeyUnreadable
from webhooks.kinds import PAYLOAD_VERSION, wants
from webhooks.lanes import (
    LEASE_SECONDS,
    Lane,
    locked_endpoint,
    note_failure,
    note_success,
    renew,
    switch_off,
)
from webhooks.models import Attempt, Delivery, DeliveryState, Endpoint
from webhooks.schedule import (
    ATTEMPTS_MAX,
    Again,
    Answer,
    Delivered,
    GiveUp,
    Gone,
    verdict,
)
from webhooks.wake import wake_deliveries

KEPT_DAYS = 30
FORGOTTEN_AT_ONCE_MAX = 5_000
RESENT_AT_ONCE_MAX = 1_000
PROBLEM_CHARACTERS_MAX = 200
SWITCHED_OFF = "the endpoint was switched off"
WORKER_LOST = "the worker died: nobody knows whether it arrived"


@dataclass(frozen=True, slots=True)
class Sending:
    """One request that is about to leave."""

    endpoint_id: UUID
    delivery_id: UUID
    attempt_id: int
    url: str
    message_id: str
    body: bytes
    secrets: tuple[str, ...]  # none: they cannot be opened


def listeners(organization_id: UUID, kind: str) -> list[Endpoint]:
    """The endpoints that are to hear of this kind."""
    rows = Endpoint.objects.of_organization(organization_id).filter(enabled=True).order_by("pk")
    return [endpoint for endpoint in rows if wants(endpoint.kinds, kind)]


def write_deliveries(
    endpoints: Iterable[Endpoint],
    *,
    message_id: str,
    kind: str,
    created: datetime,
    data: Mapping[str, Any],
    now: datetime,
) -> None:
    """One row for each endpoint, in the transaction around this. The same message for an endpoint is written once."""
    rows = [
        Delivery(
            endpoint=endpoint,
            message_id=message_id,
            kind=kind,
            payload=payload_of(endpoint.organization_id, message_id, kind, created, data),
            queued_at=now,
            not_before=now,
            created_at=now,
        )
        for endpoint in endpoints
    ]
    if rows:
        Delivery.objects.bulk_create(rows, ignore_conflicts=True)
        wake_deliveries()


def payload_of(
    organization_id: UUID, message_id: str, kind: str, created: datetime, data: Mapping[str, Any]
) -> str:
    """The body as it is signed and sent."""
    said = {
        "id": message_id,
        "type": kind,
        "version": PAYLOAD_VERSION,
        "created": created.isoformat().replace("+00:00", "Z"),
        "organization": str(organization_id),
        "data": data,
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


@transaction.atomic
def take_next(lane: Lane, now: datetime) -> Sending | None:
    """The next delivery that is due in this lane, with its attempt written down before anything leaves.

    An earlier attempt without an end belonged to a worker that died. None: nothing is due, or the lane is lost.
    """
    if not renew(lane, now):
        return None
    delivery: Delivery | None = (
        Delivery.objects.filter(
            endpoint_id=lane.endpoint_id, state=DeliveryState.PENDING, not_before__lte=now
        )
        .select_related("endpoint")
        .order_by("not_before", "pk")
        .first()
    )
    if delivery is None:
        return None
    delivery.attempts.filter(ended_at__isnull=True).update(ended_at=now, problem=WORKER_LOST)
    tries = delivery.tries + 1
    if tries > ATTEMPTS_MAX:  # every one of them was lost with its worker
        _end(delivery.pk, DeliveryState.FAILED, now, problem=WORKER_LOST)
        return take_next(lane, now)
    Delivery.objects.filter(pk=delivery.pk).update(
        tries=tries, not_before=now + timedelta(seconds=LEASE_SECONDS)
    )
    last = delivery.attempts.aggregate(last=Max("number"))["last"] or 0
    attempt = Attempt.objects.create(delivery=delivery, number=last + 1, started_at=now)
    return Sending(
        endpoint_id=lane.endpoint_id,
        delivery_id=delivery.pk,
        attempt_id=attempt.pk,
        url=delivery.endpoint.url,
        message_id=delivery.message_id,
        body=delivery.payload.encode(),
        secrets=_secrets(delivery.endpoint, now),
    )


@transaction.atomic
def note_answer(sending: Sending, answer: Answer, now: datetime) -> bool:
    """Write down what came of it, and what follows. True when it was delivered.

    A worker that was slower than its lease still tells the truth of its own attempt; what was delivered is delivered.
    """
    endpoint = locked_endpoint(sending.endpoint_id)
    attempt: Attempt | None = Attempt.objects.filter(pk=sending.attempt_id).select_related("delivery").first()
    if endpoint is None or attempt is None:
        return False  # removed meanwhile, with its log
    delivery = attempt.delivery
    was_lost = attempt.ended_at is not None
    follows = verdict(
        answer,
        tries=max(1, delivery.tries),
        queued_at=delivery.queued_at,
        now=now,
        shake=random(),  # noqa: S311  # it spreads load, it guards nothing
    )
    again_at = now + timedelta(seconds=follows.seconds) if isinstance(follows, Again) else None
    Attempt.objects.filter(pk=attempt.pk).update(
        ended_at=now,
        status=answer.status,
        milliseconds=answer.milliseconds,
        problem=answer.problem[:PROBLEM_CHARACTERS_MAX],
        answer=answer.text,
        next_at=None if was_lost else again_at,
    )
    if isinstance(follows, Delivered):
        note_success(endpoint, now)
        _end(delivery.pk, DeliveryState.DELIVERED, now)
        return True
    if was_lost or delivery.state != DeliveryState.PENDING:
        return False
    match follows:
        case Again():
            Delivery.objects.filter(pk=delivery.pk).update(not_before=again_at)
            note_failure(endpoint, now)
        case GiveUp(why=why):
            _end(delivery.pk, DeliveryState.FAILED, now, problem=why)
            note_failure(endpoint, now)
        case Gone():
            _end(delivery.pk, DeliveryState.FAILED, now, problem="gone")
            switch_off(endpoint, Endpoint.Off.GONE, now)
        case unknown:
            assert_never(unknown)
    give_up_if_off(endpoint.pk, now)
    return False


def give_up_if_off(endpoint_id: UUID, now: datetime) -> None:
    """What is still due for an endpoint that is off waits for nobody: a person may resend it later."""
    if not Endpoint.objects.filter(pk=endpoint_id, enabled=False).exists():
        return
    due = Delivery.objects.filter(endpoint_id=endpoint_id, state=DeliveryState.PENDING)
    due.update(state=DeliveryState.FAILED, ended_at=now, problem=SWITCHED_OFF)


@transaction.atomic
def queue_again(deliveries: Iterable[UUID], *, now: datetime) -> int:
    """Make these due again, with fresh tries and the same message id. How many."""
    rows = Delivery.objects.filter(pk__in=list(deliveries)).exclude(state=DeliveryState.PENDING)
    moved: int = rows.update(
        state=DeliveryState.PENDING, ended_at=None, problem="", tries=0, queued_at=now, not_before=now
    )
    if moved:
        wake_deliveries()
    return moved


def failed_since(endpoint: Endpoint, since: datetime) -> list[UUID]:
    """The oldest first, so that a receiver gets them in order."""
    rows = endpoint.deliveries.filter(state=DeliveryState.FAILED, created_at__gte=since).order_by(
        "created_at", "pk"
    )
    return list(rows.values_list("pk", flat=True)[:RESENT_AT_ONCE_MAX])


def forget_old(now: datetime) -> int:
    """Delete what ended long ago, some at a time. How many."""
    rows = Delivery.objects.filter(created_at__lt=now - timedelta(days=KEPT_DAYS)).exclude(
        state=DeliveryState.PENDING
    )
    old = list(rows.order_by("created_at").values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE_MAX])
    Delivery.objects.filter(pk__in=old).delete()
    return len(old)


def _end(delivery_id: UUID, state: DeliveryState, now: datetime, *, problem: str = "") -> None:
    Delivery.objects.filter(pk=delivery_id).update(state=state, ended_at=now, problem=problem)


def _secrets(endpoint: Endpoint, now: datetime) -> tuple[str, ...]:
    try:
        return tuple(endpoint.secrets(now=now))
    except KeyUnreadable:
        return ()
