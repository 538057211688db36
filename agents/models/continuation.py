"""A paused attempt and the person's word that it waits for. Row 233: each is a mechanism of its own.

The messages lie in the object store, the Continuation says where and what else the attempt had before it, the
Approval holds a decision, the Reconciliation what a person found out. None of them grants what another does.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from uuid_utils.compat import uuid7

from tenants.models import Organization, User
from tenants.scope import TenantModel


class ContinuationState(models.TextChoices):
    WAITING = "waiting", "paused; nobody works on it"
    CLAIMED = "claimed", "a worker goes on with it"
    CLOSED = "closed", "the attempt has ended"


class ApprovalState(models.TextChoices):
    PENDING = "pending", "waits for a decision"
    APPROVED = "approved", "approved"
    DECLINED = "declined", "declined"
    WITHDRAWN = "withdrawn", "the attempt ended before anybody decided"


class Continuation(TenantModel):
    """What one attempt needs to go on where it paused; at most one per attempt, its revision counts the pauses."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="continuations")
    # Ids that the domain chose: no key upwards.
    project_id = models.UUIDField()
    change_id = models.UUIDField()
    task_id = models.UUIDField()
    run_id = models.UUIDField(unique=True)
    revision = models.PositiveSmallIntegerField(default=1)
    state = models.CharField(
        max_length=10, choices=ContinuationState.choices, default=ContinuationState.WAITING
    )
    snapshot_key = models.CharField(max_length=300)  # in the object store, until the attempt ends
    tree_commit = models.CharField(max_length=40, blank=True)  # empty: no workspace was open
    patch_key = models.CharField(max_length=300, blank=True)  # the work so far, for people
    # What must be the same when it goes on (row 230): a word for each, never the live objects (row 235).
    binding = models.JSONField(default=dict)
    budget_ms = models.PositiveIntegerField()
    remaining_ms = models.PositiveIntegerField()  # 0 while it is claimed: the claim has it all (row 231)
    claimed_ms = models.PositiveIntegerField(default=0)
    paused_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=ContinuationState.values), name="continuation_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=~Q(state=ContinuationState.CLAIMED) | Q(remaining_ms=0),
                name="continuation_claim_takes_all_the_time",
            ),
            models.CheckConstraint(
                condition=Q(remaining_ms__lte=F("budget_ms")), name="continuation_time_within_its_budget"
            ),
        ]
        indexes = [models.Index(fields=["task_id"], name="continuation_of_task")]

    def __str__(self) -> str:
        return f"continuation of run {self.run_id}, revision {self.revision}"


class Approval(TenantModel):
    """One command that waits for a yes. It binds record, revision, its own id and a hash of what is shown (row 228)."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="approvals")
    continuation = models.ForeignKey(Continuation, on_delete=models.CASCADE, related_name="approvals")
    revision = models.PositiveSmallIntegerField()
    payload_hash = models.CharField(max_length=64)
    argv = models.JSONField()
    why = models.TextField(blank=True)  # the agent's own words to the person
    state = models.CharField(max_length=10, choices=ApprovalState.choices, default=ApprovalState.PENDING)
    decided_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    reason = models.TextField(blank=True)
    # The command itself: begun and ended by the worker that went on. Begun and never ended is uncertain (row 232).
    effect_began_at = models.DateTimeField(null=True, blank=True)
    effect_ended_at = models.DateTimeField(null=True, blank=True)
    asked_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["continuation", "revision"], name="approval_once_per_revision"),
            models.CheckConstraint(
                condition=Q(state__in=ApprovalState.values), name="approval_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["pending", "withdrawn"], decided_at__isnull=True)
                | Q(state__in=["approved", "declined"], decided_at__isnull=False),
                name="approval_decided_says_when",
            ),
            models.CheckConstraint(
                condition=Q(effect_began_at__isnull=True, effect_ended_at__isnull=True)
                | Q(effect_began_at__isnull=False, state="approved"),
                name="approval_effect_only_of_an_approved_one",
            ),
        ]
        indexes = [models.Index(fields=["organization", "-id"], name="approval_newest_first")]

    @property
    def called(self) -> str:
        return "this approval"

    def __str__(self) -> str:
        return f"{' '.join(self.argv)[:80]}: {self.state}"


class Reconciliation(TenantModel):
    """What a person found out about a command whose worker died while it ran. Nothing is run by it (row 232)."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    approval = models.OneToOneField(Approval, on_delete=models.CASCADE, related_name="reconciliation")
    took_effect = models.BooleanField()
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    reason = models.TextField()
    at = models.DateTimeField()
