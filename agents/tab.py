"""The tab: what one run, or one question, has used so far, and how much it may."""

from __future__ import annotations

from dataclasses import dataclass

from agents.errors import StopRun
from budgets.decisions import fits_share
from budgets.money import ZERO, Usd
from routing.words import EndReason


@dataclass(slots=True, kw_only=True)
class Tab:
    """Written by the metered door alone. `budget` None is no cap of its own; 0 is nothing."""

    calls_max: int
    budget: Usd | None = None
    calls: int = 0
    cost: Usd = ZERO  # what is known
    unknown_calls: int = 0
    unknown_at_worst: Usd = ZERO  # what the unknown calls may have cost

    @property
    def calls_left(self) -> int:
        return max(0, self.calls_max - self.calls)

    @property
    def on_last_call(self) -> bool:
        """Whether the next call is the last one (row 227)."""
        return self.calls_left == 1

    def admit(self, estimate: Usd | None) -> None:
        """The caps of the run, before anything is held (rows 50 to 52). Raises `StopRun`.

        An unknown charge counts at its worst case: it may well have been one.
        """
        if self.calls >= self.calls_max:
            raise StopRun(EndReason.RUN_CALL_CAP, f"{self.calls} of {self.calls_max} calls")
        spent = self.cost + self.unknown_at_worst
        if not fits_share(self.budget, spent=spent, estimate=estimate):
            next_one = "has no known price" if estimate is None else f"may cost {estimate}"
            raise StopRun(EndReason.RUN_COST_CAP, f"{spent} of {self.budget} used; the next call {next_one}")

    def book(self, cost: Usd | None, *, at_worst: Usd | None) -> None:
        """One call's known cost, or one more unknown charge."""
        if cost is not None:
            self.cost += cost
            return
        self.unknown_calls += 1
        self.unknown_at_worst += at_worst or ZERO
