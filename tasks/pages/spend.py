"""Browser: where the money of an organization went, all of it read from the one ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from budgets.api import DAYS_MAX, calls_for, csv_answer, read_filters
from budgets.models import ReservationState
from budgets.reports import Narrow, narrow
from tasks.pages.spend_figures import spend_figures
from tenants.access import organization_for, role_of
from tenants.errors import NotVisible
from tenants.models import Organization, Project, Role

DAYS_SHOWN = 30


@require_GET
@login_required
def spend(request: HttpRequest) -> HttpResponse:
    """The first organization of a person, or the one of the address."""
    wanted = request.GET.get("organization")
    organizations = list(Organization.objects.visible_to(request.user).order_by("name"))
    if not organizations:
        return redirect("organizations")
    chosen = _chosen(request, wanted) if wanted else organizations[0]
    now = timezone.now()
    filters = _with_period(read_filters(chosen, request.GET), now=now)
    role = role_of(request.user, chosen.pk)
    context = {
        "organization": chosen,
        "organizations": organizations,
        "projects": Project.objects.of_organization(chosen.pk).order_by("name"),
        "call_states": ReservationState.values,
        "role": role,
        "filters": filters,
        "narrowed": filters != _with_period(Narrow(since=filters.since, until=filters.until), now=now),
        **spend_figures(request, chosen, filters, role=role, now=now),
    }
    return render(request, "tasks/spend.html", context)


@require_GET
@login_required
def spend_csv(request: HttpRequest, organization_id: UUID) -> StreamingHttpResponse:
    organization = organization_for(request.user, organization_id, at_least=Role.VIEWER)
    calls = narrow(calls_for(request.user, organization), read_filters(organization, request.GET))
    return csv_answer(request, calls)


def _chosen(request: HttpRequest, wanted: str) -> Organization:
    try:
        return organization_for(request.user, UUID(wanted), at_least=Role.VIEWER)
    except ValueError:
        raise NotVisible("organization") from None


def _with_period(filters: Narrow, *, now: datetime) -> Narrow:
    """Whole UTC days, the last 30 unless the address names others."""
    tomorrow = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    until = filters.until or tomorrow
    since = filters.since or until - timedelta(days=DAYS_SHOWN)
    return replace(filters, since=max(since, until - timedelta(days=DAYS_MAX)), until=until)
