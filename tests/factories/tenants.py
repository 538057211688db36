"""The smallest valid people, organizations, projects and tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from tenants.members import digest_of, issue_token
from tenants.models import ApiToken, Invitation, Membership, Organization, Project, Role, User

_numbers = count(1)

PASSWORD = "correct horse battery staple"


def make_user(email: str = "", **more: Any) -> User:
    """A person. Without a password by default: hashing one costs more than most tests."""
    password = more.pop("password", None)
    return User.objects.create_user(email or f"person{next(_numbers)}@example.org", password, **more)


def make_organization(*, owner: User | None = None, **more: Any) -> Organization:
    """An organization; with an owner only when one is given."""
    number = next(_numbers)
    fields = {"slug": f"org-{number}", "name": f"Organization {number}"} | more
    organization: Organization = Organization.objects.create(**fields)
    if owner is not None:
        make_membership(organization, owner, Role.OWNER)
    return organization


def make_membership(organization: Organization, user: User, role: Role = Role.MEMBER) -> Membership:
    membership: Membership = Membership.objects.create(organization=organization, user=user, role=role)
    return membership


def make_member(organization: Organization | None = None, role: Role = Role.MEMBER, **more: Any) -> User:
    """A new person with that role in the organization."""
    user = make_user(**more)
    make_membership(organization or make_organization(), user, role)
    return user


def make_project(organization: Organization | None = None, **more: Any) -> Project:
    number = next(_numbers)
    fields = {"slug": f"project-{number}", "name": f"Project {number}"} | more
    project: Project = Project.objects.create(organization=organization or make_organization(), **fields)
    return project


def make_token(
    user: User, organization: Organization, *, scopes: Iterable[str] = ("read",), **more: Any
) -> tuple[ApiToken, str]:
    """The row and its plain text. `user` must be a member."""
    return issue_token(user, organization, name="a token", scopes=scopes, by=user, **more)


def make_invitation(organization: Organization | None = None, **more: Any) -> tuple[Invitation, str]:
    """An open invitation and the secret of its link."""
    number = next(_numbers)
    plain = more.pop("plain", f"secret-of-invitation-{number}")
    now = timezone.now()
    fields = {
        "email": f"guest{number}@example.org",
        "digest": digest_of(plain),
        "sent_at": now,
        "expires_at": now + timedelta(days=7),
    } | more
    invitation: Invitation = Invitation.objects.create(
        organization=organization or make_organization(), **fields
    )
    return invitation, plain


def bearer(plain: str) -> dict[str, Any]:
    """Keyword arguments for a test client that comes with this token."""
    return {"HTTP_AUTHORIZATION": f"Bearer {plain}"}
