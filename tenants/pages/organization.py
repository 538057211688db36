"""One organization in the browser: its members, invitations, tokens and audit list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tenants import invitations
from tenants import members as services
from tenants.access import (
    invitation_of,
    member_of,
    organization_for,
    require_role,
    roles_of,
    token_of,
    tokens_for,
)
from tenants.errors import RoleTooLow
from tenants.forms import InvitationForm, OrganizationForm, RenameForm, RoleForm, TokenForm, attempt
from tenants.idempotency import Shown, once, once_shown
from tenants.models import AuditEntry, Invitation, Membership, Organization, Project, Role
from tenants.pages.people import person_of
from tenants.pages.subjects import told

FORM = require_http_methods(["GET", "HEAD", "POST"])
AUDIT_ROWS = 50
INVITATION_ROWS = 50
LATEST_ROWS = 6


@require_safe
@login_required
def organizations(request: HttpRequest) -> HttpResponse:
    """Straight to the only one; else a choice."""
    mine = list(Organization.objects.visible_to(request.user).order_by("name"))
    if len(mine) == 1:
        return redirect("organization", mine[0].pk)
    roles = roles_of(person_of(request))
    rows = [(one, Role(roles[one.pk]).label) for one in mine if one.pk in roles]
    return render(request, "tenants/organizations.html", {"rows": rows})


@FORM
@login_required
def organization_new(request: HttpRequest) -> HttpResponse:
    person = person_of(request)
    if not person.is_staff:
        raise RoleTooLow("operator")
    form = OrganizationForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _made_organization(request, form.cleaned_data))
        if made is not None:
            messages.success(request, f"{form.cleaned_data['name']} is there, and you own it.")
            return redirect("organization", made)
    return render(request, "tenants/organization_new.html", {"form": form})


@FORM
@login_required
def home(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    at_least = Role.ADMIN if request.method == "POST" else Role.VIEWER
    organization = organization_for(request.user, organization_id, at_least=at_least)
    form = RenameForm(request.POST or None, initial={"name": organization.name})
    if request.method == "POST" and form.is_valid():
        name = form.cleaned_data["name"]
        if attempt(
            form, lambda: services.rename_organization(organization, name=name, by=person_of(request))
        ):
            messages.success(request, "The name is changed.")
            return redirect("organization", organization.pk)
    return _page(
        request,
        "tenants/organization.html",
        organization,
        tab="overview",
        form=form,
        members=_members(request, organization)[: LATEST_ROWS + 1],
        member_count=_members(request, organization).count(),
        projects=Project.objects.visible_to(request.user)
        .of_organization(organization.pk)
        .filter(archived_at__isnull=True)
        .order_by("name"),
        latest=list(told(_audit(request, organization)[:LATEST_ROWS], organization)),
    )


@never_cache
@FORM
@login_required
def members(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """Everybody there; an admin also invites. A new link is shown this once, in this answer only."""
    at_least = Role.ADMIN if request.method == "POST" else Role.VIEWER
    organization = organization_for(request.user, organization_id, at_least=at_least)
    form = InvitationForm(
        request.POST or None, up_to=require_role(request.user, organization.pk, Role.VIEWER)
    )
    fresh: dict[str, Any] = {}
    if request.method == "POST" and form.is_valid():
        email, role = form.cleaned_data["email"], Role(form.cleaned_data["role"])
        made = attempt(form, lambda: _invited(request, organization, email, role))
        if made is not None:
            fresh = _sent(request, organization, made)
            form = InvitationForm(up_to=require_role(request.user, organization.pk, Role.VIEWER))
    return _members_page(request, organization, form=form, **fresh)


@require_POST
@login_required
def member_role(request: HttpRequest, organization_id: UUID, user_id: UUID) -> HttpResponse:
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    member = member_of(organization, user_id)
    form = RoleForm(request.POST)
    if form.is_valid():
        role = Role(form.cleaned_data["role"])
        services.change_role(organization, member.user, role, by=person_of(request))
        messages.success(request, f"{member.user.email} is now {role.label}.")
    return redirect("organization-members", organization.pk)


@FORM
@login_required
def member_remove(request: HttpRequest, organization_id: UUID, user_id: UUID) -> HttpResponse:
    """Asked first: it ends the tokens too. Everybody may leave by themselves."""
    person = person_of(request)
    organization = organization_for(person, organization_id, at_least=Role.VIEWER)
    member = member_of(organization, user_id)
    leaving = member.user_id == person.pk
    if not leaving:
        services.may_grant(person, organization, Role(member.role))
    if request.method == "POST":
        services.remove_member(organization, member.user, by=person)
        messages.success(request, f"{member.user.email} is no member of {organization.name} any more.")
        return redirect("organizations") if leaving else redirect("organization-members", organization.pk)
    return _page(
        request, "tenants/member_remove.html", organization, tab="members", member=member, leaving=leaving
    )


@never_cache
@require_POST
@login_required
def invitation_act(request: HttpRequest, organization_id: UUID, invitation_id: UUID) -> HttpResponse:
    """Send an open invitation again, or end it."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    invitation = invitation_of(organization, invitation_id)
    person, now = person_of(request), timezone.now()
    if request.POST.get("act") == "revoke":
        invitations.revoke(invitation, by=person, now=now)
        messages.success(request, f"The invitation of {invitation.email} is over.")
        return redirect("organization-members", organization.pk)
    renewed = once_shown(
        person,
        request.POST,
        where=request.path,
        act=lambda: (str(invitation.pk), invitations.renew(invitation, by=person, now=now)),
    )
    form = InvitationForm(up_to=require_role(request.user, organization.pk, Role.ADMIN))
    return _members_page(request, organization, form=form, **_sent(request, organization, renewed))


