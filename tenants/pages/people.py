"""A person's own page, and the way in by an invitation."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from tenants.forms import JoinForm, attempt
from tenants.invitations import accept, accept_as_new, has_account, open_invitation
from tenants.models import ApiToken, Invitation, Membership, User


def person_of(request: HttpRequest) -> User:
    """Behind `login_required` nobody else arrives."""
    return cast(User, request.user)


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    person = person_of(request)
    mine = Membership.objects.visible_to(person).filter(user=person).select_related("organization")
    living = ApiToken.objects.visible_to(person).filter(user=person, revoked_at__isnull=True)
    return render(
        request,
        "tenants/account.html",
        {"memberships": mine.order_by("organization__name"), "tokens": living.count()},
    )


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def invitation_accept(request: HttpRequest, secret: str) -> HttpResponse:
    """Join with the account one is signed in with, or make the account of the invited address."""
    invitation = open_invitation(secret, now=timezone.now())
    known = has_account(invitation)
    if request.method == "POST" and request.POST.get("act") == "sign_out":
        logout(request)
        return redirect(request.path)
    if request.user.is_authenticated:
        return _join(request, invitation, secret)
    form = JoinForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and not known and form.is_valid():
        user = attempt(form, lambda: accept_as_new(secret, now=timezone.now(), **form.cleaned_data))
        if user is not None:
            login(request, user)  # as new as the account is, no second factor can be set up yet
            messages.success(request, f"Welcome to {invitation.organization.name}.")
            return redirect("/")
    context = {"invitation": invitation, "form": form, "known": known}
    return render(request, "tenants/invitation.html", context)


def _join(request: HttpRequest, invitation: Invitation, secret: str) -> HttpResponse:
    person = person_of(request)
    if request.method == "POST" and person.email == invitation.email:
        accept(secret, user=person, now=timezone.now())
        messages.success(request, f"Welcome to {invitation.organization.name}.")
        return redirect("organization", invitation.organization_id)
    return render(request, "tenants/invitation.html", {"invitation": invitation})
