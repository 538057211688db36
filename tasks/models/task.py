"""A Task: one piece of a Change, done by one logical Agent over one or more attempts."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from uuid_utils.compat import uuid7

from routing.words import Area, Risk, Size, TaskKind
from tasks.models.change import Change
from tasks.states import TaskState
from tenants.scope import TenantModel


class Task(TenantModel):
    tenant_path = "change__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="tasks")
    key = models.CharField(max_length=20)  # T1, T2, ... within the Change
    position = models.PositiveSmallIntegerField()  # from 1, as planned
    title = models.CharField(max_length=200)
    objective = models.TextField()
    kind = models.CharField(max_length=20, choices=[(k.value, k.value) for k in TaskKind])
    size = models.CharField(max_length=10, choices=[(s.value, s.value) for s in Size])
    risk = models.CharField(max_length=10, choices=[(r.value, r.value) for r in Risk])
    area = models.CharField(
        max_length=20, choices=[(a.value, a.value) for a in Area], default=Area.GENERAL.value
    )
    destructive_migration = models.BooleanField(default=False)
    design_conflicts = models.PositiveSmallIntegerField(default=0)  # resources in a design conflict (R2)
    resources = models.JSONField(default=list, blank=True)  # repository paths it says it will touch
    notes = models.JSONField(default=list, blank=True)  # what people and reviews add; part of the next packet
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in TaskState], default=TaskState.PENDING.value
    )
    # The one column of waiting: retry delay, index wait, held money, and the lease of a starting worker.
    not_before = models.DateTimeField(null=True, blank=True)  # null: due at once
    waiting_for = models.CharField(
        max_length=60, blank=True
    )  # blocked_limit, paused, held_money:<meter>, index
    owner = models.CharField(
        max_length=200, blank=True
    )  # the process that is starting it; its run has its own
    index_waits = models.PositiveSmallIntegerField(default=0)  # row 30: six of them, 2 s each
    woken_at = models.DateTimeField(
        null=True, blank=True
    )  # the last nudge, so that a beat does not repeat it
    attempts_reset_at = models.DateTimeField(null=True, blank=True)  # start of the attempt window (row 196)
    stop_limit = models.CharField(max_length=40, blank=True)
    stop_detail = models.JSONField(default=dict, blank=True)
    # The dependency whose failure or stop blocked this Task; empty when it stopped by itself.
    blocked_by = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    failure = models.CharField(max_length=60, blank=True)  # fixed words, such as dependency_merge_conflict
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["change_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["change", "key"], name="task_key_once_per_change"),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in TaskState]), name="task_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=~Q(state=TaskState.BLOCKED.value) | ~Q(stop_limit="") | Q(blocked_by__isnull=False),
                name="task_blocked_says_by_what",
            ),
            models.CheckConstraint(
                condition=Q(state=TaskState.BLOCKED.value) | Q(stop_limit="", blocked_by__isnull=True),
                name="task_stop_only_while_blocked",
            ),
            models.CheckConstraint(
                condition=Q(state=TaskState.READY.value) | Q(owner=""),
                name="task_is_started_only_when_ready",
            ),
        ]
        indexes = [models.Index(fields=["state", "not_before"], name="task_startable")]

    @property
    def agent_id(self) -> str:
        return f"agt_{self.pk}"

    @property
    def called(self) -> str:
        return f"{self.change.key}/{self.key}"

    def __str__(self) -> str:
        return f"{self.key} {self.title}"


class Dependency(TenantModel):
    """`task` starts only when `on` is done; its work is stacked on that of `on`."""

    tenant_path = "task__change__organization"

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="dependencies")
    on = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="dependents")
    added_by = models.CharField(max_length=20, default="plan")  # plan, integrate

    class Meta:
        verbose_name_plural = "dependencies"
        constraints = [
            models.UniqueConstraint(fields=["task", "on"], name="dependency_once"),
            models.CheckConstraint(condition=~Q(task=F("on")), name="dependency_not_on_itself"),
        ]
