"""Pure: what a plan will probably cost, as a range. A guide for the person who approves it, never a promise."""

from __future__ import annotations

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


def range_of(plan: Plan, *, allow_opus: bool, at: date | None = None) -> tuple[Usd, Usd]:
    """Low: each Task is solved at its first attempt. High: two long attempts, then one a tier above."""
    low = high = ZERO
    for task in plan.tasks:
        tier = first_tier(task)
        low += _cost(LOW[task.size], tier, allow_opus, at)
        above = min(Tier(tier + 1) if tier < Tier.OPUS else tier, Tier.OPUS if allow_opus else Tier.SONNET)
        attempt = _cost(HIGH[task.size], tier, allow_opus, at)
        high += attempt + attempt + _cost(HIGH[task.size], max(above, tier), allow_opus, at)
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


def _cost(effort: Effort, tier: Tier, allow_opus: bool, at: date | None) -> Usd:
    model = model_for(tier, allow_opus=allow_opus).name
    one = estimate_of(effort.characters, effort.output_tokens, model, at)
    assert one is not None, f"the model of the tier {tier.word} has no price"
    return Usd(one.micro * effort.calls)
