"""Operator screens of the engine's logs: read only."""

from __future__ import annotations

from django.contrib import admin

from agents.models import (
    Approval,
    Continuation,
    IndexedFile,
    ModelCall,
    Reconciliation,
    ToolCall,
    TreeIndex,
    WorkerHost,
)
from tenants.admin import ReadOnly


@admin.register(ModelCall)
class ModelCalls(ReadOnly):
    list_display = (
        "started_at",
        "organization",
        "purpose",
        "tier",
        "model",
        "state",
        "error",
        "held",
        "cost",
    )
    list_filter = ("state", "purpose", "tier", "error", "organization")
    list_select_related = ("organization",)
    search_fields = ("run_id", "change_id", "key", "request_id")
    date_hierarchy = "started_at"


@admin.register(ToolCall)
class ToolCalls(ReadOnly):
    list_display = ("started_at", "organization", "run_id", "position", "name", "outcome", "code")
    list_filter = ("name", "outcome", "organization")
    list_select_related = ("organization",)
    search_fields = ("run_id", "code")


@admin.register(Continuation)
class Continuations(ReadOnly):
    list_display = ("paused_at", "organization", "run_id", "revision", "state", "remaining_ms", "claimed_ms")
    list_filter = ("state", "organization")
    list_select_related = ("organization",)
    search_fields = ("run_id", "task_id", "change_id")


@admin.register(Approval)
class Approvals(ReadOnly):
    list_display = ("asked_at", "organization", "__str__", "state", "decided_by", "effect_ended_at")
    list_filter = ("state", "organization")
    list_select_related = ("organization", "decided_by")
    search_fields = ("continuation__run_id", "payload_hash")


@admin.register(Reconciliation)
class Reconciliations(ReadOnly):
    list_display = ("at", "organization", "approval", "took_effect", "by")
    list_select_related = ("organization", "approval", "by")


@admin.register(TreeIndex)
class TreeIndexes(ReadOnly):
    list_display = ("__str__", "project", "files_total", "embedder", "built_at")
    list_select_related = ("project",)
    search_fields = ("commit", "project__name")


@admin.register(IndexedFile)
class IndexedFiles(ReadOnly):
    list_display = ("path", "index")
    list_select_related = ("index",)
    search_fields = ("path",)


@admin.register(WorkerHost)
class WorkerHosts(ReadOnly):
    list_display = ("worker", "host", "tier", "words", "probed_at")
    list_filter = ("tier",)
    search_fields = ("worker", "host")

    @admin.display(description="what that means")
    def words(self, row: WorkerHost) -> str:
        return str(row.get_tier_display())
