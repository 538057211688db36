"""A Claim: an advisory lease of a run on a resource."""

from __future__ import annotations

from django.db import models

from tasks.models.run import TaskRun
from tenants.models import Project
from tenants.scope import TenantModel


class Claim(TenantModel):
    tenant_path = "project__organization"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="claims")
    run = models.ForeignKey(TaskRun, on_delete=models.CASCADE, related_name="claims")
    resource = models.CharField(max_length=500)
    lease_until = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "resource"], name="claim_once_per_run_and_resource")
        ]
        indexes = [models.Index(fields=["project", "resource", "lease_until"], name="claim_holders")]
