"""Operator screens of connectors: to look at, to enable and to disable. Keys are write only, and not here."""

from __future__ import annotations

from typing import cast

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from providers.models import Connector
from providers.saving import switch_connector
from tenants.admin import ReadOnly
from tenants.models import User


@admin.register(Connector)
class ConnectorAdmin(ReadOnly):
    list_display = ("name", "organization", "kind", "base_url", "with_key", "enabled", "updated_at")
    list_filter = ("kind", "enabled")
    search_fields = ("name", "organization__name", "organization__slug")
    list_select_related = ("organization",)
    fields = (
        "id",
        "organization",
        "name",
        "kind",
        "base_url",
        "with_key",
        "headers",
        "config",
        "enabled",
        "version",
        "created_at",
        "updated_at",
    )
    actions = ("enable", "disable")

    @admin.display(boolean=True, description="key stored")
    def with_key(self, connector: Connector) -> bool:
        return connector.has_key

    @admin.action(description="Enable")
    def enable(self, request: HttpRequest, chosen: QuerySet[Connector]) -> None:
        self._switch(request, chosen, enabled=True)

    @admin.action(description="Disable: nobody can call through it")
    def disable(self, request: HttpRequest, chosen: QuerySet[Connector]) -> None:
        self._switch(request, chosen, enabled=False)

    def _switch(self, request: HttpRequest, chosen: QuerySet[Connector], *, enabled: bool) -> None:
        """An operator acts on the deployment: audited as themselves, whatever their role in the organization."""
        for connector in chosen.select_related("organization"):
            switch_connector(connector, enabled=enabled, by=cast(User, request.user), operator=True)
