"""Limits: the rule a new period starts with, every change of it, and the soft thresholds that were passed."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from uuid_utils.compat import uuid7

from budgets.decisions import Unit
from budgets.fields import UsdField
from budgets.keys import MeterKey, MeterKind
from budgets.models.meter import ZERO_USD, Meter
from tenants.models import Organization, User
from tenants.scope import TenantModel


class LimitRule(TenantModel):
    """The limits that a meter starts each period with. Null is unlimited, 0 is nothing; no rule: the defaults."""

    tenant_path = "organization"

    name = models.CharField(max_length=200)  # `MeterKey.rule_name`
    organization = models.ForeignKey(Organization, null=True, on_delete=models.PROTECT, related_name="limits")
    kind = models.CharField(max_length=20, choices=[(kind.value, kind.value) for kind in MeterKind])
    subject = models.CharField(max_length=120)
    limit_usd = UsdField(null=True, blank=True)
    limit_tokens = models.BigIntegerField(null=True, blank=True)
    limit_calls = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="limit_rule_once_per_subject"),
            models.CheckConstraint(
                condition=Q(limit_usd__gte=ZERO_USD, limit_tokens__gte=0, limit_calls__gte=0),
                name="limit_rule_is_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(organization__isnull=False) | Q(kind=MeterKind.PLATFORM.value),
                name="limit_rule_has_an_organization",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def key(self) -> MeterKey:
        return MeterKey(MeterKind(self.kind), self.organization_id, self.subject, "")


class LimitChange(TenantModel):
    """Who set which limit from what to what, when and why: append only.

    The return from a raise that has expired is a change of its own; `returns` points to the raise.
    """

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.CharField(max_length=200)  # idempotency, once per organization
    organization = models.ForeignKey(
        Organization, null=True, on_delete=models.PROTECT, related_name="limit_changes"
    )
    kind = models.CharField(max_length=20, choices=[(kind.value, kind.value) for kind in MeterKind])
    subject = models.CharField(max_length=120)
    unit = models.CharField(max_length=10, choices=[(unit.value, unit.value) for unit in Unit])
    # Micro-dollars, tokens or calls, as `unit` says; null is unlimited.
    before = models.BigIntegerField(null=True)
    after = models.BigIntegerField(null=True)
    # Null: the plane itself (an expiry, a Change's first budget).
    by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField(blank=True)
    expires_at = models.DateTimeField(null=True)
    returns = models.OneToOneField("self", null=True, on_delete=models.PROTECT, related_name="returned_by")
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "key"], name="limit_change_once_per_key_and_organization"
            ),
            models.UniqueConstraint(
                fields=["key"],
                condition=Q(organization__isnull=True),
                name="limit_change_once_per_key_of_the_platform",
            ),
            models.CheckConstraint(
                condition=Q(after__isnull=True) | Q(after__gte=0), name="limit_change_is_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__isnull=True) | Q(expires_at__gt=F("at")),
                name="limit_change_expires_after_it_began",
            ),
        ]
        indexes = [
            models.Index(fields=["organization", "kind", "subject", "-at"], name="limit_change_history"),
            models.Index(
                fields=["expires_at"], condition=Q(expires_at__isnull=False), name="limit_change_to_return"
            ),
        ]


class ThresholdCrossing(TenantModel):
    """A soft threshold that a meter has passed: one row per meter, period (it is the meter's), unit and percent."""

    tenant_path = "organization"

    organization = models.ForeignKey(
        Organization, null=True, on_delete=models.PROTECT, related_name="threshold_crossings"
    )
    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="crossings")
    unit = models.CharField(max_length=10, choices=[(unit.value, unit.value) for unit in Unit])
    percent = models.PositiveSmallIntegerField()
    limit = models.BigIntegerField()  # at that moment, in `unit`
    spent = models.BigIntegerField()
    at = models.DateTimeField()
    # When the domain made its event of it; null: not told yet.
    told_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["meter", "unit", "percent"], name="threshold_crossed_once_per_meter"
            ),
        ]
        indexes = [
            models.Index(fields=["at"], condition=Q(told_at__isnull=True), name="threshold_crossing_to_tell"),
        ]
