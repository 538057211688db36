"""A reservation: money held for one physical model call, and what became of it."""

from __future__ import annotations

from django.db import models
from django.db.models import BigIntegerField, Case, DecimalField, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, NullIf, Round

from budgets.fields import MeterIds, UsdField
from budgets.models.meter import ZERO_USD
from tenants.models import Organization
from tenants.scope import TenantModel


class ReservationState(models.TextChoices):
    HELD = "held", "held"  # the call may be on its way
    SETTLED = "settled", "settled"
    REFUNDED = "refunded", "refunded"  # never left, surely not billed, or released by a person
    UNKNOWN = "unknown", "unknown"  # may have been billed: charged at its worst case


# A report that was charged by: its counts are whole numbers that fit. Others are stored as they came.
USABLE = ("reported", "normalized")
NANO_PER_MICRO = 1_000


def _count(bucket: str) -> Coalesce:
    return Coalesce(Cast(KT(f"usage__{bucket}"), BigIntegerField()), 0)


def _rate(name: str) -> Cast:
    """SQLite gives a JSON null as a word."""
    known = NullIf(KT(f"rates__{name}"), Value("null"))
    return Cast(known, DecimalField(max_digits=30, decimal_places=12))


def _where_usable(count: Combinable) -> Case:
    return Case(When(usage_quality__in=USABLE, then=count), default=0, output_field=BigIntegerField())


def _saved() -> Cast:
    difference = _rate("input") - _rate("cache_read")
    return Cast(Round(_count("cache_read") * difference * NANO_PER_MICRO), BigIntegerField())


