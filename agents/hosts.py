"""Which sandbox each worker's host has: noted when a worker starts, read by /readyz and the admin."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from agents.models import WorkerHost
from agents.workspace.sandbox import probe_in_full

# A worker that was killed takes nothing back; its note must not warn for ever.
NOTE_DAYS_MAX = 30


def note_host(worker: str, *, now: datetime) -> WorkerHost:
    """Write down what this process finds on its host, under the worker's node name."""
    found = probe_in_full()
    row, _ = WorkerHost.objects.update_or_create(
        worker=worker,
        defaults={
            "host": os.uname().nodename,
            "tier": found.tier.value,
            "reasons": list(found.reasons),
            "probed_at": now,
        },
    )
    WorkerHost.objects.filter(probed_at__lt=now - timedelta(days=NOTE_DAYS_MAX)).delete()
    return row


def forget_host(worker: str) -> None:
    """The worker stops."""
    WorkerHost.objects.filter(worker=worker).delete()


def noted_hosts(*, now: datetime) -> list[WorkerHost]:
    rows = WorkerHost.objects.filter(probed_at__gte=now - timedelta(days=NOTE_DAYS_MAX))
    return list(rows.order_by("tier", "worker"))
