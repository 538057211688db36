"""Operator screens of webhooks: to look at, and to switch off. Secrets are sealed, and not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from tenants.admin import ReadOnly, Switches
from tenants.models import User
from webhooks.endpoints import switch_endpoint
from webhooks.hooks import switch_hook
from webhooks.models import Attempt, Delivery, Endpoint, IncomingDelivery, IncomingHook

if TYPE_CHECKING:
    from django.db.models import Model

    Inline = admin.TabularInline[Any, Any]
else:
    Inline = admin.TabularInline


@admin.register(Endpoint)
class Endpoints(Switches):
    exclude = ("url", "sealed_secret", "sealed_previous", "lease_key")
    list_display = (
        "address",
        "organization",
        "enabled",
        "off_because",
        "failures",
        "succeeded_at",
        "created_at",
    )
    list_filter = ("enabled", "off_because", ("failing_since", admin.EmptyFieldListFilter))
    list_select_related = ("organization",)
    search_fields = ("url", "description", "organization__name", "organization__slug", "=id")
    on_enable = "What happens from now on is sent there."
    on_disable = "Nothing is sent there; what still waited is given up."

    related = ("organization",)

    def switch(self, request: HttpRequest, row: Endpoint, *, enabled: bool, reason: str) -> None:
        by, now = cast(User, request.user), timezone.now()
        switch_endpoint(row, enabled=enabled, by=by, now=now, operator=True, reason=reason)


class Attempts(Inline):
    model = Attempt
    fields = readonly_fields = (
        "number",
        "started_at",
        "ended_at",
        "status",
        "milliseconds",
        "problem",
        "next_at",
    )
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


@admin.register(Delivery)
class Deliveries(ReadOnly):
    """The payload is the tenant's own business and is left out."""

    exclude = ("payload",)
    list_display = ("message_id", "kind", "endpoint", "state", "tries", "problem", "created_at", "ended_at")
    list_filter = ("state", "kind", "created_at")
    list_select_related = ("endpoint",)
    search_fields = ("=message_id", "endpoint__url", "endpoint__organization__name", "=id")
    date_hierarchy = "created_at"
    inlines = (Attempts,)


@admin.register(Attempt)
class AttemptList(ReadOnly):
    """What a receiver answered is left out: a stranger's text for the tenant alone."""

    exclude = ("answer",)
    list_display = ("delivery", "number", "status", "milliseconds", "problem", "started_at", "next_at")
    list_filter = ("status", "started_at")
    list_select_related = ("delivery",)
    search_fields = ("=delivery__message_id", "problem")


@admin.register(IncomingHook)
class IncomingHooks(Switches):
    exclude = ("sealed_secret", "sealed_previous")
    list_display = ("name", "project", "kind", "label", "author", "enabled", "used_at", "created_at")
    list_filter = ("kind", "enabled", "used_at")
    list_select_related = ("project", "author")
    search_fields = ("name", "project__name", "author__email", "=id")
    on_enable = "It takes deliveries again."
    on_disable = "It takes nothing."

    related = ("project__organization",)

    def switch(self, request: HttpRequest, row: IncomingHook, *, enabled: bool, reason: str) -> None:
        switch_hook(row, enabled=enabled, by=cast(User, request.user), operator=True, reason=reason)


@admin.register(IncomingDelivery)
class IncomingDeliveries(ReadOnly):
    list_display = ("delivery_id", "hook", "accepted", "code", "repeated", "remote", "received_at")
    list_filter = ("accepted", "code", "received_at")
    list_select_related = ("hook",)
    search_fields = ("=delivery_id", "hook__name", "=remote", "=change_id")
    date_hierarchy = "received_at"
