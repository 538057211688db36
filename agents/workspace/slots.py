"""How many sandboxes a Change has open, and who is alive: locks that the kernel frees on kill -9."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from agents.errors import AgentError, SandboxLimit

SANDBOXES_MAX = 4  # per Change (row 56)
LOCK = "lock"
# A directory without a held lock is a dead worker's, unless it is only just being made.
YOUNG_SECONDS = 60.0


def take_slot(root: Path, change: str, sandboxes_max: int) -> int:
    """A descriptor that holds one of the Change's places; closing it gives the place back.

    Raises `SandboxLimit` when all are taken.
    """
    places = root / "slots" / change
    places.mkdir(parents=True, exist_ok=True)
    for number in range(sandboxes_max):
        held = try_lock(places / f"{number}.lock")
        if held is not None:
            return held
    raise SandboxLimit(sandboxes_max)


def claim(top: Path) -> int:
    """Makes a workspace's directory ours; raises when a living worker holds it."""
    top.mkdir(parents=True, exist_ok=True)
    top.chmod(0o755)
    held = try_lock(top / LOCK)
    if held is None:
        raise AgentError(f"the workspace {top.name} is open in another worker")
    return held


def try_lock(path: Path) -> int | None:
    """None when another holds it. The descriptor is the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def dead(top: Path) -> int | None:
    """The lock of a directory whose worker is gone; None for a living or a young one."""
    if not (top / LOCK).exists():
        young = time.time() - top.stat().st_mtime < YOUNG_SECONDS
        return None if young else try_lock(top / LOCK)
    return try_lock(top / LOCK)
