"""A ModelTask: one allowance for several model calls, and the invocations that used it (rows 148 to 166)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from budgets.fields import UsdField
from budgets.models.meter import ZERO_USD
from budgets.money import ZERO
from tenants.models import Organization, Project, User
from tenants.scope import TenantModel


class ModelTask(TenantModel):
    """Limits on calls, tokens, money and time; null: not limited. Admission locks this row."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="model_tasks")
    # For whom a client opened it; null: opened by code, for calls of its own.
    project = models.ForeignKey(Project, null=True, on_delete=models.PROTECT, related_name="allowances")
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    calls_max = models.BigIntegerField(null=True)
    tokens_max = models.BigIntegerField(null=True)
    cost_max = UsdField(null=True)
    output_tokens_per_call_max = models.BigIntegerField(null=True)
    deadline = models.DateTimeField(null=True)
    # Worst cases of calls in flight and charges of settled ones, together.
    calls = models.BigIntegerField(default=0)
    charged_tokens = models.BigIntegerField(default=0)
    charged_cost = UsdField(default=ZERO)
    cancelled_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(calls__gte=0, charged_tokens__gte=0, charged_cost__gte=ZERO_USD),
                name="model_task_charge_is_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(
                    calls_max__gte=0,
                    tokens_max__gte=0,
                    cost_max__gte=ZERO_USD,
                    output_tokens_per_call_max__gte=1,
                ),
                name="model_task_limits_are_not_negative",
            ),
        ]


class Invocation(TenantModel):
    """One physical attempt under a ModelTask, or usage that the host reported. No prompt, key or raw error."""

    tenant_path = "task__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    task = models.ForeignKey(ModelTask, on_delete=models.PROTECT, related_name="invocations")
    key = models.CharField(max_length=200)  # idempotency within the task
    logical = models.CharField(max_length=200)  # retries of one question share it: its usage counts once
    parent = models.CharField(max_length=200, blank=True)
    purpose = models.CharField(max_length=40)
    phase = models.CharField(max_length=20)  # generation, repair, wrap_up, external
    connector = models.CharField(max_length=63, blank=True)
    model = models.CharField(max_length=100, blank=True)
    state = models.CharField(max_length=20)  # admitted, settled, unknown, refunded
    http_status = models.PositiveSmallIntegerField(null=True)
    output_validation = models.CharField(max_length=20, blank=True)  # "", passed, failed
    held_calls = models.BigIntegerField()
    held_tokens = models.BigIntegerField()
    held_cost = UsdField(null=True)  # null: unpriced, and the task has no limit in money
    charged_tokens = models.BigIntegerField()
    charged_cost = UsdField(null=True)
    bound = models.JSONField(null=True)  # the host's own upper rates
    usage = models.JSONField(null=True)  # null: unknown
    known_cost = UsdField(null=True)  # list price; null: unknown
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["started_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["task", "key"], name="invocation_once_per_key"),
            models.CheckConstraint(
                condition=Q(state__in=["admitted", "settled", "unknown", "refunded"]),
                name="invocation_state_is_a_known_one",
            ),
            models.CheckConstraint(
                condition=Q(state="admitted", ended_at__isnull=True)
                | (~Q(state="admitted") & Q(ended_at__isnull=False)),
                name="invocation_ended_says_when",
            ),
        ]
