"""May this Task start now? Pure."""

from __future__ import annotations

from dataclasses import dataclass

AGENTS_PER_CHANGE_MAX = 8
# Why a Task that could start does not: kept in `waiting_for` and shown as it is.
BLOCKED_LIMIT = "blocked_limit"
PAUSED = "paused"
# Of a start, and of a Change's own work: only holds stand in the way. Behind it, at which limit.
WAITS_FOR_HELD_MONEY = "held_money:"


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """`active` counts running Tasks and those that a worker is starting; `older_due` the due Tasks before this one.

    `agents_max` is the project's own cap, when its owner has set one.
    """

    active: int
    older_due: int
    paused: bool = False
    agents_max: int = AGENTS_PER_CHANGE_MAX


@dataclass(frozen=True, slots=True)
class Admit:
    pass


@dataclass(frozen=True, slots=True)
class Wait:
    """Not a failure and no attempt: the Task stays ready with this note (row 16)."""

    note: str


def admit(facts: AdmissionFacts) -> Admit | Wait:
    """Fewer than 8 agents of a Change are active; the free places go to its oldest due Tasks (row 16)."""
    if facts.paused:
        return Wait(PAUSED)
    if facts.active + facts.older_due < facts.agents_max:
        return Admit()
    return Wait(BLOCKED_LIMIT)
