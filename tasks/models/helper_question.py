"""A HelperQuestion: what a client asks a helper role under an allowance, and what came of it (row 175)."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from budgets.models import ModelTask
from tasks.states import QuestionState
from tenants.models import Project, User
from tenants.scope import TenantModel


class HelperQuestion(TenantModel):
    """The row is the queue. Its calls are the allowance's invocations that name it as their parent.

    `packet` lives no longer than the work: the database holds that line. `failure` has code, problem and remedy,
    and of a refusal the dimension of the allowance or the meters, with what would lift it.
    """

    tenant_path = "project__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="questions")
    allowance = models.ForeignKey(ModelTask, on_delete=models.PROTECT, related_name="questions")
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")  # pays, beside the project
    state = models.CharField(
        max_length=10,
        choices=[(state.value, state.value) for state in QuestionState],
        default=QuestionState.QUEUED.value,
    )
    role = models.CharField(max_length=20)
    packet = models.TextField(blank=True)
    schema = models.JSONField(null=True, blank=True)
    validation_schema = models.JSONField(null=True, blank=True)
    text = models.TextField(blank=True)
    value = models.JSONField(null=True, blank=True)
    failure: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict, blank=True)
    work_key = models.CharField(max_length=200, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)  # running: when the lease of its worker ends
    tries = models.PositiveIntegerField(default=0)
    lost = models.PositiveSmallIntegerField(default=0)  # workers that died over it before anything was sent
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "question"
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in QuestionState]),
                name="question_state_is_a_known_one",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], ended_at__isnull=True)
                | (~Q(state__in=["queued", "running"]) & Q(ended_at__isnull=False)),
                name="question_ended_exactly_when_it_has_an_end",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"]) | Q(packet=""),
                name="question_keeps_no_packet_past_its_end",
            ),
        ]
        indexes = [
            models.Index(fields=["allowance", "-created_at"], name="question_newest_first"),
            models.Index(
                fields=["not_before"],
                condition=Q(state__in=["queued", "running"]),
                name="question_that_is_open",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role}: {self.state}"
