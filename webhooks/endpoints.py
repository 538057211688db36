"""Endpoints as admins keep them: made, changed, switched, rotated, tested, and asked again. All audited."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from uuid_utils.compat import uuid7

from tenants import text
from tenants.access import require_role
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Organization, Role, User
from webhooks.addresses import checked_url
from webhooks.deliveries import failed_since, give_up_if_off, queue_again, write_deliveries
from webhooks.kinds import EVERYTHING, KINDS, TEST
from webhooks.lanes import locked_endpoint
from webhooks.models import Delivery, DeliveryState, Endpoint
from webhooks.signing import new_secret

ENDPOINTS_PER_ORGANIZATION_MAX = 20
DESCRIPTION_CHARACTERS_MAX = 200
# While a secret is rotated, both it and the one before sign each message.
ROTATION_HOURS = 24
# How far back "all that failed since" may reach: as long as deliveries are kept.
RESEND_DAYS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEndpoint:
    """An endpoint as somebody wants it."""

    url: str
    kinds: tuple[str, ...]
    description: str = ""
    enabled: bool = True


def make_endpoint(
    organization: Organization, wanted: WantedEndpoint, *, by: User, now: datetime
) -> tuple[Endpoint, str]:
    """A new endpoint and its secret, which is shown this once. Raises InvalidInput, and RoleTooLow below an admin."""
    require_role(by, organization.pk, Role.ADMIN)
    wanted = _checked(wanted)
    secret = new_secret()
    with transaction.atomic():
        Organization.objects.select_for_update(no_key=True).get(
            pk=organization.pk
        )  # two at once count each other
        if Endpoint.objects.of_organization(organization.pk).count() >= ENDPOINTS_PER_ORGANIZATION_MAX:
            raise InvalidInput(
                "",
                f"an organization has at most {ENDPOINTS_PER_ORGANIZATION_MAX} endpoints",
                "Remove one of them.",
                code="too_many",
            )
        endpoint = Endpoint(
            organization=organization,
            url=wanted.url,
            description=wanted.description,
            kinds=list(wanted.kinds),
            created_by=by,
            **_switched(wanted.enabled, now),
        )
        endpoint.put_secret(secret)
        endpoint.save()
        note(organization, by, "webhook.made", str(endpoint), after=_facts(endpoint))
    return endpoint, secret


def change_endpoint(endpoint: Endpoint, wanted: WantedEndpoint, *, by: User, now: datetime) -> Endpoint:
    """Another address, description or choice of kinds; on or off. Switched off, what is still due is given up."""
    require_role(by, endpoint.organization_id, Role.ADMIN)
    wanted = _checked(wanted)
    with transaction.atomic():
        fresh = _locked(endpoint)
        before = _facts(fresh)
        fresh.url, fresh.description, fresh.kinds = wanted.url, wanted.description, list(wanted.kinds)
        changed = ["url", "description", "kinds", "updated_at"]
        if fresh.enabled != wanted.enabled:
            changed += _switch(fresh, enabled=wanted.enabled, now=now)
        fresh.save(update_fields=changed)
        give_up_if_off(fresh.pk, now)
        if before != _facts(fresh):
            note(fresh.organization, by, "webhook.changed", str(fresh), before=before, after=_facts(fresh))
    return fresh


def switch_endpoint(
    endpoint: Endpoint,
    *,
    enabled: bool,
    by: User,
    now: datetime,
    operator: bool = False,
    reason: str = "",
) -> Endpoint:
    """On or off. An operator of the deployment may do it from outside the organization."""
    if not operator:
        require_role(by, endpoint.organization_id, Role.ADMIN)
    with transaction.atomic():
        fresh = _locked(endpoint)
        if fresh.enabled != enabled:
            fresh.save(update_fields=[*_switch(fresh, enabled=enabled, now=now), "updated_at"])
            give_up_if_off(fresh.pk, now)
            action = "webhook.enabled" if enabled else "webhook.disabled"
            note(fresh.organization, by, action, str(fresh), reason=reason)
    return fresh


def rotate_secret(endpoint: Endpoint, *, by: User, now: datetime) -> tuple[Endpoint, str]:
    """A new secret, shown this once. For a day both sign, so that the receiver can change over."""
    require_role(by, endpoint.organization_id, Role.ADMIN)
    secret = new_secret()
    with transaction.atomic():
        fresh = _locked(endpoint)
        fresh.put_secret(secret, previous_until=now + timedelta(hours=ROTATION_HOURS))
        fresh.save(update_fields=["sealed_secret", "sealed_previous", "previous_until", "updated_at"])
        note(fresh.organization, by, "webhook.secret_rotated", str(fresh))
    return fresh, secret


def remove_endpoint(endpoint: Endpoint, *, by: User) -> None:
    """With its log; the audit list remembers that it was there."""
    require_role(by, endpoint.organization_id, Role.ADMIN)
    with transaction.atomic():
        fresh = _locked(endpoint)
        note(fresh.organization, by, "webhook.removed", str(fresh), before=_facts(fresh))
        fresh.delete()


@transaction.atomic
def send_test(endpoint: Endpoint, *, by: User, now: datetime) -> Delivery:
    """An event that says only that it is a test. Raises InvalidInput for an endpoint that is off."""
    require_role(by, endpoint.organization_id, Role.ADMIN)
    fresh = _wakeful(endpoint)
    message_id = f"test_{uuid7().hex}"
    data = {"event": None, "change": None, "task": None, "note": "Somebody pressed the button for a test."}
    write_deliveries([fresh], message_id=message_id, kind=TEST, created=now, data=data, now=now)
    note(fresh.organization, by, "webhook.tested", str(fresh), after={"message": message_id})
    return Delivery.objects.get(endpoint=fresh, message_id=message_id)


@transaction.atomic
def resend(delivery: Delivery, *, by: User, now: datetime) -> Delivery:
    """Send it once more, delivered or not: the same message under the same id. One that is pending stays as it is."""
    require_role(by, delivery.endpoint.organization_id, Role.ADMIN)
    fresh = _wakeful(delivery.endpoint)
    if queue_again([delivery.pk], now=now):
        note(fresh.organization, by, "webhook.resent", str(fresh), after={"message": delivery.message_id})
    delivery.refresh_from_db()
    return delivery


@transaction.atomic
def resend_failed(endpoint: Endpoint, *, since: datetime, by: User, now: datetime) -> int:
    """All that failed since then, the oldest first, a thousand at a time. How many."""
    require_role(by, endpoint.organization_id, Role.ADMIN)
    if since > now:
        raise InvalidInput("since", "is still to come", "Name a moment that is over.")
    since = max(since, now - timedelta(days=RESEND_DAYS_MAX))
    fresh = _wakeful(endpoint)
    moved = queue_again(failed_since(fresh, since), now=now)
    if moved:
        facts = {"since": since.isoformat(), "count": moved}
        note(fresh.organization, by, "webhook.resent_failed", str(fresh), after=facts)
    return moved


def endpoint_of(organization: Organization, endpoint_id: UUID) -> Endpoint:
    """One of this organization's, looked up together with it (C79)."""
    rows = Endpoint.objects.of_organization(organization.pk).select_related("organization", "created_by")
    endpoint: Endpoint | None = rows.filter(pk=endpoint_id).first()
    if endpoint is None:
        raise NotVisible("webhook")
    return endpoint


