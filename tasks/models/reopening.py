"""A Reopening: one Task's attempt window opened again, by whom and why. At most once per key."""

from __future__ import annotations

from django.db import models

from tasks.models.task import Task
from tenants.models import User
from tenants.scope import TenantModel


class Reopening(TenantModel):
    """Made by a budget raise (its key is the raise's) or by a person alone, after `replan`."""

    tenant_path = "task__change__organization"

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="reopenings")
    key = models.CharField(max_length=200)
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    stop_limit = models.CharField(max_length=40)  # the stop it lifted
    reason = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "key"], name="reopening_once_per_task_and_key")
        ]
