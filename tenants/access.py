"""The only doors to a tenant's rows: what is not visible is not there; what is, may need a higher role."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import QuerySet

from tenants.errors import NotVisible, RoleTooLow
from tenants.models import ApiToken, Invitation, Membership, Organization, Project, Role, User

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


def project_for(user: User | AnonymousUser, project_id: UUID, *, at_least: Role) -> Project:
    """The project, if `user` may see it and holds at least that role. Raises NotVisible or RoleTooLow."""
    project: Project | None = (
        Project.objects.visible_to(user).select_related("organization").filter(pk=project_id).first()
    )
    if project is None:
        raise NotVisible("project")
    require_role(user, project.organization_id, at_least)
    return project


def organization_for(user: User | AnonymousUser, organization_id: UUID, *, at_least: Role) -> Organization:
    """The organization, if `user` is in it with at least that role. Raises NotVisible or RoleTooLow."""
    organization: Organization | None = (
        Organization.objects.visible_to(user).filter(pk=organization_id).first()
    )
    if organization is None:
        raise NotVisible("organization")
    require_role(user, organization.pk, at_least)
    return organization


def require_role(user: User | AnonymousUser, organization_id: UUID, at_least: Role) -> Role:
    """The user's role there. Raises NotVisible for a stranger, RoleTooLow for a role that does not reach."""
    role = role_of(user, organization_id)
    if role is None:
        raise NotVisible("organization")
    if role < at_least:
        raise RoleTooLow(at_least.label)
    return role


def role_of(user: User | AnonymousUser, organization_id: UUID) -> Role | None:
    """What `user` is in that organization right now; None for strangers and for users who were switched off.

    Read from the rows each time, so a membership that ended ends the access at once, also
    on a stream that was opened before (C83).
    """
    if user.pk is None or not user.is_active:
        return None
    if user.token_organization_id not in (None, organization_id):
        return None
    membership: Membership | None = (
        Membership.objects.visible_to(user).filter(organization_id=organization_id, user_id=user.pk).first()
    )
    return None if membership is None else Role(membership.role)


def still_member(user_id: UUID, organization_id: UUID) -> User | None:
    """Who opened something that stays open, read anew; None once the membership ended or they were switched off.

    What they get sees this organization only (C83).
    """
    rows = Membership.objects.of_organization(organization_id).select_related("user")
    membership: Membership | None = rows.filter(user_id=user_id, user__is_active=True).first()
    if membership is None:
        return None
    user: User = membership.user
    user.token_organization_id = organization_id
    return user


def roles_of(user: User) -> dict[UUID, int]:
    """What a person is in each of their organizations, in one query."""
    mine = Membership.objects.visible_to(user).filter(user=user)
    return dict(mine.values_list("organization_id", "role"))


def member_of(organization: Organization, user_id: UUID) -> Membership:
    """One of this organization's, looked up together with it (C79)."""
    rows = Membership.objects.of_organization(organization.pk).select_related("user")
    member: Membership | None = rows.filter(user_id=user_id).first()
    if member is None:
        raise NotVisible("member")
    return member


def invitation_of(organization: Organization, invitation_id: UUID) -> Invitation:
    """One of this organization's, looked up together with it (C81)."""
    rows = Invitation.objects.of_organization(organization.pk).select_related("organization", "invited_by")
    invitation: Invitation | None = rows.filter(pk=invitation_id).first()
    if invitation is None:
        raise NotVisible("invitation")
    return invitation


def token_of(user: User, organization: Organization, token_id: UUID) -> ApiToken:
    token: ApiToken | None = tokens_for(user, organization).filter(pk=token_id).first()
    if token is None:
        raise NotVisible("token")
    return token


def tokens_for(user: User, organization: Organization) -> QuerySet[ApiToken]:
    """A member's own tokens there; an admin's are all."""
    rows = ApiToken.objects.of_organization(organization.pk).select_related("user", "organization")
    role = role_of(user, organization.pk)
    return rows if role is not None and role >= Role.ADMIN else rows.filter(user=user)
