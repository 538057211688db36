"""The wall between tenants: querysets that know along which path their organization lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.db import models

if TYPE_CHECKING:
    from uuid import UUID

    from tenants.models import User


class TenantQuerySet(models.QuerySet[Any]):
    """Rows of one organization. Doors get rows only through `visible_to`.

    A model says once where its organization lies: `tenant_path = "change__project__organization"`;
    the empty path is the Organization itself.
    """

    def visible_to(self, user: User) -> Self:
        """The rows of every organization of which `user` is an active member; none for a stranger."""
        return self.filter(**{self._along("memberships__user"): user.pk})

    def of_organization(self, organization_id: UUID) -> Self:
        return self.filter(**{self._along("pk"): organization_id})

    def _along(self, lookup: str) -> str:
        path: str = self.model.tenant_path
        return f"{path}__{lookup}" if path else lookup


class TenantModel(models.Model):
    """A row that hangs on one organization."""

    tenant_path: ClassVar[str]
    objects = TenantQuerySet.as_manager()

    class Meta:
        abstract = True
