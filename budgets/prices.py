"""Pure prices: what a call may cost at worst, and what it cost. Unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from budgets.decisions import Amount
from budgets.money import AMOUNT_MICRO_MAX, Usd
from providers.catalog import PriceCard, Rates, price_card
from providers.messages import Usage

# No request has that many: a figure that would burst the books. At the dearest rate that can be stated, what the
# cache has saved of so many still fits its column.
REPORTED_TOKENS_MAX = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Priced:
    """An exact cost with the rates that made it, as stored on the call (row 88)."""

    cost: Usd
    rates: dict[str, Any]


def tokens_of(characters: int) -> int:
    """The prompt estimate: 2.5 characters a token, rounded up (section 0)."""
    assert characters >= 0, "a request has no negative length"
    return -(-characters * 2 // 5)


def estimate_of(
    request_characters: int,
    output_tokens_max: int,
    model: str,
    at: date | None = None,
    *,
    own: PriceCard | None = None,
) -> Usd | None:
    """The most that a call should cost: the whole prompt written to the cache, the whole output used (section 0).

    `at` is the day whose prices count; None: the newest. `own` is the account's own price, which wins (row 138).
    None is returned for a model without a price, and for an own one that lacks a direction.
    """
    card = own or price_card(model, at)
    if card is None:
        return None
    prompt = tokens_of(request_characters)
    rates = card.rates_for(prompt)
    if rates.input is None or rates.output is None:
        return None
    # An account's own price may ask more for a token from the cache, or written there, than for a fresh one.
    dearest = max(rate for rate in (rates.input, rates.cache_read, rates.cache_write_5m) if rate is not None)
    return Usd.ceiling(prompt * dearest + output_tokens_max * rates.output)


def worst_case(
    request_characters: int,
    output_tokens_max: int,
    model: str,
    at: date | None = None,
    *,
    own: PriceCard | None = None,
) -> Amount:
    """What one physical call holds on every meter: money, tokens, one call."""
    return Amount(
        usd=estimate_of(request_characters, output_tokens_max, model, at, own=own),
        tokens=tokens_of(request_characters) + output_tokens_max,
        calls=1,
    )


def cost_of(usage: Usage, model: str, at: date, *, own: PriceCard | None = None) -> Priced | None:
    """The exact price of one request (row 135), by the list or by the account's `own`; None: unknown.

    Unknown is a price, a used bucket's rate or a usable report that is missing, and a sum above the largest amount
    that anybody may name; no list stands in for a rate that
    an own price lacks (row 138).

    One exact decimal sum, rounded up once. The rates of a request are those of its prompt's band, output
    included. `model` is the one that answered.
    """
    card = own or price_card(model, at)
    if card is None or why_unusable(usage):
        return None
    rates = card.rates_for(usage.input)
    parts = [
        (usage.input_uncached, rates.input),
        (usage.output, rates.output),
        (usage.cache_read, rates.cache_read),
        (usage.cache_write_5m, rates.cache_write_5m),
        (usage.cache_write_1h, rates.cache_write_1h),
    ]
    if any(tokens and rate is None for tokens, rate in parts):
        return None
    total = sum((tokens * rate for tokens, rate in parts if rate is not None), Decimal(0))
    if total > AMOUNT_MICRO_MAX:  # nobody bills that: a figure that would burst the books
        return None
    return Priced(Usd.ceiling(total), _stored(card, rates))


def why_unusable(usage: Usage) -> str:
    """Why a report cannot be charged by: a fixed word, empty when it can (rows 134, 137)."""
    if usage.input == 0 and usage.output == 0:
        return "all_zero"
    if usage.input + usage.output > REPORTED_TOKENS_MAX:
        return "inconsistent"
    if usage.reasoning is not None and not 0 <= usage.reasoning <= usage.output:
        return "inconsistent"
    return ""


def usage_data(usage: Usage) -> dict[str, int]:
    """The buckets as stored: disjoint, except `reasoning`, which is a part of `output`."""
    data = {
        "input_uncached": usage.input_uncached,
        "cache_read": usage.cache_read,
        "cache_write_5m": usage.cache_write_5m,
        "cache_write_1h": usage.cache_write_1h,
        "output": usage.output,
        "candidates": usage.candidates,
    }
    return data if usage.reasoning is None else {**data, "reasoning": usage.reasoning}


def upper_cost(input_tokens: int, output_tokens: int, model: str, at: date | None = None) -> Usd | None:
    """The cost at the dearest represented rate of each direction: what a ModelTask holds and charges (row 156)."""
    card = price_card(model, at)
    rates = None if card is None else (card.highest_input(), card.highest().output)
    if rates is None or rates[0] is None or rates[1] is None:
        return None
    return Usd.ceiling(input_tokens * rates[0] + output_tokens * rates[1])


def _stored(card: PriceCard, rates: Rates) -> dict[str, Any]:
    return {
        "model": card.model,
        "source": card.source,
        "since": card.since.isoformat() if card.since else None,
        **rates.as_data(),
    }