def delivery_of(endpoint: Endpoint, delivery_id: UUID) -> Delivery:
    """One of this endpoint's, looked up together with it (C79)."""
    rows = Delivery.objects.of_organization(endpoint.organization_id).select_related("endpoint__organization")
    delivery: Delivery | None = (
        rows.filter(endpoint=endpoint, pk=delivery_id).prefetch_related("attempts").first()
    )
    if delivery is None:
        raise NotVisible("delivery")
    return delivery


def deliveries_of(endpoint: Endpoint, *, state: str = "") -> QuerySet[Delivery]:
    """The newest first; perhaps only those in one state."""
    if state and state not in DeliveryState.values:
        raise InvalidInput(
            "state", f"{state[:40]!r} is no state", f"Use one of {', '.join(DeliveryState.values)}."
        )
    rows: QuerySet[Delivery] = Delivery.objects.of_organization(endpoint.organization_id).filter(
        endpoint=endpoint
    )
    return (rows.filter(state=state) if state else rows).order_by("-pk")


def switched_off_by_remit(organization_ids: Iterable[UUID]) -> QuerySet[Endpoint]:
    """Endpoints that Remit gave up, for the inbox of those who can mend them; the newest first."""
    rows: QuerySet[Endpoint] = Endpoint.objects.filter(
        organization_id__in=list(organization_ids),
        enabled=False,
        off_because__in=(Endpoint.Off.GONE, Endpoint.Off.FAILING),
    )
    return rows.select_related("organization").order_by("-off_at")


def _checked(wanted: WantedEndpoint) -> WantedEndpoint:
    known = (*KINDS, EVERYTHING)
    strange = [kind for kind in wanted.kinds if kind not in known]
    if strange:
        raise InvalidInput(
            "kinds", f"{str(strange[0])[:60]!r} is no kind of event", f"Use some of {', '.join(known)}."
        )
    if not wanted.kinds:
        raise InvalidInput("kinds", "is empty", "Choose at least one kind of event.", code="required")
    return WantedEndpoint(
        url=checked_url(wanted.url, private_addresses=settings.PLANE.private_addresses),
        kinds=(EVERYTHING,)
        if EVERYTHING in wanted.kinds
        else tuple(kind for kind in KINDS if kind in wanted.kinds),
        description=text.one_line(
            "description", wanted.description, characters_max=DESCRIPTION_CHARACTERS_MAX, required=False
        ),
        enabled=wanted.enabled,
    )


def _locked(endpoint: Endpoint) -> Endpoint:
    fresh = locked_endpoint(endpoint.pk)
    if fresh is None:
        raise NotVisible("webhook")
    return fresh


def _wakeful(endpoint: Endpoint) -> Endpoint:
    """Locked and on; a person who asks for it does not wait until it has rested."""
    fresh = _locked(endpoint)
    if not fresh.enabled:
        raise InvalidInput("enabled", "the endpoint is off", "Enable it first.", code="switched_off")
    Endpoint.objects.filter(pk=fresh.pk).update(rests_until=None)
    return fresh


def _switch(endpoint: Endpoint, *, enabled: bool, now: datetime) -> list[str]:
    """The columns of that; switched on again, it begins in good health."""
    columns = _switched(enabled, now)
    if enabled:
        columns |= {"failing_since": None, "failures": 0, "rests_until": None}
    for name, value in columns.items():
        setattr(endpoint, name, value)
    return list(columns)


def _switched(enabled: bool, now: datetime) -> dict[str, Any]:
    if enabled:
        return {"enabled": True, "off_because": "", "off_at": None}
    return {"enabled": False, "off_because": Endpoint.Off.PERSON, "off_at": now}


def _facts(endpoint: Endpoint) -> dict[str, Any]:
    """For the audit list: no secret, and no query of the address, which may hold one."""
    return {
        "url": endpoint.address,
        "description": endpoint.description,
        "kinds": list(endpoint.kinds),
        "enabled": endpoint.enabled,
    }