class Reservation(TenantModel):
    """One hold on several meters, with the call it is for. Every report reads these rows: no second set of books."""

    tenant_path = "organization"

    id = models.BigAutoField(primary_key=True)
    key = models.CharField(max_length=200)  # idempotency: one physical call
    fingerprint = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=ReservationState.choices, default=ReservationState.HELD)
    meters = MeterIds()  # ascending ids, as held; where it settles too, whatever the date then
    # What was held: the worst case. `priced` is False when no price was known and no limit was in money.
    priced = models.BooleanField()
    hold_usd = UsdField()
    hold_tokens = models.BigIntegerField()
    hold_calls = models.BigIntegerField()
    # What is charged; null while held.
    usd = UsdField(null=True)
    tokens = models.BigIntegerField(null=True)
    calls = models.BigIntegerField(null=True)
    cost = UsdField(null=True)  # what it is known to have cost; null: unknown, which is not zero
    overrun = models.BooleanField(default=False)  # charged above the hold
    # The usage and the rates of that day, so that no later price list re-prices the row.
    usage = models.JSONField(null=True)
    usage_quality = models.CharField(max_length=20, blank=True)
    rates = models.JSONField(null=True)
    # What the database itself makes of the two: sums over a month would else open every row's JSON.
    input_tokens = models.GeneratedField(
        expression=_where_usable(
            _count("input_uncached")
            + _count("cache_read")
            + _count("cache_write_5m")
            + _count("cache_write_1h")
        ),
        output_field=BigIntegerField(),
        db_persist=True,
    )
    cached_tokens = models.GeneratedField(
        expression=_where_usable(_count("cache_read")), output_field=BigIntegerField(), db_persist=True
    )
    # By the cache, against the full price of input; null where no rate of a cache was known.
    saved_nano_usd = models.GeneratedField(
        expression=Case(
            When(usage_quality__in=USABLE, then=_saved()), output_field=BigIntegerField(null=True)
        ),
        output_field=BigIntegerField(null=True),
        db_persist=True,
    )
    # The call. Ids without keys: the ledger outlives the rows that it paid for, and a hold takes no lock on them.
    organization = models.ForeignKey(
        Organization,
        on_delete=models.PROTECT,
        db_constraint=False,
        db_index=False,
        related_name="reservations",
    )
    project_id = models.UUIDField(null=True)
    user_id = models.UUIDField(null=True)
    change_id = models.UUIDField(null=True)
    task_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    purpose = models.CharField(max_length=40)
    tier = models.CharField(max_length=10, blank=True)
    model = models.CharField(max_length=100)
    connector = models.CharField(max_length=63, blank=True)
    owner = models.CharField(max_length=120)  # the worker that may close it
    lease_until = models.DateTimeField()
    created_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    # A person who released an unknown charge; the entry has the reason.
    released_by_id = models.UUIDField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key"], name="reservation_once_per_key"),
            models.CheckConstraint(
                condition=Q(state__in=ReservationState.values), name="reservation_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=Q(
                    hold_usd__gte=ZERO_USD, hold_tokens__gte=0, hold_calls__gte=0, hold_calls__lte=1000
                ),
                name="reservation_holds_a_sane_amount",
            ),
            models.CheckConstraint(
                condition=Q(usd__gte=ZERO_USD, tokens__gte=0, calls__gte=0),
                name="reservation_charge_is_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(
                    state=ReservationState.HELD,
                    usd__isnull=True,
                    tokens__isnull=True,
                    calls__isnull=True,
                    closed_at__isnull=True,
                )
                | (
                    ~Q(state=ReservationState.HELD)
                    & Q(usd__isnull=False, tokens__isnull=False, calls__isnull=False, closed_at__isnull=False)
                ),
                name="reservation_is_charged_when_closed",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=[ReservationState.HELD, ReservationState.UNKNOWN])
                | Q(cost__isnull=True),
                name="reservation_unknown_cost_is_null",
            ),
            models.CheckConstraint(
                condition=~Q(state=ReservationState.REFUNDED) | Q(usd=ZERO_USD),
                name="reservation_refunded_costs_nothing",
            ),
        ]
        indexes = [
            # With all that reports sum: a row is a kilobyte, and a month of them lies all over the table. A
            # settlement moves the row in every index anyway, since the conditions of two name its state.
            models.Index(
                fields=["organization", "created_at"],
                include=[
                    "state",
                    "priced",
                    "hold_usd",
                    "usd",
                    "cost",
                    "project_id",
                    "user_id",
                    "change_id",
                    "run_id",
                    "purpose",
                    "tier",
                    "closed_at",
                    "input_tokens",
                    "cached_tokens",
                    "saved_nano_usd",
                ],
                name="reservation_sums",
            ),
            models.Index(
                fields=["change_id"], condition=Q(change_id__isnull=False), name="reservation_of_change"
            ),
            models.Index(fields=["lease_until"], condition=Q(state="held"), name="reservation_lease"),
            models.Index(fields=["closed_at"], condition=Q(state="unknown"), name="reservation_unknown"),
        ]

    def __str__(self) -> str:
        return self.key


class Entry(TenantModel):
    """What moved on the meters of a reservation: append only. A meter is the sum of its entries."""

    tenant_path = "reservation__organization"

    id = models.BigAutoField(primary_key=True)
    reservation = models.ForeignKey(
        Reservation, on_delete=models.PROTECT, db_index=False, related_name="entries"
    )
    kind = models.CharField(max_length=10)  # hold, settle, refund, unknown, late, release
    # Differences, so they may be negative.
    held_usd = UsdField()
    held_tokens = models.BigIntegerField()
    held_calls = models.BigIntegerField()
    spent_usd = UsdField()
    spent_tokens = models.BigIntegerField()
    spent_calls = models.BigIntegerField()
    actor = models.CharField(max_length=120)
    reason = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "entries"
        # Few: the ones that change what an ended call is known to have cost.
        indexes = [
            models.Index(fields=["at"], condition=Q(kind__in=("late", "release")), name="entry_correction"),
        ]
        constraints = [
            # A second settlement is refused by the database, too.
            models.UniqueConstraint(fields=["reservation", "kind"], name="entry_once_per_kind"),
        ]
