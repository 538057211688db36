"""Which process holds a row, and whether it is surely dead. A dead worker's run is taken back at once."""

from __future__ import annotations

import os
from pathlib import Path

# A field of /proc/<pid>/stat, counted after the name in brackets: when the process started, in clock ticks.
_START_FIELD = 19
_PROC = Path("/proc")


def this_process() -> str:
    """`host/boot/namespace:pid:started`: no other process, before or after, has the same name."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_started(pid) or 0}"


def is_surely_dead(owner: str) -> bool:
    """True only for a process of this machine and process namespace that is gone (or whose pid is another's now).

    Of another machine nothing is known: there the lease decides.
    """
    machine, pid, started = ["", "", "", *owner.rsplit(":", 2)][-3:]
    if machine != _machine() or not pid.isdigit() or not started.isdigit():
        return False
    return _started(int(pid)) != int(started)


def _machine() -> str:
    return f"{os.uname().nodename[:63]}/{_boot()}/{_namespace()}"


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "unknown"


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return "unknown"


def _started(pid: int) -> int | None:
    """None when there is no such process. A zombie is dead: it will never write again."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()
    return None if after_name[0] in ("Z", "X") else int(after_name[_START_FIELD])
