"""The smallest valid endpoints, deliveries and incoming hooks; their secrets are the ones below."""

from __future__ import annotations

from itertools import count
from typing import Any

from django.utils import timezone

from tenants.models import Organization, Project
from tests.factories.tenants import make_member, make_organization, make_project
from webhooks.deliveries import payload_of
from webhooks.models import Attempt, Delivery, Endpoint, IncomingDelivery, IncomingHook

_numbers = count(1)
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
GITHUB_SECRET = "a secret that both sides know"


def make_endpoint(organization: Organization | None = None, *, secret: str = SECRET, **more: Any) -> Endpoint:
    """On, and hears of everything. Its address is nobody's."""
    fields = {"url": "http://127.0.0.1:9/hook", "kinds": ["*"]} | more
    endpoint = Endpoint(organization=organization or make_organization(), **fields)
    endpoint.put_secret(secret)
    endpoint.save()
    return endpoint


def make_delivery(endpoint: Endpoint | None = None, **more: Any) -> Delivery:
    """Due at once."""
    endpoint = endpoint or make_endpoint()
    now = timezone.now()
    message_id = more.pop("message_id", f"evt_{next(_numbers)}")
    kind = more.pop("kind", "change.ready")
    fields = {
        "payload": payload_of(endpoint.organization_id, message_id, kind, now, {"event": None}),
        "queued_at": now,
        "not_before": now,
        "created_at": now,
    } | more
    delivery: Delivery = Delivery.objects.create(
        endpoint=endpoint, message_id=message_id, kind=kind, **fields
    )
    return delivery


def make_attempt(delivery: Delivery | None = None, **more: Any) -> Attempt:
    delivery = delivery or make_delivery()
    fields = {"number": delivery.attempts.count() + 1, "started_at": timezone.now()} | more
    attempt: Attempt = Attempt.objects.create(delivery=delivery, **fields)
    return attempt


def make_hook(project: Project | None = None, *, secret: str = "", **more: Any) -> IncomingHook:
    """Takes signed JSON in the name of a new member; `kind="github"` takes issues labelled remit."""
    project = project or make_project()
    github = more.get("kind") == "github"
    fields = {
        "name": f"hook {next(_numbers)}",
        "kind": "standard",
        "label": "remit" if github else "",
    } | more
    if "author" not in fields:
        fields["author"] = make_member(project.organization)
    hook = IncomingHook(project=project, **fields)
    hook.put_secret(secret or (GITHUB_SECRET if github else SECRET))
    hook.save()
    return hook


def make_received(hook: IncomingHook | None = None, **more: Any) -> IncomingDelivery:
    fields = {
        "delivery_id": f"msg_{next(_numbers)}",
        "fingerprint": "f" * 64,
        "accepted": True,
        "code": "created",
        "received_at": timezone.now(),
    } | more
    row: IncomingDelivery = IncomingDelivery.objects.create(hook=hook or make_hook(), **fields)
    return row
