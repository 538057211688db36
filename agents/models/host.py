"""WorkerHost: what each worker found out about its own host when it started."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.tier import SandboxTier


class WorkerHost(models.Model):
    """One row per running worker, by its node name; gone when it stops. Of the deployment, not of a tenant."""

    worker = models.CharField(max_length=200, unique=True)
    host = models.CharField(max_length=200)
    tier = models.CharField(max_length=1, choices=[(tier.value, tier.words) for tier in SandboxTier])
    reasons = models.JSONField(default=list)  # why the better tiers do not work there
    probed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(tier__in=[tier.value for tier in SandboxTier]),
                name="worker_host_tier_is_a_known_one",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.worker}: tier {self.tier}"
