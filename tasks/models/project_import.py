"""A ProjectImport: a repository on its way into a project, asked for in the browser or over REST."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from tasks.states import ImportState
from tenants.models import Project, User
from tenants.scope import TenantModel


class ProjectImport(TenantModel):
    """The row is the queue. `sealed_password` lives no longer than the work: the database holds that line.

    `found` is what came in: commit, branch, files, bytes, warnings. What did not come in says why in
    `code`, `problem` and `remedy`.
    """

    tenant_path = "project__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="imports")
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    state = models.CharField(
        max_length=10,
        choices=[(state.value, state.value) for state in ImportState],
        default=ImportState.QUEUED.value,
    )
    source = models.CharField(max_length=2_000)  # an address without any password, or the name of a bundle
    is_bundle = models.BooleanField(default=False)
    username = models.CharField(max_length=200, blank=True)
    sealed_password = models.TextField(blank=True, editable=False)
    step = models.CharField(max_length=200, blank=True)  # what the worker is at now
    received_bytes = models.BigIntegerField(default=0)  # of a bundle: its size; else of the pack so far
    found: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict, blank=True)
    code = models.CharField(max_length=60, blank=True)
    problem = models.TextField(blank=True)
    remedy = models.TextField(blank=True)
    work_key = models.CharField(max_length=200, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)  # running: when the lease of its worker ends
    tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "import"
        constraints = [
            models.UniqueConstraint(
                fields=["project"],
                condition=Q(state__in=["queued", "running"]),
                name="import_open_once_per_project",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in ImportState]),
                name="import_state_is_a_known_one",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], ended_at__isnull=True)
                | (~Q(state__in=["queued", "running"]) & Q(ended_at__isnull=False)),
                name="import_ended_exactly_when_it_has_an_end",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"]) | Q(sealed_password="", username=""),
                name="import_keeps_no_password_past_its_end",
            ),
        ]
        indexes = [models.Index(fields=["project", "-created_at"], name="import_newest_first")]

    def __str__(self) -> str:
        return f"{self.project.slug}: {self.source}"
