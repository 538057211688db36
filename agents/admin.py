"""Operator screens of the engine's logs: read only."""

from __future__ import annotations

from django.contrib import admin

from agents.models import IndexedFile, ModelCall, ToolCall, TreeIndex, WorkerHost
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
