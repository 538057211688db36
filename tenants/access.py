"""The only doors to a tenant's rows: what is not visible is not there; what is, may need a higher role."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from tenants.errors import NotVisible, RoleTooLow
from tenants.models import Membership, Organization, Project, Role, User

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
