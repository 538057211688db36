"""Organizations and the people, projects and keys in them: every act checked, locked and audited."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from django.db import IntegrityError, transaction

from tenants import text
from tenants.access import require_role
from tenants.audit import note
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import ApiToken, Membership, Organization, Project, Promotion, Role, Scope, User

TOKEN_PREFIX = "rmt_"  # noqa: S105  # the mark by which scanners find a leaked one
TOKEN_BYTES = 32
# What stays readable of a token, so that a person can tell two apart: the mark and 8 characters.
TOKEN_SHOWN_CHARACTERS = 12
TOKENS_PER_USER_MAX = 50
Row = TypeVar("Row")

assert TOKEN_BYTES >= 16, "a token must not be guessable"


def create_organization(name: str, slug: str, *, owner: User) -> Organization:
    """A new organization with its first owner."""
    name = text.one_line("name", name, characters_max=text.NAME_CHARACTERS_MAX)
    slug = text.slug("slug", slug)
    with transaction.atomic():
        organization: Organization = _unique(
            lambda: Organization.objects.create(name=name, slug=slug), "slug", f"organization called {slug}"
        )
        Membership.objects.create(organization=organization, user=owner, role=Role.OWNER)
        note(organization, owner, "organization.created", slug, after={"name": name, "owner": owner.email})
    return organization


def rename_organization(organization: Organization, *, name: str, by: User) -> Organization:
    """Another name; the short name in addresses stays."""
    name = text.one_line("name", name, characters_max=text.NAME_CHARACTERS_MAX)
    with transaction.atomic():
        require_role(by, organization.pk, Role.ADMIN)
        before, organization.name = organization.name, name
        organization.save(update_fields=["name"])
        note(
            organization,
            by,
            "organization.renamed",
            organization.slug,
            before={"name": before},
            after={"name": name},
        )
    return organization


def add_member(organization: Organization, user: User, role: Role, *, by: User | None) -> Membership:
    """Let `user` in. `by` must reach that role; None is Remit itself (an accepted invitation, a command)."""
    with transaction.atomic():
        if by is not None:
            may_grant(by, organization, role)
        membership: Membership = _unique(
            lambda: Membership.objects.create(organization=organization, user=user, role=role),
            "user",
            f"membership of {user.email}",
        )
        note(organization, by, "member.added", user.email, after={"role": role.label})
    return membership


def change_role(organization: Organization, user: User, role: Role, *, by: User) -> Membership:
    """Give a member another role. Nobody rises above, or touches, someone above themselves; one owner stays."""
    with transaction.atomic():
        membership = _locked_membership(organization, user)
        old = Role(membership.role)
        may_grant(by, organization, max(old, role))
        if old == role:
            return membership
        if old == Role.OWNER:
            _another_owner_stays(organization, user, "role")
        membership.role = role
        membership.save(update_fields=["role"])
        note(
            organization,
            by,
            "member.role_changed",
            user.email,
            before={"role": old.label},
            after={"role": role.label},
        )
    return membership


def remove_member(organization: Organization, user: User, *, by: User) -> None:
    """End a membership, by an admin or by the member. Their tokens for it end too; access ends at once."""
    with transaction.atomic():
        membership = _locked_membership(organization, user)
        old = Role(membership.role)
        if by.pk != user.pk:
            may_grant(by, organization, old)
        if old == Role.OWNER:
            _another_owner_stays(organization, user, "user")
        # Gone, not merely useless: a person who is invited again starts without old keys.
        tokens, _ = ApiToken.objects.of_organization(organization.pk).filter(user=user).delete()
        membership.delete()
        note(
            organization,
            by,
            "member.removed",
            user.email,
            before={"role": old.label, "tokens": tokens},
        )


def create_project(
    organization: Organization,
    *,
    name: str,
    slug: str,
    by: User | None,
    description: str = "",
    connector: str = "main",
    plan_needs_approval: bool = False,
    promotion: Promotion = Promotion.PERSON,
) -> Project:
    """A new project with default rules. Its repository arrives by an import; trust is a later, explicit act."""
    name = text.one_line("name", name, characters_max=text.NAME_CHARACTERS_MAX)
    slug = text.slug("slug", slug)
    description = text.free_text("description", description, characters_max=text.DESCRIPTION_CHARACTERS_MAX)
    connector = text.slug("connector", connector)
    with transaction.atomic():
        project: Project = _unique(
            lambda: Project.objects.create(
                organization=organization,
                name=name,
                slug=slug,
                description=description,
                connector=connector,
                plan_needs_approval=plan_needs_approval,
                promotion=promotion,
            ),
            "slug",
            f"project called {slug} in this organization",
        )
        note(organization, by, "project.created", slug, after={"name": name, "connector": connector})
    return project


def issue_token(
    user: User,
    organization: Organization,
    *,
    name: str,
    scopes: Iterable[str],
    by: User,
    expires_at: datetime | None = None,
    now: datetime | None = None,
) -> tuple[ApiToken, str]:
    """A key for `user` to that one organization, and its plain text, which is nowhere kept.

    With `now`, an `expires_at` that is over already is refused.
    """
    if expires_at is not None and now is not None and expires_at <= now:
        raise InvalidInput("expires_at", "is over already", "Name a time to come, or leave it out.")
    name = text.one_line("name", name, characters_max=text.TOKEN_NAME_CHARACTERS_MAX)
    asked = _scopes(scopes)
    require_role(user, organization.pk, Role.VIEWER)
    plain = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        mine = ApiToken.objects.of_organization(organization.pk).filter(user=user, revoked_at__isnull=True)
        if mine.count() >= TOKENS_PER_USER_MAX:
            raise InvalidInput(
                "", f"you already have {TOKENS_PER_USER_MAX} tokens", "Revoke one first.", code="too_many"
            )
        token: ApiToken = ApiToken.objects.create(
            organization=organization,
            user=user,
            name=name,
            prefix=plain[:TOKEN_SHOWN_CHARACTERS],
            digest=digest_of(plain),
            scopes=asked,
            expires_at=expires_at,
        )
        note(organization, by, "token.issued", name, after={"prefix": token.prefix, "scopes": asked})
    return token, plain


def revoke_token(token: ApiToken, *, by: User, now: datetime) -> None:
    """End a key. A second time changes nothing."""
    with transaction.atomic():
        if not ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
            return
        note(token.organization, by, "token.revoked", token.name, before={"prefix": token.prefix})
    token.revoked_at = now


def digest_of(plain: str) -> str:
    """How a token or an invitation link is kept: 256 random bits need no slow hash."""
    return hashlib.sha256(plain.encode()).hexdigest()


def may_grant(by: User, organization: Organization, role: Role) -> None:
    """Raises unless `by` is an admin who reaches `role`: an admin makes no owner, nobody lifts themselves."""
    own = require_role(by, organization.pk, Role.ADMIN)
    if role > own:
        raise RoleTooLow(role.label)


def _locked_membership(organization: Organization, user: User) -> Membership:
    """The row, while nobody else changes roles here: two owners must not remove each other at once."""
    Organization.objects.select_for_update().get(pk=organization.pk)
    membership: Membership | None = (
        Membership.objects.of_organization(organization.pk).filter(user=user).select_related("user").first()
    )
    if membership is None:
        raise InvalidInput("user", "is not a member here", "Invite them first.", code="not_a_member")
    return membership


def _another_owner_stays(organization: Organization, user: User, field: str) -> None:
    owners = Membership.objects.of_organization(organization.pk).filter(role=Role.OWNER, user__is_active=True)
    if not owners.exclude(user=user).exists():
        raise InvalidInput(
            field,
            "would leave the organization without an owner",
            "Make someone else an owner first.",
            code="last_owner",
        )


def _scopes(scopes: Iterable[str]) -> list[str]:
    asked = sorted({str(scope) for scope in scopes})
    unknown = [scope for scope in asked if scope not in Scope.values]
    if unknown or not asked:
        problem = f"has the unknown scope {unknown[0][:40]!r}" if unknown else "is empty"
        raise InvalidInput("scopes", problem, f"Use one or more of: {', '.join(Scope.values)}.")
    return asked


def _unique(create: Callable[[], Row], field: str, what: str) -> Row:
    """The new row; the database's word on a double becomes the sender's problem."""
    try:
        with transaction.atomic():
            return create()
    except IntegrityError:
        raise InvalidInput(field, f"there is already a {what}", "Choose another.", code="taken") from None
