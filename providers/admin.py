"""Operator screens of connectors: to look at, to switch, to say who stands in. Keys are write only, and not here."""

from __future__ import annotations

from typing import cast

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from providers.forms import FallbackForm, plan_initial, plan_wanted
from providers.models import Connector
from providers.saving import set_fallback, switch_connector
from tenants.admin import Switches
from tenants.forms import attempt
from tenants.models import User


@admin.register(Connector)
class ConnectorAdmin(Switches):
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
        "fallback",
        "enabled",
        "version",
        "created_at",
        "updated_at",
    )
    actions = (*Switches.actions, "stand_ins")
    on_disable = "Nobody can call through it, from the next call on."

    @admin.display(boolean=True, description="key stored")
    def with_key(self, connector: Connector) -> bool:
        return connector.has_key

    related = ("organization",)

    def switch(self, request: HttpRequest, row: Connector, *, enabled: bool, reason: str) -> None:
        by = cast(User, request.user)
        switch_connector(row, enabled=enabled, by=by, operator=True, reason=reason)

    @admin.action(description="Set the stand-ins…", permissions=["act"])
    def stand_ins(self, request: HttpRequest, chosen: QuerySet[Connector]) -> HttpResponse | None:
        rows = list(chosen.select_related("organization")[:2])
        if len(rows) != 1:
            self.message_user(
                request, "Choose one connector: each has stand-ins of its own.", messages.WARNING
            )
            return None
        (connector,) = rows
        form = FallbackForm(
            request.POST if "save" in request.POST else None, initial=plan_initial(connector.fallback)
        )
        if form.is_valid():
            plan = plan_wanted(dict(form.cleaned_data))
            by = cast(User, request.user)
            if attempt(form, lambda: set_fallback(connector, plan, by=by, operator=True)) is not None:
                self.message_user(request, f"{connector}: saved. The next call goes by it.", messages.SUCCESS)
                return None
        context = {
            **self.admin_site.each_context(request),
            "title": f"Stand-ins of {connector.name}",
            "connector": connector,
            "form": form,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/providers/stand_ins.html", context)
