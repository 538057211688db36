"""What the last audit of the ledger found."""

from __future__ import annotations

from django.db import models


class LedgerVerdict(models.Model):
    """One row: the last whole audit, so that a readiness probe reads it instead of adding up the books."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    problems = models.JSONField(default=list)  # texts, bounded in number; empty: sound
    problem_count = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
