"""Projects in the browser: the list, a new one, and the rules of one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tenants import members as services
from tenants.access import organization_for, project_for, require_role, roles_of
from tenants.caps import CAPS, caps_of
from tenants.errors import RoleTooLow
from tenants.forms import ProjectForm, SettingsForm, attempt
from tenants.idempotency import once
from tenants.models import Organization, Project, Role
from tenants.pages.people import person_of
from tenants.projects import change_project

FORM = require_http_methods(["GET", "HEAD", "POST"])


@require_safe
@login_required
def projects(request: HttpRequest) -> HttpResponse:
    """All that the person can see, by organization; `?archived=1` shows the put-away ones."""
    archived = request.GET.get("archived") == "1"
    rows = (
        Project.objects.visible_to(request.user)
        .filter(archived_at__isnull=not archived)
        .select_related("organization")
        .order_by("organization__name", "name")
    )
    return render(
        request,
        "tenants/projects.html",
        {"projects": rows, "archived": archived, "may_make": bool(_where_admin(request))},
    )


@FORM
@login_required
def project_new(request: HttpRequest) -> HttpResponse:
    choices = _where_admin(request)
    if not choices:
        raise RoleTooLow(Role.ADMIN.label)
    form = ProjectForm(
        request.POST or None, organizations=choices, initial={"organization": request.GET.get("organization")}
    )
    if request.method == "POST" and form.is_valid():
        wanted = dict(form.cleaned_data)
        organization = organization_for(request.user, UUID(wanted.pop("organization")), at_least=Role.ADMIN)
        made = attempt(form, lambda: _made(request, organization, wanted))
        if made is not None:
            messages.success(request, f"{wanted['name']} is there. Now bring its repository in.")
            return redirect(_next_page("repository", made))
    return render(request, "tenants/project_new.html", {"form": form})


@FORM
@login_required
def project(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """The rules of a project: a form for admins, facts for everybody else."""
    at_least = Role.ADMIN if request.method == "POST" else Role.VIEWER
    found = project_for(request.user, project_id, at_least=at_least)
    role = require_role(request.user, found.organization_id, Role.VIEWER)
    form = SettingsForm(
        request.POST or None, owner=role >= Role.OWNER, initial=SettingsForm.initial_of(found)
    )
    if request.method == "POST" and form.is_valid():
        wanted = form.settings()
        if attempt(form, lambda: change_project(found, wanted, by=person_of(request), now=timezone.now())):
            messages.success(request, "The settings are saved.")
            return redirect("project", found.pk)
    context: dict[str, Any] = {
        "project": found,
        "organization": found.organization,
        "form": form,
        "is_admin": role >= Role.ADMIN,
        "deployment_allows_opus": settings.PLANE.allow_opus,
        "my_role": role,
        "caps": [
            (cap.label, f"{caps_of(found.caps)[name]:,}", name in found.caps) for name, cap in CAPS.items()
        ],
    }
    return render(request, "tenants/project.html", context)


@require_POST
@login_required
def project_archive(request: HttpRequest, project_id: UUID) -> HttpResponse:
    """Put a project away, or take it out again. Nothing is deleted."""
    found = project_for(request.user, project_id, at_least=Role.ADMIN)
    archived = request.POST.get("archived") == "1"
    change_project(found, {"archived": archived}, by=person_of(request), now=timezone.now())
    messages.success(request, f"{found.name} is {'archived' if archived else 'back'}.")
    return redirect("project", found.pk)


def _made(request: HttpRequest, organization: Organization, wanted: dict[str, Any]) -> str:
    person = person_of(request)
    return once(
        person,
        request.POST,
        where=request.path,
        act=lambda: str(services.create_project(organization, **wanted, by=person).pk),
    )


def _next_page(name: str, project_id: str) -> str:
    """The page of a floor above, where there is one."""
    try:
        return reverse(name, args=[project_id])
    except NoReverseMatch:
        return reverse("project", args=[project_id])


def _where_admin(request: HttpRequest) -> list[tuple[str, str]]:
    """The organizations where this person may make a project, as choices of a form."""
    admin_of = [pk for pk, role in roles_of(person_of(request)).items() if role >= Role.ADMIN]
    rows = Organization.objects.visible_to(request.user).filter(pk__in=admin_of).order_by("name")
    return [(str(one.pk), one.name) for one in rows]
