"""What a tree of processes, and a directory, take at this moment."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_of(top: int) -> int:
    """Resident bytes of a process and all its descendants; some 2 ms a call."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # four times a second
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            line = file.read()
            fields = line[line.rindex(b")") + 2 :].split()
            children.setdefault(int(fields[1]), []).append(int(name))
            resident[int(name)] = int(fields[21]) * _PAGE_BYTES
    total, left = 0, [top]
    while left:
        process = left.pop()
        total += resident.get(process, 0)
        left += children.get(process, [])
    return total


def bytes_on_disk(directory: Path) -> int:
    """What a directory takes on its file system, however deep it goes and whatever races with the walk."""
    total, waiting = 0, [str(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def free_bytes(directory: Path) -> int:
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize
