"""A DecisionReceipt: why something was decided, in words fixed in code. Append only."""

from __future__ import annotations

from django.db import models

from tasks.models.change import Change
from tasks.models.run import TaskRun
from tasks.models.task import Task
from tenants.scope import TenantModel


class DecisionReceipt(TenantModel):
    tenant_path = "change__organization"

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="receipts")
    task = models.ForeignKey(Task, null=True, blank=True, on_delete=models.CASCADE, related_name="receipts")
    run = models.ForeignKey(TaskRun, null=True, blank=True, on_delete=models.CASCADE, related_name="receipts")
    kind = models.CharField(
        max_length=20
    )  # route, refusal, retry, escalation, fallback, stop, reset, failure, plan, promotion
    decision = models.CharField(max_length=60)  # the verdict in one fixed word: haiku, stop, retry, ...
    reasons = models.JSONField(
        default=list
    )  # fixed words: R4, floor_billing, opus_disabled, two_failures_at_haiku
    detail = models.JSONField(default=dict)  # figures and ids; no model text
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
