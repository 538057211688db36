"""Browser: the list of Changes, a new one, one Change with everything that it waits for, its plan."""

from __future__ import annotations

import json
from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from tasks import reads
from tasks.changes import cancel_change, pause_change, resume_change, retry_change, start_draft, submit_change
from tasks.models import Change
from tasks.pages.forms import ChangeForm, PlanForm
from tasks.pages.live import mark_of, show
from tasks.pages.panels import change_panels, criteria_strip
from tasks.planning import approve_plan, estimate_plan, plan_on
from tasks.states import ChangeState
from tasks.wanted import read_wanted
from tenants.access import project_for, require_role, role_of
from tenants.errors import InvalidInput
from tenants.forms import attempt
from tenants.models import Project, Role, User

ROWS_PER_PAGE = 30


@require_GET
@login_required
def change_list(request: HttpRequest) -> HttpResponse:
    """All Changes that a person may see, with filters in the address."""
    wanted = reads.ChangeFilter.parse(request.GET)
    page = Paginator(reads.changes_for(request.user, wanted), ROWS_PER_PAGE).get_page(request.GET.get("page"))
    changes = list(page.object_list)
    money, checks = reads.money_of(changes), reads.latest_checks(changes)
    rows = [(change, money[change.pk], criteria_strip(change, checks)) for change in changes]
    context = {
        "rows": rows,
        "page": page,
        "wanted": wanted,
        "states": list(ChangeState),
        "projects": _projects(request),
    }
    facts = [(c.pk, c.state, c.paused_at, c.updated_at, m.spent, m.held, strip) for c, m, strip in rows]
    return show(request, "tasks/change_list.html", context, mark=mark_of(*facts))


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
            change = submit_change(project, wanted, by=_person(request), now=timezone.now())
        except InvalidInput as error:
            form.wrong(error)
        else:
            return redirect("change", change.pk)
    status = 400 if form.is_wrong else 200
    return render(request, "tasks/change_new.html", {"project": project, "form": form}, status=status)


@require_GET
@login_required
def change_choose(request: HttpRequest) -> HttpResponse:
    """Which project the new Change is for; straight on when there is only one."""
    projects = _projects(request)
    if len(projects) == 1:
        return redirect("change-new", projects[0].pk)
    return render(request, "tasks/change_choose.html", {"projects": projects})


@require_GET
@login_required
def change_detail(request: HttpRequest, change_id: UUID) -> HttpResponse:
    change = reads.change_for(request.user, change_id)
    panels = change_panels(change, now=timezone.now())
    context = {"change": change, "role": role_of(request.user, change.organization_id), **panels.as_context()}
    return show(request, "tasks/change_detail.html", context, mark=panels.mark)


@require_POST
@login_required
def change_act(request: HttpRequest, change_id: UUID, act: str) -> HttpResponseRedirect:
    """Start, pause, resume, cancel or retry. The address names the act; the service knows its rules."""
    change = _change(request, change_id, Role.MEMBER)
    now, person = timezone.now(), _person(request)
    match act:
        case "start":
            start_draft(change, by=person, now=now)
        case "pause":
            pause_change(change, by=person, now=now)
        case "resume":
            resume_change(change, by=person, now=now)
        case "cancel":
            cancel_change(change, by=person, now=now)
        case _:
            retry_change(change, by=person, key=f"page-{change.pk}-{now.timestamp()}", now=now)
    messages.success(request, f"{change.key}: {DONE_WORDS[act]}.")
    return redirect("change", change.pk)


DONE_WORDS = {
    "start": "handed over",
    "pause": "paused; what runs goes on to its end",
    "resume": "goes on",
    "cancel": "cancelled",
    "retry": "is tried again",
}


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
        "estimate": estimate_plan(plan) if plan else None,
        "waits": change.state == ChangeState.AWAITING_APPROVAL,
        "role": role_of(request.user, change.organization_id),
    }
    return render(request, "tasks/change_plan.html", context, status=400 if form.errors else 200)


def _approved(request: HttpRequest, change: Change, form: PlanForm) -> bool:
    text = form.cleaned_data["plan"]
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
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("plan", f"is no JSON ({error})", "Mend it, or reload to start over.") from None


def _change(request: HttpRequest, change_id: UUID, at_least: Role) -> Change:
    change = reads.change_for(request.user, change_id)
    require_role(request.user, change.organization_id, at_least)
    return change


def _projects(request: HttpRequest) -> list[Project]:
    found = Project.objects.visible_to(request.user).filter(archived_at__isnull=True)
    return list(found.select_related("organization").order_by("name"))


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)
