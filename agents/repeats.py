"""Pure: notices that an agent does the same thing again and again (C67)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

IDENTICAL_CALLS_MAX = 3


class Said(StrEnum):
    NOTHING = ""
    NUDGE = "nudge"
    STUCK = "stuck"


@dataclass(slots=True)
class Repeats:
    """The third identical call with an identical result in a row gets one nudge; the next repetition ends the run."""

    last: tuple[str, str, str] | None = None
    count: int = 0
    nudged: bool = False

    def after(self, name: str, arguments: str, result: str) -> Said:
        """What to do after this call. `result` is what the tool said, without the count of calls left."""
        this = (name, arguments, result)
        self.count = self.count + 1 if this == self.last else 1
        self.last = this
        if self.count < IDENTICAL_CALLS_MAX:
            return Said.NOTHING
        if self.nudged:
            return Said.STUCK
        self.nudged = True
        return Said.NUDGE
