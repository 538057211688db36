"""An Event: what happened. Append only, one per fact."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from tenants.models import Organization
from tenants.scope import TenantModel


class Event(TenantModel):
    """The id is the order in which pages and clients read on. `kind` has no choices: the vocabulary grows."""

    tenant_path = "organization"

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="events")
    change = models.ForeignKey("tasks.Change", null=True, on_delete=models.CASCADE, related_name="events")
    task = models.ForeignKey("tasks.Task", null=True, on_delete=models.CASCADE, related_name="events")
    run = models.ForeignKey("tasks.TaskRun", null=True, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=60)
    data = models.JSONField(default=dict)
    key = models.CharField(max_length=200, null=True, unique=True)  # makes a fact happen once
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["change", "id"], name="event_of_change"),
            # For what counts refusals of a month among millions of other events.
            models.Index(
                fields=["organization", "at"], condition=Q(kind="spend_limited"), name="event_refusals"
            ),
        ]
