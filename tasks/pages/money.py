"""Browser: raise a limit, after seeing what that will reopen."""

from __future__ import annotations

from typing import cast
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from budgets.keys import MeterKind
from budgets.limits import read_limit
from tasks import reads
from tasks.models import Change
from tasks.pages.forms import RaiseForm
from tasks.pages.stops import METER_LABELS, stop_card
from tasks.raises import Raised, RaisePreview, preview_raise, raise_budget
from tenants.access import require_role, role_of
from tenants.forms import attempt
from tenants.models import Role, User


@require_http_methods(["GET", "POST"])
@login_required
def raise_limit(request: HttpRequest, change_id: UUID) -> HttpResponse:
    """First the preview, then the raise: the same form, two buttons."""
    change = reads.change_for(request.user, change_id)
    require_role(request.user, change.organization_id, Role.ADMIN)
    form = RaiseForm(request.POST or None, initial=_initial(request))
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
        "meters": reads.meters_of(change, now=timezone.now()),
        "labels": METER_LABELS,
        "stop": stop_card(change.stop_limit, change.stop_detail),
        "role": role_of(request.user, change.organization_id),
    }
    return render(request, "tasks/raise.html", context, status=400 if form.errors else 200)


def _initial(request: HttpRequest) -> dict[str, str]:
    return {
        "meter": request.GET.get("meter", "change"),
        "to": request.GET.get("to", ""),
        "key": f"page-{uuid4()}",
    }


def _preview(change: Change, form: RaiseForm) -> RaisePreview:
    kind = MeterKind(form.cleaned_data["meter"])
    to = read_limit(kind, form.cleaned_data["to"], field="to")
    return preview_raise(change, kind, to, now=timezone.now())


def _raise(request: HttpRequest, change: Change, form: RaiseForm) -> Raised:
    kind = MeterKind(form.cleaned_data["meter"])
    return raise_budget(
        change=change,
        kind=kind,
        to=read_limit(kind, form.cleaned_data["to"], field="to"),
        by=cast(User, request.user),
        reason=form.cleaned_data["reason"],
        key=form.cleaned_data["key"],
        now=timezone.now(),
    )


def _words(change: Change, raised: Raised) -> str:
    if not raised.reopened:
        return f"{change.key}: the limit is raised."
    names = ", ".join(task.key for task in raised.reopened)
    return f"{change.key}: the limit is raised, and {names} can go on."
