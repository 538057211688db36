"""ModelCall and ToolCall: what was called, what it cost and how it ended. Never a prompt, an answer or a key."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from budgets.fields import UsdField
from tenants.models import Organization
from tenants.scope import TenantModel


class CallState(models.TextChoices):
    SENT = "sent", "sent; nothing known yet"
    ANSWERED = "answered", "answered"
    FAILED = "failed", "failed"


class ModelCall(TenantModel):
    """One physical call. `cost` is null as long as nobody could read it: unknown, never zero."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="model_calls")
    # Ids that the domain chose: no key upwards (see the floors in docs/architecture.md).
    project_id = models.UUIDField(null=True)  # none for the test of a connector
    change_id = models.UUIDField(null=True, blank=True)
    task_id = models.UUIDField(null=True, blank=True)
    run_id = models.UUIDField(null=True, blank=True)
    # The idempotency key under which the call was held in the ledger.
    key = models.CharField(max_length=200, unique=True)
    purpose = models.CharField(max_length=40)  # a label, never a permission (row 241)
    tier = models.CharField(max_length=10, blank=True)
    connector = models.CharField(max_length=63)
    model = models.CharField(max_length=100)
    state = models.CharField(max_length=10, choices=CallState.choices, default=CallState.SENT)
    held = UsdField(null=True, blank=True)  # the worst case; null: no known price
    cost = UsdField(null=True, blank=True)
    usage = models.JSONField(null=True, blank=True)
    rates = models.JSONField(null=True, blank=True)  # the rates used, so that no later table re-prices it
    stop = models.CharField(max_length=20, blank=True)
    error = models.CharField(max_length=40, blank=True)  # the kind of a ProviderError
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    request_id = models.CharField(max_length=200, blank=True)
    response_id = models.CharField(max_length=200, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=CallState.values), name="model_call_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=Q(state=CallState.SENT, ended_at__isnull=True)
                | (~Q(state=CallState.SENT) & Q(ended_at__isnull=False)),
                name="model_call_ended_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["run_id", "id"], name="model_call_of_run"),
            models.Index(fields=["organization", "-id"], name="model_call_newest_first"),
        ]

    def __str__(self) -> str:
        return f"{self.purpose} {self.model} {self.state}"


class ToolCall(TenantModel):
    """One tool call of a run. All that went in and came out is in the run's tool log, in the object store."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="tool_calls")
    run_id = models.UUIDField()
    position = models.PositiveIntegerField()  # from 1 within the run
    model_call = models.PositiveIntegerField()  # the call of the run that asked for it, from 1
    name = models.CharField(max_length=64)
    outcome = models.CharField(max_length=20)  # ok, refused, error, not_executed
    code = models.CharField(max_length=40, blank=True)  # a stable word for what is not ok
    # While the run goes on: the beginning of what went in, and both ends of what came out. Emptied when the
    # whole is stored; those of a worker that died stay.
    arguments = models.TextField(blank=True)
    answer = models.TextField(blank=True)
    characters_in = models.PositiveIntegerField()
    characters_out = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["run_id", "position"], name="tool_call_position_once_per_run"),
        ]

    def __str__(self) -> str:
        return f"{self.position} {self.name} {self.outcome}"
