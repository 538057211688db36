"""Pure: what a plan will probably cost, as a range. A guide for the person who approves it, never a promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from budgets.money import ZERO, Usd
from budgets.prices import estimate_of
from routing.route import NeedsOpinion, RouteFacts, route, with_opinion
from routing.tiers import model_for
from routing.words import Size, Tier
from tasks.plan import Plan, PlannedTask


@dataclass(frozen=True, slots=True)
class Effort:
    """The calls of one attempt, and what a typical call of it sends and gets."""

    calls: int
    characters: int
    output_tokens: int


# From runs of small public tasks: a small one is read, edited and tested in a handful of calls.
LOW = {
    Size.SMALL: Effort(4, 12_000, 300),
    Size.MEDIUM: Effort(7, 18_000, 400),
    Size.LARGE: Effort(12, 25_000, 500),
}
HIGH = {
    Size.SMALL: Effort(12, 30_000, 1_000),
    Size.MEDIUM: Effort(20, 50_000, 1_500),
    Size.LARGE: Effort(30, 80_000, 2_000),
}
assert LOW.keys() == HIGH.keys() == set(Size)
assert all(LOW[size].calls < HIGH[size].calls for size in Size)


# The most that a call of so many characters and tokens should cost on a day; None: nobody knows its price.
Estimate = Callable[[int, int, str, date | None], Usd | None]


class _Unpriced(Exception):  # no error: it carries an answer out of the sum
    pass


@dataclass(frozen=True, slots=True)
class _Costs:
    allow_opus: bool
    at: date | None
    estimate: Estimate

    def of(self, effort: Effort, tier: Tier) -> Usd:
        model = model_for(tier, allow_opus=self.allow_opus).name
        one = self.estimate(effort.characters, effort.output_tokens, model, self.at)
        if one is None:
            raise _Unpriced
        return Usd(one.micro * effort.calls)


def range_of(
    plan: Plan, *, allow_opus: bool, at: date | None = None, estimate: Estimate = estimate_of
) -> tuple[Usd, Usd] | None:
    """Low: each Task is solved at its first attempt. High: two long attempts, then one a tier above.

    None when the price of one of its models is unknown: a sum without it would be too low.
    """
    try:
        return _range(plan, _Costs(allow_opus, at, estimate))
    except _Unpriced:
        return None


def _range(plan: Plan, costs: _Costs) -> tuple[Usd, Usd]:
    low = high = ZERO
    for task in plan.tasks:
        tier = first_tier(task)
        low += costs.of(LOW[task.size], tier)
        highest = Tier.OPUS if costs.allow_opus else Tier.SONNET
        above = min(Tier(tier + 1) if tier < Tier.OPUS else tier, highest)
        attempt = costs.of(HIGH[task.size], tier)
        high += attempt + attempt + costs.of(HIGH[task.size], max(above, tier))
    return low, high


def first_tier(task: PlannedTask) -> Tier:
    """Where the rules send the first attempt; sonnet where they would ask the classifier."""
    facts = RouteFacts(
        kind=task.kind,
        size=task.size,
        risk=task.risk,
        area=task.area,
        destructive_migration=task.destructive_migration,
        design_conflicts=0,
        attempt=1,
    )
    decided = route(facts)
    return with_opinion(facts, None).tier if isinstance(decided, NeedsOpinion) else decided.tier
