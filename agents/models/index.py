"""TreeIndex and IndexedFile: what is known of every file of a canonical tree."""

from __future__ import annotations

from django.db import models
from uuid_utils.compat import uuid7

from tenants.models import Project
from tenants.scope import TenantModel


class TreeIndex(TenantModel):
    """The index of one tree. It is there only when all its files are: both are written at once (row 211)."""

    tenant_path = "project__organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="tree_indexes")
    commit = models.CharField(max_length=64)
    commit_time = models.PositiveBigIntegerField()  # seconds since the epoch: the capturedAt of its files
    files_total = models.PositiveIntegerField()  # of the tree; more than the rows when some were left out
    embedder = models.CharField(max_length=100, blank=True)  # whose vectors these are; empty: none
    built_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "tree indexes"
        constraints = [
            models.UniqueConstraint(fields=["project", "commit"], name="tree_index_once_per_commit"),
        ]

    def __str__(self) -> str:
        return f"{self.project_id} {self.commit[:12]}"


class IndexedFile(TenantModel):
    tenant_path = "index__project__organization"

    index = models.ForeignKey(TreeIndex, on_delete=models.CASCADE, related_name="files")
    path = models.TextField()  # bytes that are no UTF-8 are written \\xff
    blob = models.CharField(max_length=64)
    size_bytes = models.PositiveBigIntegerField()
    language = models.CharField(max_length=20, blank=True)
    symbols = models.JSONField(default=list)  # names that the file defines, in order
    wants = models.JSONField(default=list)  # what it imports, as written
    imports = models.JSONField(default=list)  # the paths of this tree that these are
    vector = models.BinaryField(null=True)  # float32, little endian, of length 1; null: none

    class Meta:
        ordering = ["index", "path"]
        constraints = [
            models.UniqueConstraint(fields=["index", "path"], name="indexed_file_once_per_tree"),
        ]

    def __str__(self) -> str:
        return self.path
