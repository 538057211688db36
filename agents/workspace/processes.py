"""What a tree of processes, a directory and the machine take at this moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Tree:
    """A process, then all its descendants; and the bytes that are resident of them."""

    processes: tuple[int, ...]
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and files: what a file system has left, or what something takes of it."""

    bytes: int
    files: int


def tree_of(top: int) -> Tree:
    """Some 2 ms a call."""
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
    found, left = [], [top]
    while left:
        process = left.pop()
        found.append(process)
        left += children.get(process, [])
    return Tree(tuple(found), sum(resident.get(process, 0) for process in found))


def space_taken(directory: Path) -> Space:
    """What a directory takes on its file system, however deep it goes and whatever races with the walk."""
    size, files, waiting = 0, 0, [str(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return Space(size, files)


def unlinked_bytes(processes: Iterable[int], directory: Path) -> int:
    """What files of this file system take that have no name any more and live by being open."""
    device = directory.stat().st_dev
    found: dict[int, int] = {}
    for process in processes:
        with suppress(OSError), os.scandir(f"/proc/{process}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    facts = entry.stat()  # of what it leads to
                    if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0 and facts.st_dev == device:
                        found[facts.st_ino] = facts.st_blocks * 512
    return sum(found.values())


def files_in_memory(processes: Sequence[int], places: Iterable[str]) -> int:
    """How many files the sandbox holds in its file systems in memory, seen through one of its processes."""
    for process in reversed(processes[1:]):  # the first one stands outside
        with suppress(OSError):
            taken, seen = 0, set()
            for place in places:
                inside = f"/proc/{process}/root{place}"
                device = os.stat(inside).st_dev  # noqa: PTH116
                if device not in seen and device != os.stat("/").st_dev:  # noqa: PTH116
                    seen.add(device)
                    facts = os.statvfs(inside)
                    taken += facts.f_files - facts.f_ffree
            return taken
    return 0


def space_left(directory: Path) -> Space:
    facts = os.statvfs(directory)
    return Space(facts.f_bavail * facts.f_frsize, facts.f_favail)


def memory_left() -> int:
    """Bytes that the machine could still give to programs."""
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62
