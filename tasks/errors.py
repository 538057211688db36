"""What can go wrong in the domain.

TaskError
├── IllegalMove   this state does not lead to that one
├── LostRace      somebody else moved the row first, or holds it now
├── StillOpen     the project's last Preflight or import has not ended
└── NotStopped    there is no stop here that this act could lift
"""

from __future__ import annotations

from django.db import models


class TaskError(Exception):
    """Root of this floor's errors."""


class IllegalMove(TaskError):
    """The table in `tasks/states.py` has no such arrow."""

    def __init__(self, row: models.Model, to: str) -> None:
        super().__init__(f"{_name_of(row)} and cannot become {_words(to)}")
        self.to = to


class LostRace(TaskError):
    """The row was no longer as it was read. Nothing was written."""

    def __init__(self, row: models.Model) -> None:
        super().__init__(f"{_name_of(row)}; somebody else has moved it meanwhile")


class StillOpen(TaskError):
    """One at a time: `remedy` says what to do about the one that is open."""

    def __init__(self, problem: str, remedy: str, *, code: str = "") -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.code = code  # empty: the table's


class NotStopped(TaskError):
    """The Task does not wait for this act; `remedy` says what would help it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


def _name_of(row: models.Model) -> str:
    """As people know it: `CH-12/T3 is done`; what has no such name is called by its kind, never by an id."""
    called = getattr(row, "called", "") or f"this {row._meta.verbose_name}"
    return f"{called} is {_words(getattr(row, 'state', 'as it is'))}"


def _words(state: str) -> str:
    return str(state).replace("_", " ")
