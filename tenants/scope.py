"""The wall between tenants: querysets that know along which path their organization lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.db import models

if TYPE_CHECKING:
    from uuid import UUID

    from django.contrib.auth.models import AnonymousUser

    from tenants.models import User


class TenantQuerySet(models.QuerySet[Any]):
    """Rows of one organization. Doors get rows only through `visible_to`.

    A model says once where its organization lies: `tenant_path = "change__project__organization"`;
    the empty path is the Organization itself.
    """

    def visible_to(self, user: User | AnonymousUser) -> Self:
        """The rows of every organization of which `user` is an active member; none for a stranger (row 1).

        A user who came with an API token sees the rows of that token's organization only.
        """
        if user.pk is None or not user.is_active:
            # Asked here, not in SQL: `user = NULL` would join organizations without any member.
            return self.none()
        rows = self.filter(
            **{
                self._along("memberships__user"): user.pk,
                # Asked again in SQL: a request that stays open outlives its copy of the user (C83).
                self._along("memberships__user__is_active"): True,
            }
        )
        narrowed = getattr(user, "token_organization_id", None)
        return rows if narrowed is None else rows.of_organization(narrowed)

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
