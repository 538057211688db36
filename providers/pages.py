"""The connectors of an organization in the browser."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from providers.forms import ConnectorForm, NewConnectorForm
from providers.models import Connector
from providers.saving import connector_of, save_connector, switch_connector
from providers.stand_ins import standing_in_for
from tenants.access import organization_for, require_role
from tenants.forms import attempt
from tenants.idempotency import once
from tenants.models import Organization, Role
from tenants.pages.people import person_of

FORM = require_http_methods(["GET", "HEAD", "POST"])


@never_cache
@FORM
@login_required
def connectors(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """All of them, and a form for a new one."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    taken = Connector.objects.of_organization(organization.pk).filter(name="main").exists()
    form = NewConnectorForm(request.POST or None, initial={"name": "" if taken else "main"})
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _make(organization, form, request))
        if made is not None:
            messages.success(request, f"Connector {made} is there.")
            return redirect("connectors", organization.pk)
    rows = Connector.objects.of_organization(organization.pk).order_by("name")
    return _page(request, "providers/connectors.html", organization, form=form, connectors=rows)


@never_cache
@FORM
@login_required
def connector(request: HttpRequest, organization_id: UUID, connector_id: UUID) -> HttpResponse:
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    known = connector_of(organization, connector_id)
    form = ConnectorForm.of(known, request.POST or None)
    if request.method == "POST" and form.is_valid():
        saved = attempt(
            form,
            lambda: save_connector(
                organization,
                name=known.name,
                kind=known.kind,
                enabled=known.enabled,
                by=person_of(request),
                **form.wanted(),
            ),
        )
        if saved is not None:
            messages.success(request, "Saved. The next call goes by it.")
            return redirect("connector", organization.pk, known.pk)
    return _page(
        request,
        "providers/connector.html",
        organization,
        form=form,
        connector=known,
        stands_in_for=standing_in_for(known),
    )


@require_POST
@login_required
def connector_switch(request: HttpRequest, organization_id: UUID, connector_id: UUID) -> HttpResponse:
    """Enable or disable, as the form's field `enabled` says."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    enabled = request.POST.get("enabled") == "true"
    known = switch_connector(connector_of(organization, connector_id), enabled=enabled, by=person_of(request))
    messages.success(
        request, f"{known.name} is {'enabled' if known.enabled else 'disabled: nobody can call through it'}."
    )
    return redirect("connector", organization.pk, known.pk)


def _make(organization: Organization, form: NewConnectorForm, request: HttpRequest) -> str:
    """Its name."""
    person = person_of(request)
    return once(
        person,
        request.POST,
        where=request.path,
        act=lambda: str(save_connector(organization, **form.wanted(), new=True, by=person).name),
    )


def _page(request: HttpRequest, template: str, organization: Organization, **facts: Any) -> HttpResponse:
    role = require_role(request.user, organization.pk, Role.ADMIN)
    more = {"organization": organization, "my_role": role, "is_admin": True}
    return render(request, template, more | facts)


_ONE = "organizations/<uuid:organization_id>/connectors"
urlpatterns = [
    path(_ONE, connectors, name="connectors"),
    path(_ONE + "/<uuid:connector_id>", connector, name="connector"),
    path(_ONE + "/<uuid:connector_id>/switch", connector_switch, name="connector-switch"),
]
