"""A TaskRun: one attempt of a Task."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from budgets.fields import UsdField
from budgets.money import ZERO
from routing.words import Tier
from tasks.models.task import Task
from tasks.states import OPEN_RUNS, RunState
from tenants.models import User
from tenants.scope import TenantModel

OPEN = sorted(state.value for state in OPEN_RUNS)


class TaskRun(TenantModel):
    tenant_path = "task__change__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="runs")
    attempt = models.PositiveSmallIntegerField()  # from 1, over all windows
    tier = models.PositiveSmallIntegerField(choices=[(t.value, t.word) for t in Tier])  # as routed (row 79)
    model = models.CharField(max_length=100)  # as run
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in RunState], default=RunState.RUNNING.value
    )
    end_reason = models.CharField(max_length=40, blank=True)
    failure_class = models.CharField(max_length=20, blank=True)
    note = models.TextField(blank=True)  # the agent's own reason, bounded
    intent = models.TextField(blank=True)  # what complete_task said it did, also without a workspace
    failure_log = models.TextField(blank=True)  # what the next attempt's packet may show
    detail = models.JSONField(default=dict, blank=True)  # refused meters, retry-after
    context_hash = models.CharField(max_length=64)
    packet_key = models.CharField(max_length=300)
    tool_log_key = models.CharField(max_length=300, blank=True)
    caps = models.JSONField(default=dict)  # the caps it had
    budget = UsdField(null=True, blank=True)  # the Task's share; null: no cap
    cost = UsdField(default=ZERO)  # the known part, its compaction included (row 21)
    unknown_calls = models.PositiveIntegerField(default=0)
    calls = models.PositiveIntegerField(default=0)
    reads = models.PositiveIntegerField(default=0)
    base_commit = models.CharField(max_length=40, blank=True)
    start_commit = models.CharField(max_length=40, blank=True)
    stacked_on = models.JSONField(default=list)  # ChangeSet ids, in merge order
    compaction = models.CharField(max_length=20, blank=True)  # "", done, fallback
    # The lease. A worker writes only where state is running and the token is its own.
    owner = models.CharField(max_length=200, blank=True)
    fence = models.PositiveIntegerField(default=1)
    lease_until = models.DateTimeField()
    # A person's word that this attempt should end; its worker reads it at the next beat.
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    stop_asked_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    stop_reason = models.TextField(blank=True)
    started_at = models.DateTimeField()
    # From when its time is counted, where it has paused: the start, moved on by the pauses.
    active_from = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["task_id", "attempt"]
        constraints = [
            models.UniqueConstraint(
                fields=["task"], condition=Q(state__in=OPEN), name="run_one_active_per_task"
            ),
            models.UniqueConstraint(fields=["task", "attempt"], name="run_attempt_once"),
            models.CheckConstraint(condition=Q(attempt__gte=1), name="run_attempt_counts_from_one"),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in RunState]), name="run_state_is_a_known_one"
            ),
            models.CheckConstraint(
                condition=Q(state__in=OPEN, ended_at__isnull=True, end_reason="")
                | (~Q(state__in=OPEN) & Q(ended_at__isnull=False) & ~Q(end_reason="")),
                name="run_ended_says_when_and_how",
            ),
            models.CheckConstraint(
                condition=Q(state=RunState.FAILED.value) & ~Q(failure_class="")
                | ~Q(state=RunState.FAILED.value) & Q(failure_class=""),
                name="run_failed_names_its_class",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "lease_until"], name="run_overdue"),
            # The inbox shows the first few of what runs, among thousands that do.
            models.Index(
                fields=["started_at"], condition=Q(state=RunState.RUNNING.value), name="run_running"
            ),
            # What became of each attempt, for whoever adds up its calls: a row with its logs is kilobytes.
            models.Index(fields=["id"], include=["tier", "state"], name="run_outcome"),
        ]

    @property
    def active_since(self) -> datetime:
        """From when its time is counted: pauses cost none (row 231)."""
        return self.active_from or self.started_at

    @property
    def called(self) -> str:
        return f"attempt {self.attempt} of {self.task.called}"
