"""Each worker says when it starts which sandbox its host has, and takes it back when it stops."""

from __future__ import annotations

import threading
from typing import Any

import structlog
from celery import signals
from django.db import DatabaseError, connections
from django.utils import timezone

# A worker does not stay for the sake of a note, which grows old by itself.
FORGET_SECONDS_MAX = 1.0

log = structlog.get_logger(__name__)


@signals.worker_ready.connect
def note_at_start(sender: Any = None, **_: Any) -> None:
    from agents.hosts import note_host  # models are there only after the start

    _apart(lambda: note_host(str(sender.hostname), now=timezone.now()))


@signals.worker_shutting_down.connect
def forget_at_end(sender: Any = None, **_: Any) -> None:
    """At the first word of it: an idle worker takes seconds to end, and may be killed before it has.

    This runs wherever the signal found the process, perhaps in the middle of a job's transaction: so on a connection of
    its own. Who holds SQLite's one lock gets it off first; the note is then taken back a little later.
    """
    from agents.hosts import forget_host

    forgetting = threading.Thread(target=_apart, args=(lambda: forget_host(str(sender)),), daemon=True)
    forgetting.start()
    forgetting.join(FORGET_SECONDS_MAX)


def _apart(act: Any) -> None:
    """No worker stays away for want of a note; and no child may inherit this connection."""
    try:
        act()
    except DatabaseError:
        log.exception("the sandbox of this host was not noted")
    finally:
        connections.close_all()
