"""Browser: a new Change, one Change with everything that it waits for, its plan, its history."""

from __future__ import annotations

import json
from typing import Any, cast
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from agents.jsontext import NotFound, parse_whole
from tasks import reads
from tasks.changes import submit_change
from tasks.models import Change
from tasks.pages.forms import ChangeForm, PlanForm
from tasks.pages.lists import projects_of
from tasks.pages.live import has_seen, mark_of, nothing_new, polls, show
from tasks.pages.panels import change_panels
from tasks.pages.receipts import receipt_row
from tasks.planning import approve_plan, estimate_plan, plan_on
from tasks.preflights import newest_ended
from tasks.states import ChangeState
from tasks.wanted import read_wanted
from tenants.access import project_for, require_role, role_of, roles_of
from tenants.errors import InvalidInput
from tenants.forms import attempt
from tenants.idempotency import FORM_KEY, once
from tenants.models import Role, User

EVENTS_PER_PAGE = 100


@require_http_methods(["GET", "POST"])
@login_required
def change_new(request: HttpRequest, project_id: UUID) -> HttpResponse:
    project = project_for(request.user, project_id, at_least=Role.MEMBER)
    form = ChangeForm.read(request.POST) if request.method == "POST" else ChangeForm.empty()
    if request.method == "POST" and "more" in request.POST:
        form.with_more_rows()
    elif request.method == "POST":
        try:
            wanted = read_wanted(form.as_data(draft="draft" in request.POST))
            person, now = _person(request), timezone.now()
            made = once(
                person,
                request.POST,
                where=request.path,
                act=lambda: str(submit_change(project, wanted, by=person, now=now).pk),
            )
        except InvalidInput as error:
            form.wrong(error)
        else:
            return redirect("change", made)
    status = 400 if form.is_wrong else 200
    # The key that the page had: sent once more, an unchanged form is the same act.
    key = request.POST.get(FORM_KEY) or uuid4()
    context = {"project": project, "form": form, "key": key, "preflight": newest_ended(project)}
    return render(request, "tasks/change_new.html", context, status=status)


@require_GET
@login_required
def change_choose(request: HttpRequest) -> HttpResponse:
    """Which project the new Change is for; straight on when there is only one."""
    projects = projects_of(request)
    if len(projects) == 1:
        return redirect("change-new", projects[0].pk)
    context = {"projects": projects, "alone": not projects and not roles_of(_person(request))}
    return render(request, "tasks/change_choose.html", context)


@require_GET
@login_required
def change_detail(request: HttpRequest, change_id: UUID) -> HttpResponse:
    if polls(request) and has_seen(request, mark_of(*reads.change_pulse(request.user, change_id))):
        return nothing_new()
    change = reads.change_for(request.user, change_id)
    mark = mark_of(*reads.pulse_of(change))
    panels = change_panels(change, now=timezone.now())
    context = {"change": change, "role": role_of(request.user, change.organization_id), **panels.as_context()}
    return show(request, "tasks/change_detail.html", context, mark=mark)


@require_GET
@login_required
def change_history(request: HttpRequest, change_id: UUID) -> HttpResponse:
    """Every event, newest first, with the decisions and their reasons beside."""
    change = reads.named_change(request.user, change_id)
    before = reads.event_id(request.GET.get("before"))
    events = reads.events_of(change).select_related("run").order_by("-id")
    if before:
        events = events.filter(pk__lt=before)
    shown = list(events[: EVENTS_PER_PAGE + 1])
    context = {
        "change": change,
        "events": shown[:EVENTS_PER_PAGE],
        "more": shown[EVENTS_PER_PAGE - 1].pk if len(shown) > EVENTS_PER_PAGE else None,
        "newest": not before,
        "receipts": [receipt_row(each) for each in reads.receipts_of(change).filter(task__isnull=True)],
    }
    return render(request, "tasks/change_history.html", context)


@require_http_methods(["GET", "POST"])
@login_required
def change_plan(request: HttpRequest, change_id: UUID) -> HttpResponse:
    """The plan: read it, edit it, approve it."""
    change = _change(request, change_id, Role.VIEWER)
    form = PlanForm(
        request.POST or None, initial={"plan": json.dumps(change.plan, indent=2, ensure_ascii=False)}
    )
    if request.method == "POST":
        require_role(request.user, change.organization_id, Role.ADMIN)
        if form.is_valid() and _approved(request, change, form):
            messages.success(request, f"{change.key}: the plan is approved.")
            return redirect("change", change.pk)
    plan = plan_on(change)
    context = {
        "change": change,
        "form": form,
        "plan": plan,
        "estimate": estimate_plan(change, plan) if plan else None,
        "waits": change.state == ChangeState.AWAITING_APPROVAL,
        "role": role_of(request.user, change.organization_id),
    }
    return render(request, "tasks/change_plan.html", context, status=400 if form.errors else 200)


def _approved(request: HttpRequest, change: Change, form: PlanForm) -> bool:
    text = form.cleaned_data["plan"].replace("\r\n", "\n")  # as browsers send lines
    unchanged = text.strip() == form.initial["plan"].strip()

    def approve() -> bool:
        approve_plan(
            change,
            by=_person(request),
            edited=None if unchanged else _parsed(text),
            now=timezone.now(),
        )
        return True

    return bool(attempt(form, approve))


def _parsed(text: str) -> Any:
    """As strictly as over REST: of a key that occurs twice nobody can say which one was meant (C88)."""
    found = parse_whole(text)
    if isinstance(found, NotFound):
        raise InvalidInput("plan", f"is no JSON ({found.detail})", "Mend it, or reload to start over.")
    return found.value


def _change(request: HttpRequest, change_id: UUID, at_least: Role) -> Change:
    change = reads.named_change(request.user, change_id)
    require_role(request.user, change.organization_id, at_least)
    return change


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)
