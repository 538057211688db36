"""A Change: a goal with acceptance criteria, against a project's repository."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from tasks.states import WAITING_FOR_A_PERSON, ChangeState
from tenants.models import Organization, Project, User
from tenants.scope import TenantModel


class Change(TenantModel):
    """What a team asked for. Its budget is the limit of its own meter (kind `change`, for life)."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="changes")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="changes")
    number = models.PositiveIntegerField()  # CH-<number>, counted per organization
    author = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="changes"
    )  # the user meter that pays
    title = models.CharField(max_length=200)
    goal = models.TextField()
    invariants = models.JSONField(default=list, blank=True)  # list of texts that must stay true
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in ChangeState], default=ChangeState.DRAFT.value
    )
    paused_at = models.DateTimeField(
        null=True, blank=True
    )  # a pause starts nothing new; it is no state of its own
    # The plan as the planner answered it, and as a person may have edited it.
    plan = models.JSONField(null=True, blank=True)
    plan_needs_approval = models.BooleanField(default=False)  # of this Change alone; its project may ask, too
    plan_problem = models.TextField(blank=True)  # why the last plan was refused
    # The stop: which limit, and every meter that refused with its figures at that moment.
    stop_limit = models.CharField(max_length=40, blank=True)
    stop_detail = models.JSONField(default=dict, blank=True)
    failure = models.TextField(blank=True)
    # Planning and composing are work of the Change itself: taken by moving this forward, like a Task's.
    not_before = models.DateTimeField(null=True, blank=True)
    work_key = models.CharField(max_length=255, blank=True)  # who holds that work: a fencing token
    work_delays = models.PositiveSmallIntegerField(default=0)  # in a row, by transport or a fault; bounded
    waiting_for = models.CharField(max_length=80, blank=True, default="")  # held_money:<limit>
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "number"], name="change_number_once_per_organization"
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in ChangeState]), name="change_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=~Q(state=ChangeState.BUDGET_BLOCKED.value) | ~Q(stop_limit=""),
                name="change_blocked_names_its_limit",
            ),
        ]
        indexes = [
            models.Index(fields=["organization", "state", "-number"], name="change_list"),
            models.Index(fields=["organization", "-id"], name="change_newest_first"),
            # The inbox ranks and counts all that waits, in this order, and reads the first few.
            models.Index(
                fields=["organization", "state", "stop_limit", "updated_at", "id"],
                condition=Q(state__in=[state.value for state in WAITING_FOR_A_PERSON]),
                name="change_waits_in_order",
            ),
        ]

    @property
    def key(self) -> str:
        return f"CH-{self.number}"

    @property
    def called(self) -> str:
        """What people call it in a sentence; so on every row that moves."""
        return self.key

    def __str__(self) -> str:
        return f"{self.key} {self.title}"


class Criterion(TenantModel):
    """One acceptance criterion: a command that Remit runs, or a question for the acceptance check."""

    tenant_path = "change__organization"

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="criteria")
    position = models.PositiveSmallIntegerField()  # from 1
    text = models.CharField(max_length=2000)
    command = models.CharField(max_length=1000, blank=True)  # empty: asked of the acceptance-check role

    class Meta:
        ordering = ["change_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["change", "position"], name="criterion_position_once_per_change"),
            models.CheckConstraint(condition=~Q(text=""), name="criterion_says_something"),
        ]
