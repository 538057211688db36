"""One line of a measurement: ours beside what it is compared with, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


class Skipped(Exception):
    """This machine lacks a part; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    what: str
    ours: str
    theirs: str
    ratio: float  # ours to theirs
    aim: str = ""  # such as "at most 1.1"


def compared(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], *, rounds: int = 9, aim: str = ""
) -> Measured:
    """Medians of seconds, taken in turns, so that a busy moment of the machine falls on both."""
    mine, other = [], []
    for _ in range(rounds):
        mine.append(_seconds(ours))
        other.append(_seconds(theirs))
    a, b = median(mine), median(other)
    return Measured(what=what, ours=_shown(a), theirs=_shown(b), ratio=a / b, aim=aim)


def _seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _shown(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
