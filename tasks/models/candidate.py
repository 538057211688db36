"""A Candidate: the composed tree of a Change, what was run on it, and what came out."""

from __future__ import annotations

from django.db import models
from uuid_utils.compat import uuid7

from tasks.models.change import Change, Criterion
from tasks.states import CandidateState
from tenants.models import User
from tenants.scope import TenantModel


class Candidate(TenantModel):
    tenant_path = "change__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="candidates")
    number = models.PositiveSmallIntegerField()  # from 1 within the Change
    state = models.CharField(
        max_length=20,
        choices=[(s.value, s.value) for s in CandidateState],
        default=CandidateState.COMPOSING.value,
    )
    base_commit = models.CharField(max_length=40)  # main when it was composed
    generation = models.PositiveIntegerField()  # of the trunk at that moment
    commit = models.CharField(max_length=40, blank=True)
    changesets = models.JSONField(default=list)  # ids, in merge order
    conflicts = models.JSONField(default=list)  # [{"changeset", "task", "paths", "messages"}]
    files = models.JSONField(default=list)
    flagged_files = models.JSONField(default=list)  # tests and CI files that the agents touched
    patch_key = models.CharField(max_length=300, blank=True)
    problem = models.TextField(blank=True)  # why it is no candidate for main, in fixed words; no model text
    # What the integration judge said about the invariants; shown, and only ever a veto.
    judgement = models.TextField(blank=True)
    promoted_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["change_id", "number"]
        constraints = [
            models.UniqueConstraint(fields=["change", "number"], name="candidate_number_once_per_change"),
        ]

    @property
    def called(self) -> str:
        return f"candidate {self.number} of {self.change.key}"


class Check(TenantModel):
    """The evidence for one criterion on one Candidate, tied to its commit."""

    tenant_path = "candidate__change__organization"

    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="checks")
    criterion = models.ForeignKey(Criterion, on_delete=models.CASCADE, related_name="checks")
    commit = models.CharField(max_length=40)
    command = models.CharField(max_length=1000, blank=True)
    verdict = models.CharField(max_length=10)  # passed, failed, error
    exit_code = models.IntegerField(null=True)
    output = models.TextField(blank=True)  # bounded: head and tail
    output_key = models.CharField(max_length=300, blank=True)  # the whole, in the object store
    # The same command with the base's versions of the protected files (C93); empty where none was touched.
    base_verdict = models.CharField(max_length=10, blank=True)
    base_exit_code = models.IntegerField(null=True, blank=True)
    base_output = models.TextField(blank=True)
    base_output_key = models.CharField(max_length=300, blank=True)
    asked = models.CharField(max_length=40, blank=True)  # the model role that was asked, "" for a command
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()

    class Meta:
        ordering = ["candidate_id", "criterion__position"]
        constraints = [
            models.UniqueConstraint(
                fields=["candidate", "criterion"], name="check_once_per_candidate_and_criterion"
            ),
        ]
