"""Browser: raise a limit, after seeing what that will reopen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from budgets.keys import MeterKind
from budgets.money import MICRO_PER_USD, Usd
from tasks import reads
from tasks.models import Change
from tasks.pages.forms import RaiseForm
from tasks.pages.stops import METER_LABELS, StopCard, stop_card
from tasks.raises import Raised, RaisePreview, preview_raise, raise_budget
from tenants.access import require_role, role_of
from tenants.forms import attempt
from tenants.models import Role, User


@require_http_methods(["GET", "POST"])
@login_required
def raise_limit(request: HttpRequest, change_id: UUID) -> HttpResponse:
    """First the preview, then the raise: the same form, two buttons."""
    change = reads.named_change(request.user, change_id)
    require_role(request.user, change.organization_id, Role.ADMIN)
    stop = stop_card(change.stop_limit, change.stop_detail)
    meters = reads.meters_of(change, now=timezone.now())
    form = RaiseForm(request.POST or None, initial=_initial(request, stop, meters))
    preview = None
    if request.method == "POST" and form.is_valid():
        if "raise" in request.POST:
            raised = attempt(form, lambda: _raise(request, change, form))
            if raised is not None:
                messages.success(request, _words(change, raised))
                return redirect("change", change.pk)
        else:
            preview = attempt(form, lambda: _preview(change, form))
    context = {
        "change": change,
        "form": form,
        "preview": preview,
        "preview_label": METER_LABELS.get(str(preview.kind), "") if preview else "",
        "meters": meters,
        "labels": METER_LABELS,
        "stop": stop,
        "role": role_of(request.user, change.organization_id),
    }
    return render(request, "tasks/raise.html", context, status=400 if form.errors else 200)


def _initial(
    request: HttpRequest, stop: StopCard | None, meters: Sequence[reads.MeterFigures]
) -> dict[str, str]:
    """The limit that stopped the work, and an amount that lets it go on for a while."""
    ways = [way for way in (stop.ways_out if stop else ()) if way.act == "raise"]
    meter = request.GET.get("meter") or (ways[0].meter if ways else MeterKind.CHANGE.value)
    least = next((way.at_least for way in ways if way.meter == meter), None)
    limit = next((each.limit for each in meters if each.kind == meter), None)
    to = request.GET.get("to") or suggested_limit(limit, least)
    return {"meter": meter, "to": to, "key": f"page-{uuid4()}"}


def suggested_limit(limit: Usd | int | None, least: Usd | int | None) -> str:
    """Twice the limit of now, or what the refused call needs when that is more; "" where there is no limit."""
    if limit is None:
        return ""
    if isinstance(limit, Usd):
        wanted = max(limit.micro * 2, least.micro if isinstance(least, Usd) else 0)
        cents = -(-wanted * 100 // MICRO_PER_USD)
        return f"{cents // 100}.{cents % 100:02}"
    return str(max(limit * 2, least if isinstance(least, int) else 0))


def _preview(change: Change, form: RaiseForm) -> RaisePreview:
    kind = MeterKind(form.cleaned_data["meter"])
    return preview_raise(change, kind, form.limit(kind), now=timezone.now())


def _raise(request: HttpRequest, change: Change, form: RaiseForm) -> Raised:
    kind = MeterKind(form.cleaned_data["meter"])
    return raise_budget(
        change=change,
        kind=kind,
        to=form.limit(kind),
        by=cast(User, request.user),
        reason=form.cleaned_data["reason"],
        key=form.cleaned_data["key"],
        expires_at=form.expires_at(),
        now=timezone.now(),
    )


def _words(change: Change, raised: Raised) -> str:
    if not raised.reopened:
        return f"{change.key}: the limit is raised."
    names = ", ".join(task.key for task in raised.reopened)
    return f"{change.key}: the limit is raised, and {names} can go on."
