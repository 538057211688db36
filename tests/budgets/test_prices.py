"""What a call may cost at worst, and what it cost."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from budgets.money import AMOUNT_MICRO_MAX, Usd
from budgets.prices import (
    REPORTED_TOKENS_MAX,
    cost_of,
    estimate_of,
    tokens_of,
    upper_cost,
    why_unusable,
    worst_case,
)
from providers.messages import Usage
from providers.own_prices import read_prices

DAY = date(2026, 11, 15)
SONNET, HAIKU = "claude-sonnet-5-5", "claude-haiku-5-5"


def usage(**over: int) -> Usage:
    given: dict[str, Any] = {"input_uncached": 0, "output": 0, **over}
    return Usage(**given)


def test_every_bucket_is_priced_at_its_own_rate() -> None:
    """Rows 130 and 135, acceptance 12a; faults C44 to C46."""
    call = usage(input_uncached=5_000, cache_read=30_000, cache_write_5m=4_000, output=1_200)
    priced = cost_of(call, SONNET, DAY)
    assert priced is not None
    assert priced.cost == Usd(35_000)
    assert call.input == 39_000
    assert priced.rates["source"].startswith(
        "remit"
    )  # fault C60: source and version of the price on each call
    assert priced.rates["cache_read"] == "0.10"


@pytest.mark.parametrize(("written", "cost"), [(10_000, 4_450), (11_000, 22_875)])
def test_the_haiku_band_prices_the_whole_request(written: int, cost: int) -> None:
    """Row 135, acceptance 12b: a prompt of 100,000 and one of 101,000 tokens."""
    call = usage(input_uncached=20_000, cache_read=70_000, cache_write_5m=written, output=1_000)
    priced = cost_of(call, HAIKU, DAY)
    assert priced is not None
    assert priced.cost == Usd(cost)


def test_a_google_call_charges_candidates_and_thoughts() -> None:
    """Row 132, acceptance 12c: prompt 900, candidates 210, thoughts 60."""
    call = usage(input_uncached=900, output=210 + 60, reasoning=60)
    assert call.input + call.output == 1_170
    assert upper_cost(call.input, call.output, "gemini-2.5-flash", DAY) == Usd(945)


def test_a_small_base_beside_a_large_cache_is_charged_in_full() -> None:
    """Fault C45: 19 base tokens and 39,000 cached ones are all charged, each at its price."""
    priced = cost_of(usage(input_uncached=19, cache_read=39_000, output=1), SONNET, DAY)
    assert priced is not None
    assert priced.cost == Usd(38 + 3_900 + 10)


def test_the_estimate_writes_the_whole_prompt_to_the_cache() -> None:
    """Section 0 and acceptance 13a: 40,000 tokens of prompt, 16,000 of output."""
    assert tokens_of(100_000) == 40_000
    assert tokens_of(1) == 1
    assert estimate_of(100_000, 16_000, SONNET, DAY) == Usd(260_000)
    assert worst_case(100_000, 16_000, SONNET, DAY).tokens == 56_000


def test_a_part_of_a_micro_dollar_is_rounded_up_once() -> None:
    priced = cost_of(usage(input_uncached=1, cache_read=1, output=1), HAIKU, DAY)  # 0.10 + 0.01 + 0.50
    assert priced is not None
    assert priced.cost == Usd(1)


def test_an_unknown_model_has_no_price_at_all() -> None:
    """Row 136, faults C49 and #25874."""
    assert cost_of(usage(input_uncached=5, output=5), "somebody/new-model-9", DAY) is None
    assert estimate_of(1_000, 100, "somebody/new-model-9", DAY) is None
    assert worst_case(1_000, 100, "somebody/new-model-9", DAY).usd is None


def test_a_missing_rate_of_a_used_bucket_makes_the_cost_unknown() -> None:
    """Fault #15055: a missing cell of the table is not 0."""
    assert cost_of(usage(input_uncached=10, output=10, cache_write_1h=5), "gpt-4.1", DAY) is None
    assert cost_of(usage(input_uncached=10, output=10), "gpt-4.1", DAY) is not None


def test_usage_that_is_all_zero_or_contradicts_itself_is_not_charged_by() -> None:
    """Rows 134 and 137; in 10, out 0 is known."""
    assert why_unusable(usage()) == "all_zero"
    assert why_unusable(usage(input_uncached=10, output=5, reasoning=6)) == "inconsistent"
    assert why_unusable(usage(input_uncached=10)) == ""
    assert cost_of(usage(), SONNET, DAY) is None


def test_a_report_that_would_burst_the_books_is_not_charged_by() -> None:
    """Row 137: no request has so many tokens, and nobody bills so much; the worst case that was held stays."""
    assert why_unusable(usage(input_uncached=REPORTED_TOKENS_MAX)) == ""
    assert why_unusable(usage(input_uncached=REPORTED_TOKENS_MAX, output=1)) == "inconsistent"
    own = read_prices({"m": {"input": "1000", "output": "1000"}})["m"]  # 10,000 µ$ a token
    dearest = cost_of(usage(input_uncached=100_000_000), "m", DAY, own=own)
    assert dearest is not None
    assert dearest.cost == Usd(AMOUNT_MICRO_MAX)
    assert cost_of(usage(input_uncached=100_000_001), "m", DAY, own=own) is None


@pytest.mark.parametrize("dearer", ["cache_read", "cache_write"])
def test_a_hold_covers_a_cache_that_costs_more_than_fresh_input(dearer: str) -> None:
    """Row 143: whatever bucket the prompt falls into, the hold is the most that it costs."""
    own = read_prices({"m": {"input": "1", "output": "1", dearer: "7"}})["m"]
    assert estimate_of(1_000, 10, "m", DAY, own=own) == Usd(400 * 70 + 10 * 10)
