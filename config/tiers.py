"""Which sandbox each worker's host has: noted when a worker starts, read by /readyz on another host."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery import signals
from django.conf import settings
from django.utils import timezone

from agents.workspace.sandbox import SandboxTier, probe

FOLDER = "sandbox-tiers"
# Containers come and go; a note of a host that is gone must not warn for ever.
NOTE_DAYS_MAX = 7


@dataclass(frozen=True, slots=True)
class Noted:
    tier: SandboxTier
    at: str


def note_tier() -> None:
    """Write down this host's tier."""
    folder = settings.PLANE.data_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    name = socket.gethostname()
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(json.dumps({"tier": probe(), "at": timezone.now().isoformat()}), encoding="utf-8")
    draft.replace(folder / f"{name}.json")


def noted_tiers() -> dict[str, Noted]:
    """Host name to tier, of workers that started within the last days."""
    found = {}
    oldest = (timezone.now() - timedelta(days=NOTE_DAYS_MAX)).isoformat()
    for path in sorted((settings.PLANE.data_dir / FOLDER).glob("*.json")):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
            noted = Noted(SandboxTier(note["tier"]), str(note["at"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half a note says nothing
        if noted.at > oldest:
            found[path.stem] = noted
    return found


@signals.worker_ready.connect
def note_at_start(**_: Any) -> None:
    note_tier()
