"""Browser: Preflights: what would keep attempts on a project from succeeding, before any money is spent."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from tasks.pages.live import mark_of, show
from tasks.preflights import (
    COMMANDS_MAX,
    KEPT_MAX,
    cancel_preflight,
    preflight_for,
    preflights_of,
    request_preflight,
    suggested_commands,
)
from tasks.promotion import main_of
from tasks.states import OPEN_PREFLIGHTS
from tenants.access import project_for, require_role
from tenants.forms import attempt
from tenants.idempotency import once
from tenants.models import Project, Role, User

TEXT_CHARACTERS_MAX = 25_000


class PreflightForm(forms.Form):
    commands = forms.CharField(
        label="Commands",
        required=False,
        max_length=TEXT_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 4, "class": "code-input", "spellcheck": "false"}),
        help_text=f"One a line, as in criteria, at most {COMMANDS_MAX}. Each runs in a sandbox on a fresh checkout.",
    )
    prepares = forms.BooleanField(
        label="Install the dependencies first",
        required=False,
        help_text="What the lock files ask for and is not there yet. Needs the network.",
    )

    def wanted(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["commands"].splitlines() if line.strip()]


@require_http_methods(["GET", "POST"])
@login_required
def preflights(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """The last ones, and for admins a new one."""
    at_least = Role.ADMIN if request.method == "POST" else Role.VIEWER
    project = project_for(request.user, project_id, at_least=at_least)
    role = require_role(request.user, project.organization_id, Role.VIEWER)
    rows = list(preflights_of(project)[:KEPT_MAX])
    initial = {"commands": "\n".join(suggested_commands(project)), "prepares": True}
    form = PreflightForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _requested(request, project, form))
        if made is not None:
            return redirect("preflight", made)
    context = {
        "project": project,
        "organization": project.organization,
        "rows": rows,
        "open": next((row for row in rows if row.state in OPEN_PREFLIGHTS), None),
        "form": form,
        "has_source": main_of(project.pk) is not None,
        "is_admin": role >= Role.ADMIN,
    }
    return render(request, "tasks/preflights.html", context, status=400 if form.errors else 200)


def _requested(request: HttpRequest, project: Project, form: PreflightForm) -> str:
    person = cast(User, request.user)

    def ask() -> str:
        prepares = form.cleaned_data["prepares"]
        made = request_preflight(project, form.wanted(), prepares=prepares, by=person, now=timezone.now())
        return str(made.pk)

    return once(person, request.POST, where=request.path, act=ask)


@require_GET
@login_required
def preflight_detail(request: HttpRequest, preflight_id: UUID) -> HttpResponse:
    """What it found; while it works, what it has found so far."""
    found = preflight_for(request.user, preflight_id)
    role = require_role(request.user, found.project.organization_id, Role.VIEWER)
    main = main_of(found.project_id)
    context = {
        "preflight": found,
        "project": found.project,
        "found": found.found,
        "live": found.state in OPEN_PREFLIGHTS,
        "main_moved": bool(found.commit and main and main != found.commit),
        "is_admin": role >= Role.ADMIN,
    }
    mark = mark_of(found.state, found.step, len(found.found.get("checks", ())), found.tries, main)
    return show(request, "tasks/preflight_detail.html", context, mark=mark)


@require_POST
@login_required
def preflight_cancel(request: HttpRequest, preflight_id: UUID) -> HttpResponse:
    found = preflight_for(request.user, preflight_id)
    require_role(request.user, found.project.organization_id, Role.ADMIN)
    cancel_preflight(found, by=cast(User, request.user), now=timezone.now())
    messages.success(request, "The preflight is cancelled.")
    return redirect("preflight", found.pk)
