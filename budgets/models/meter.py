"""A meter: what was spent and what is held, under a limit, in one period."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, Value

from budgets.decisions import MeterReading
from budgets.fields import UsdField
from budgets.keys import MeterKey, MeterKind
from budgets.money import ZERO
from tenants.models import Organization
from tenants.scope import TenantModel

# In a migration a constant must be a plain number.
ZERO_USD = Value(0)


class Meter(TenantModel):
    """One counter with three units. Only the ledger's functions write `held_*` and `spent_*`.

    There is no constraint `spent + held <= limit`: a late report above the estimate and a lowered limit
    are both true facts. Admission is the gate. No mutable column may enter an index, or the updates of a
    hot meter stop being heap-only.
    """

    tenant_path = "organization"

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=220)  # the whole key as one text: `MeterKey.name`
    # Null for the platform's own meter, which no tenant sees.
    organization = models.ForeignKey(Organization, null=True, on_delete=models.PROTECT, related_name="meters")
    kind = models.CharField(max_length=20, choices=[(kind.value, kind.value) for kind in MeterKind])
    subject = models.CharField(max_length=120)
    period = models.CharField(max_length=10, blank=True)  # "", a UTC month or a UTC day
    limit_usd = UsdField(null=True, blank=True)  # null: unlimited; 0: nothing
    limit_tokens = models.BigIntegerField(null=True, blank=True)
    limit_calls = models.BigIntegerField(null=True, blank=True)
    held_usd = UsdField(default=ZERO)
    held_tokens = models.BigIntegerField(default=0)
    held_calls = models.BigIntegerField(default=0)
    spent_usd = UsdField(default=ZERO)
    spent_tokens = models.BigIntegerField(default=0)
    spent_calls = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="meter_once_per_key"),
            models.CheckConstraint(
                condition=Q(kind__in=[kind.value for kind in MeterKind]), name="meter_kind_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=Q(organization__isnull=False) | Q(kind=MeterKind.PLATFORM.value),
                name="meter_has_an_organization",
            ),
            models.CheckConstraint(
                # A null limit makes its part unknown, which a CHECK lets pass.
                condition=Q(limit_usd__gte=ZERO_USD, limit_tokens__gte=0, limit_calls__gte=0),
                name="meter_limits_are_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(held_usd__gte=ZERO_USD, held_tokens__gte=0, held_calls__gte=0),
                name="meter_holds_are_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(spent_usd__gte=ZERO_USD, spent_tokens__gte=0, spent_calls__gte=0),
                name="meter_spending_is_not_negative",
            ),
        ]
        indexes = [models.Index(fields=["organization", "kind", "subject"], name="meter_of_subject")]

    def __str__(self) -> str:
        return self.name

    @property
    def key(self) -> MeterKey:
        return MeterKey(MeterKind(self.kind), self.organization_id, self.subject, self.period)

    def reading(self) -> MeterReading:
        return MeterReading(
            key=self.key,
            limit_usd=self.limit_usd,
            limit_tokens=self.limit_tokens,
            limit_calls=self.limit_calls,
            spent_usd=self.spent_usd,
            spent_tokens=self.spent_tokens,
            spent_calls=self.spent_calls,
            held_usd=self.held_usd,
            held_tokens=self.held_tokens,
            held_calls=self.held_calls,
        )
