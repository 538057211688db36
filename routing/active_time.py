"""The active time of one attempt that may pause: who works on it has claimed all that is left (row 231)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimed:
    """All the time that was left. Nothing is left for anybody else until it is given back."""

    ms: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """`active_budget_exhausted`: nothing is left to claim."""


def claim(remaining_ms: int) -> Claimed | Exhausted:
    """Takes everything. A claim that is never given back is forfeited: whoever held it may have worked on and on."""
    return Claimed(remaining_ms) if remaining_ms > 0 else Exhausted()


def given_back(claimed_ms: int, elapsed_ms: int) -> int:
    """What remains after an orderly pause or end; never below nothing, and never more than was claimed."""
    return min(claimed_ms, max(0, claimed_ms - elapsed_ms))
