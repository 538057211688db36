"""Browser: try a connector, and see what came back."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST

from agents.connector_test import Tried, try_connector
from providers.saving import connector_of
from tenants.access import organization_for
from tenants.models import Role, User


@require_POST
@login_required
def connector_test(request: HttpRequest, organization_id: UUID, connector_id: UUID) -> HttpResponse:
    """The smallest metered call. A fragment for the page's own form; without scripts, a message on the page."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    connector = connector_of(organization, connector_id)
    tried = try_connector(connector, by=cast(User, request.user), now=timezone.now())
    if request.headers.get("HX-Request") == "true":
        return render(request, "providers/_tried.html", {"tried": tried})
    (messages.success if tried.answered else messages.error)(request, _words(connector.name, tried))
    return redirect("connector", organization.pk, connector.pk)


def _words(name: str, tried: Tried) -> str:
    if not tried.answered:
        return f"{name} did not answer: {tried.problem} ({tried.end})"
    cost = "an unknown price" if tried.cost is None else str(tried.cost)
    return f"{name} answered {tried.text!r} as {tried.model}, for {cost}."


urlpatterns = [
    path(
        "organizations/<uuid:organization_id>/connectors/<uuid:connector_id>/test",
        connector_test,
        name="connector-test",
    ),
]