@never_cache
@FORM
@login_required
def tokens(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """Yours, or for an admin all. A new token's text is in this one answer and nowhere else."""
    person = person_of(request)
    organization = organization_for(person, organization_id, at_least=Role.VIEWER)
    form = TokenForm(request.POST or None)
    made = None
    if request.method == "POST" and form.is_valid():
        made = attempt(form, lambda: _issued(request, organization, form.cleaned_data))
        form = form if made is None else TokenForm()
    rows = tokens_for(person, organization).order_by("revoked_at", "-created_at")
    return _page(
        request, "tenants/tokens.html", organization, tab="tokens", form=form, made=made, tokens=rows,
        now=timezone.now(),
    )  # fmt: skip


@require_POST
@login_required
def token_revoke(request: HttpRequest, organization_id: UUID, token_id: UUID) -> HttpResponse:
    person = person_of(request)
    organization = organization_for(person, organization_id, at_least=Role.VIEWER)
    token = token_of(person, organization, token_id)
    services.revoke_token(token, by=person, now=timezone.now())
    messages.success(request, f"The token “{token.name}” is revoked. It opens nothing any more.")
    return redirect("organization-tokens", organization.pk)


@require_safe
@login_required
def audit(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """Newest first; `before` is the id of the last row of the page before."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    wanted = {name: request.GET.get(name, "").strip()[:100] for name in ("who", "what", "before")}
    rows = _audit(request, organization)
    if wanted["who"]:
        rows = rows.filter(actor__email__icontains=wanted["who"])
    if wanted["what"]:
        rows = rows.filter(action__startswith=wanted["what"])
    if wanted["before"].isascii() and wanted["before"].isdigit() and len(wanted["before"]) < 19:
        rows = rows.filter(pk__lt=int(wanted["before"]))
    page = list(rows[: AUDIT_ROWS + 1])
    more = page[AUDIT_ROWS - 1].pk if len(page) > AUDIT_ROWS else None
    return _page(
        request,
        "tenants/audit.html",
        organization,
        tab="audit",
        rows=list(told(page[:AUDIT_ROWS], organization)),
        wanted=wanted,
        more=more,
    )


def _members_page(request: HttpRequest, organization: Organization, **context: Any) -> HttpResponse:
    now = timezone.now()
    sent = (
        Invitation.objects.visible_to(request.user)
        .of_organization(organization.pk)
        .filter(accepted_at__isnull=True, revoked_at__isnull=True)
    )
    return _page(
        request,
        "tenants/members.html",
        organization,
        tab="members",
        members=_members(request, organization),
        invitations=[
            (one, invitations.state_of(one, now=now))
            for one in sent.select_related("invited_by").order_by("-sent_at")[:INVITATION_ROWS]
        ],
        roles=list(Role),
        **context,
    )


def _page(
    request: HttpRequest, template: str, organization: Organization, *, tab: str, **context: Any
) -> HttpResponse:
    role = require_role(request.user, organization.pk, Role.VIEWER)
    mine = {"organization": organization, "tab": tab, "my_role": role, "is_admin": role >= Role.ADMIN}
    return render(request, template, mine | context)


def _members(request: HttpRequest, organization: Organization) -> Any:
    rows = Membership.objects.visible_to(request.user).of_organization(organization.pk).select_related("user")
    return rows.order_by("-role", "user__email")


def _audit(request: HttpRequest, organization: Organization) -> Any:
    return (
        AuditEntry.objects.visible_to(request.user)
        .of_organization(organization.pk)
        .select_related("actor")
        .order_by("-pk")
    )


def _made_organization(request: HttpRequest, wanted: dict[str, Any]) -> str:
    person = person_of(request)
    return once(
        person,
        request.POST,
        where=request.path,
        act=lambda: str(services.create_organization(**wanted, owner=person).pk),
    )


def _invited(request: HttpRequest, organization: Organization, email: str, role: Role) -> Shown:
    person = person_of(request)

    def invite() -> tuple[str, str]:
        made, plain = invitations.invite(organization, email, role, by=person, now=timezone.now())
        return str(made.pk), plain

    return once_shown(person, request.POST, where=request.path, act=invite)


def _issued(request: HttpRequest, organization: Organization, wanted: dict[str, Any]) -> Shown:
    person, now, days = person_of(request), timezone.now(), wanted["days"]

    def issue() -> tuple[str, str]:
        token, plain = services.issue_token(
            person,
            organization,
            name=wanted["name"],
            scopes=wanted["scopes"],
            by=person,
            expires_at=now + timedelta(days=days) if days else None,
            now=now,
        )
        return str(token.pk), plain

    return once_shown(person, request.POST, where=request.path, act=issue)


def _sent(request: HttpRequest, organization: Organization, shown: Shown) -> dict[str, Any]:
    """The letter goes out once; the answer to a second click shows the same link."""
    invitation = invitation_of(organization, UUID(shown.id))
    if not shown.secret:
        return {"fresh": invitation, "again": True}
    link = request.build_absolute_uri(reverse("invitation-accept", args=[shown.secret]))
    posted = shown.again or invitations.send(invitation, link)
    return {"fresh": invitation, "link": link, "posted": posted, "again": shown.again}
