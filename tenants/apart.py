"""One row's fault stays its own: who looks after many goes on with the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger(__name__)


@contextmanager
def apart(what: str, **ids: str) -> Iterator[None]:
    """A fault in here is logged with its traceback, and the caller's loop goes on. Not for a person's own request."""
    try:
        yield
    except Exception:
        log.exception("a step of looking after many broke", step=what, **ids)
