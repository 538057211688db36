"""Endpoints that are told, deliveries and their attempts; hooks that are asked, and what came in."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

from django.conf import settings
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from budgets.fields import UsdField
from providers import sealing
from tenants.models import Organization, Project, User
from tenants.scope import TenantModel


class Sealed(TenantModel):
    """A secret, and for a while the one before it. Both are sealed with the deployment's keys."""

    sealed_secret = models.TextField(editable=False)
    sealed_previous = models.TextField(blank=True, editable=False)
    previous_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def put_secret(self, plain: str, *, previous_until: datetime | None = None) -> None:
        """Take a new secret; with a time the old one stays in force until then. The caller saves."""
        self.sealed_previous = self.sealed_secret if previous_until else ""
        self.previous_until = previous_until
        self.sealed_secret = _seal(plain)

    def secrets(self, *, now: datetime) -> list[str]:
        """Those in force, the newest first. Raises `sealing.KeyUnreadable`."""
        overlaps = self.sealed_previous and self.previous_until and now < self.previous_until
        return [_unseal(self.sealed_secret), *([_unseal(self.sealed_previous)] if overlaps else [])]

    def reseal(self) -> None:
        """The same secrets under the newest sealing key. The caller saves."""
        self.sealed_secret = _seal(_unseal(self.sealed_secret))
        self.sealed_previous = _seal(_unseal(self.sealed_previous)) if self.sealed_previous else ""


class Endpoint(Sealed):
    """An address of an organization's own, told of what happens there. It is its own lane: one request at a time."""

    tenant_path = "organization"

    class Off(models.TextChoices):
        PERSON = "person", "by a person"
        GONE = "gone", "it answered 410 Gone"
        FAILING = "failing", "it failed for days"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="endpoints")
    url = models.CharField(max_length=500)
    description = models.CharField(max_length=200, blank=True)
    kinds = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    off_because = models.CharField(max_length=10, choices=Off.choices, blank=True)
    off_at = models.DateTimeField(null=True, blank=True)
    # Its health: nothing but failures since then, so many in a row.
    failing_since = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0)
    succeeded_at = models.DateTimeField(null=True, blank=True)
    # The lane: who serves it, until when at most; when it may be served again, and when it was last.
    lease_key = models.CharField(max_length=64, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    rests_until = models.DateTimeField(null=True, blank=True)
    served_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(enabled=True, off_because="") | (Q(enabled=False) & ~Q(off_because="")),
                name="endpoint_off_says_why",
            ),
        ]

    def __str__(self) -> str:
        return self.description or self.address

    @property
    def address(self) -> str:
        """Without its query, which may hold a secret of the receiver's."""
        return self.url.partition("?")[0]


class DeliveryState(models.TextChoices):
    PENDING = "pending", "pending"  # due at `not_before`
    DELIVERED = "delivered", "delivered"
    FAILED = "failed", "failed"  # given up; a person may resend it


class Delivery(TenantModel):
    """One event for one endpoint: written in the event's transaction. The row is the queue.

    `payload` is the text that is signed and sent, the same in every attempt, as is `message_id`.
    """

    tenant_path = "endpoint__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="deliveries")
    message_id = models.CharField(max_length=80)
    kind = models.CharField(max_length=60)
    payload = models.TextField()
    state = models.CharField(
        max_length=10, choices=DeliveryState.choices, default=DeliveryState.PENDING.value
    )
    tries = models.PositiveSmallIntegerField(default=0)  # since it was queued; a resend counts anew
    queued_at = models.DateTimeField()
    # The wait for the next try, and the lease of who sends it now.
    not_before = models.DateTimeField()
    problem = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "message_id"], name="delivery_once_per_endpoint_and_message"
            ),
            models.CheckConstraint(
                condition=Q(state__in=DeliveryState.values), name="delivery_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=Q(state=DeliveryState.PENDING, ended_at__isnull=True)
                | (~Q(state=DeliveryState.PENDING) & Q(ended_at__isnull=False)),
                name="delivery_has_ended_or_is_pending",
            ),
        ]
        indexes = [
            models.Index(
                fields=["endpoint", "not_before"],
                condition=Q(state=DeliveryState.PENDING),
                name="delivery_due",
            ),
            models.Index(fields=["endpoint", "-created_at"], name="delivery_newest_first"),
            models.Index(fields=["created_at"], name="delivery_age"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.message_id}"


class Attempt(TenantModel):
    """One request of a delivery. Without an end: it is on its way, or its worker died and nobody knows."""

    tenant_path = "delivery__endpoint__organization"

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveSmallIntegerField()  # from 1, over all resends
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    milliseconds = models.PositiveIntegerField(null=True, blank=True)
    problem = models.CharField(max_length=200, blank=True)
    answer = models.TextField(blank=True)  # the first part of it: a stranger's text
    next_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["delivery_id", "number"]
        constraints = [
            models.UniqueConstraint(fields=["delivery", "number"], name="delivery_attempt_number_once"),
        ]


class HookKind(models.TextChoices):
    STANDARD = "standard", "JSON signed by Standard Webhooks"
    GITHUB = "github", "GitHub: issues that get a label"


class IncomingHook(Sealed):
    """An address at which others hand Changes to one project, in a member's name."""

    tenant_path = "project__organization"

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="incoming_hooks")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=HookKind.choices)
    label = models.CharField(max_length=50, blank=True)
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")  # whose month pays
    # The limit of each Change that comes in without one of its own; null: none.
    budget = UsdField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    used_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="incoming_hook_name_once_per_project"),
            models.CheckConstraint(
                condition=Q(kind__in=HookKind.values), name="incoming_hook_kind_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=~Q(kind=HookKind.GITHUB) | ~Q(label=""), name="incoming_hook_of_github_has_a_label"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class IncomingDelivery(TenantModel):
    """What came in at a hook, accepted or refused. An accepted id is answered the same for as long as the row lives."""

    tenant_path = "hook__project__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    hook = models.ForeignKey(IncomingHook, on_delete=models.CASCADE, related_name="deliveries")
    delivery_id = models.CharField(max_length=200, blank=True)
    fingerprint = models.CharField(max_length=64)
    accepted = models.BooleanField()
    # What also happens once, whatever its id: the body of a sender that does not sign ids.
    once_key = models.CharField(max_length=64, null=True, blank=True)
    code = models.CharField(max_length=60)  # created, ignored, pong, or why it was refused
    detail = models.CharField(max_length=500, blank=True)
    answer = models.JSONField(default=dict)
    change_id = models.UUIDField(null=True, blank=True)  # an id without a key: Changes lie above this floor
    repeated = models.PositiveIntegerField(default=0)  # how often it came again and was answered the same
    remote = models.CharField(max_length=64, blank=True)
    received_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "incoming deliveries"
        constraints = [
            models.UniqueConstraint(
                fields=["hook", "delivery_id"],
                condition=Q(accepted=True),
                name="incoming_delivery_accepted_once",
            ),
            models.UniqueConstraint(
                fields=["hook", "once_key"],
                condition=Q(accepted=True, once_key__isnull=False),
                name="incoming_delivery_body_once",
            ),
        ]
        indexes = [
            models.Index(fields=["hook", "-received_at"], name="incoming_newest_first"),
            models.Index(fields=["received_at"], name="incoming_age"),
        ]


def _seal(plain: str) -> str:
    return sealing.seal(plain, keys=settings.PLANE.connector_keys, secret_key=settings.PLANE.secret_key)


def _unseal(sealed: str) -> str:
    return sealing.unseal(sealed, keys=settings.PLANE.connector_keys, secret_key=settings.PLANE.secret_key)
