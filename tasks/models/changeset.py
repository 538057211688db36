"""A ChangeSet: the published work of one attempt, with its lineage."""

from __future__ import annotations

from django.db import models
from uuid_utils.compat import uuid7

from tasks.models.run import TaskRun
from tasks.models.task import Task
from tenants.scope import TenantModel


class ChangeSet(TenantModel):
    """Rows 216 and 217. The newest one of a Task is the one that counts."""

    tenant_path = "task__change__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="changesets")
    run = models.OneToOneField(TaskRun, on_delete=models.CASCADE, related_name="changeset")
    commit = models.CharField(max_length=40)
    base_commit = models.CharField(max_length=40)
    start_commit = models.CharField(max_length=40)
    stacked_on = models.JSONField(default=list)  # ChangeSet ids, in merge order
    files = models.JSONField(default=list)
    own_files = models.JSONField(default=list)
    patch_key = models.CharField(max_length=300)
    intent = models.TextField(blank=True)  # what complete_task said it did
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["created_at", "id"]
