"""Pure rules of a ModelTask: the worst case of a call, and whether the allowance still has room for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from budgets.errors import PlanRefused
from budgets.money import ZERO, Usd, exact
from budgets.prices import upper_cost

# Whole numbers that every JSON reader keeps exact (row 151).
SAFE_INTEGER_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True)
class PriceBound:
    """The host's own upper rates, in micro-dollars per token: for a deployment the catalogue does not price."""

    input: Decimal
    output: Decimal

    def cost(self, input_tokens: int, output_tokens: int) -> Usd:
        return Usd.ceiling(input_tokens * self.input + output_tokens * self.output)

    def as_data(self) -> dict[str, str]:
        return {"input": str(self.input), "output": str(self.output)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """What one physical attempt may use at most. Frozen: checks and dispatch see the same (row 159)."""

    model: str
    input_capacity: int
    output_tokens_max: int  # of one candidate
    candidates: int = 1
    price_bound: PriceBound | None = None
    hosted_tools: bool = False  # tools that the provider runs and bills, raw tool overrides included
    pricing_overrides: bool = False  # vendor options that change the price
    priced_on: date | None = None


@dataclass(frozen=True, slots=True)
class WorstCase:
    tokens: int
    cost: Usd | None  # None: no price, and no limit in money


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceFacts:
    calls_max: int | None
    tokens_max: int | None
    cost_max: Usd | None
    deadline: datetime | None
    calls: int
    charged_tokens: int
    charged_cost: Usd
    cancelled: bool


def worst_case_of(plan: CallPlan, *, output_per_call_max: int | None, cost_limited: bool) -> WorstCase:
    """Full input capacity and every candidate's whole output, at the dearest rates (rows 150 to 152, 157, 158).

    Raises `PlanRefused` for what cannot be bounded; before any admission.
    """
    for name in ("input_capacity", "output_tokens_max", "candidates"):
        _check_count(name, getattr(plan, name))
    output = plan.candidates * plan.output_tokens_max
    tokens = plan.input_capacity + output
    _check_count("candidates x output_tokens_max", output)
    _check_count("the reservation", tokens)
    if output_per_call_max is not None and output > output_per_call_max:
        raise PlanRefused(
            "output_cap", f"{output} output tokens of all candidates; a call may have {output_per_call_max}"
        )
    if cost_limited and plan.hosted_tools:
        raise PlanRefused(
            "hosted_tools", "tools that the provider runs have fees that a limit in money cannot bound"
        )
    if cost_limited and plan.pricing_overrides and plan.price_bound is None:
        raise PlanRefused("price_bound_needed", "options that change the price need a price bound")
    if plan.price_bound is not None:
        return WorstCase(tokens, plan.price_bound.cost(plan.input_capacity, output))
    return WorstCase(tokens, upper_cost(plan.input_capacity, output, plan.model, plan.priced_on))


def exhausted(facts: AllowanceFacts, worst: WorstCase, *, now: datetime) -> str:
    """The dimension without room; empty when the call may go. An exact fit is allowed."""
    if facts.cancelled:
        return "cancelled"
    if facts.deadline is not None and now >= facts.deadline:
        return "deadline"
    if facts.calls_max is not None and facts.calls + 1 > facts.calls_max:
        return "calls"
    if facts.tokens_max is not None and facts.charged_tokens + worst.tokens > facts.tokens_max:
        return "tokens"
    if facts.cost_max is None:
        return ""
    if worst.cost is None:
        return "price"
    return "cost" if facts.charged_cost + worst.cost > facts.cost_max else ""


def least_limit(facts: AllowanceFacts, worst: WorstCase, dimension: str) -> str:
    """What the limit of that dimension would have to be for this call; empty where no figure helps."""
    match dimension:
        case "calls":
            return str(facts.calls + 1)
        case "tokens":
            return str(facts.charged_tokens + worst.tokens)
        case "cost":
            return exact(facts.charged_cost + (worst.cost or ZERO))
        case _:
            return ""


def _check_count(name: str, value: int) -> None:
    if type(value) is not int or not 1 <= value <= SAFE_INTEGER_MAX:
        raise PlanRefused("bad_count", f"{name} is a whole number from 1 to 2^53-1, not {value!r}")
