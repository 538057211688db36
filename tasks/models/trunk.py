"""The Trunk: a project's main branch as the database knows it."""

from __future__ import annotations

from django.db import models

from tenants.models import Project
from tenants.scope import TenantModel


class Trunk(TenantModel):
    """Promotion moves it by compare-and-swap on `generation`, then the new tree is indexed (row 212)."""

    tenant_path = "project__organization"

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="trunk")
    generation = models.PositiveIntegerField(default=1)
    commit = models.CharField(max_length=40)
    indexed_generation = models.PositiveIntegerField(default=0)
    # Who builds the index of the newest tree, and until when nobody else does.
    index_owner = models.CharField(max_length=200, blank=True)
    index_until = models.DateTimeField(null=True, blank=True)
    imported_from = models.CharField(max_length=500, blank=True)
    warnings = models.JSONField(default=list, blank=True)  # submodules, LFS, names differing only by case
    updated_at = models.DateTimeField(auto_now=True)
