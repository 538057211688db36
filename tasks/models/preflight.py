"""A Preflight: whether attempts on a project can begin, tried out before any money is spent."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from tasks.states import PreflightState
from tenants.models import Project, User
from tenants.scope import TenantModel


def _choices(states: type[PreflightState]) -> list[tuple[str, str]]:
    return [(state.value, state.value) for state in states]


class Preflight(TenantModel):
    """The row is the queue: a worker takes one that is due, and tells what it finds while it works.

    `found` is what the page shows: tier, files, seconds of the checkout, dependencies, checks, missing,
    warnings, problems. It grows from step to step.
    """

    tenant_path = "project__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="preflights")
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    state = models.CharField(
        max_length=10, choices=_choices(PreflightState), default=PreflightState.QUEUED.value
    )
    commands = models.JSONField(default=list, blank=True)  # as they were written, one program each
    prepares = models.BooleanField(default=True)  # installs what the lock files ask for and is not there yet
    commit = models.CharField(max_length=40, blank=True)  # main, when the work began
    step = models.CharField(max_length=200, blank=True)  # what the worker is at now
    found: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict, blank=True)
    work_key = models.CharField(max_length=200, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)  # running: when the lease of its worker ends
    tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project"],
                condition=Q(state__in=["queued", "running"]),
                name="preflight_open_once_per_project",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in PreflightState]),
                name="preflight_state_is_a_known_one",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], ended_at__isnull=True)
                | (~Q(state__in=["queued", "running"]) & Q(ended_at__isnull=False)),
                name="preflight_ended_exactly_when_it_has_an_end",
            ),
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="preflight_newest_first")]

    @property
    def problems(self) -> list[str]:
        """In plain words; empty when nothing would make attempts fail."""
        return [str(each) for each in self.found.get("problems", [])]
