"""Four vendors' counts in one form: disjoint, and unknown when they cannot be trusted."""

from __future__ import annotations

from typing import Any

import pytest

from providers.fake.answers import anthropic_counts, google_counts, openai_counts
from providers.messages import Usage
from providers.usage import anthropic_usage, google_usage, openai_usage, total_of


def test_anthropic_counts_cache_beside_input() -> None:
    """Row 130, acceptance 12a: the inclusive input of 5,000 + 30,000 + 4,000 is 39,000."""
    usage = anthropic_usage(
        {
            "input_tokens": 5_000,
            "cache_read_input_tokens": 30_000,
            "cache_creation_input_tokens": 4_000,
            "output_tokens": 1_200,
        }
    )
    assert usage == Usage(input_uncached=5_000, cache_read=30_000, cache_write_5m=4_000, output=1_200)
    assert usage.input == 39_000


def test_anthropic_input_is_not_lowered_by_its_cache() -> None:
    """C45: 19 base tokens beside 39,000 cached ones are all there."""
    usage = anthropic_usage({"input_tokens": 19, "cache_read_input_tokens": 39_000, "output_tokens": 1})
    assert usage is not None
    assert (usage.input_uncached, usage.cache_read) == (19, 39_000)


def test_anthropic_writes_are_split_by_their_time_to_live() -> None:
    counts: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 300}
    split = anthropic_usage(
        counts | {"cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}}
    )
    assert split is not None
    assert (split.cache_write_5m, split.cache_write_1h, split.quality) == (100, 200, "reported")
    odd = anthropic_usage(counts | {"cache_creation": {"ephemeral_1h_input_tokens": 200}})
    assert odd is not None
    assert (odd.cache_write_5m, odd.cache_write_1h, odd.quality) == (100, 200, "normalized")


def test_openai_counts_cached_tokens_inside_its_prompt() -> None:
    """Row 131, C44: never twice."""
    usage = openai_usage(
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 100,
            "total_tokens": 1_100,
            "prompt_tokens_details": {"cached_tokens": 500},
            "completion_tokens_details": {"reasoning_tokens": 40},
        }
    )
    assert usage == Usage(input_uncached=500, cache_read=500, output=100, reasoning=40)
    assert usage.input == 1_000


def test_openrouter_writes_go_to_the_time_to_live_that_was_asked() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 4}}
    for ttl, expected in (("5m", (4, 0)), ("1h", (0, 4))):
        usage = openai_usage(counts, ttl=ttl)
        assert usage is not None
        assert (usage.cache_write_5m, usage.cache_write_1h) == expected


def test_google_output_is_candidates_and_thoughts() -> None:
    """Row 132, acceptance 12c: 900 in, 210 and 60 out: 270 of output, 1,170 in all."""
    usage = google_usage(
        {
            "promptTokenCount": 900,
            "candidatesTokenCount": 210,
            "thoughtsTokenCount": 60,
            "totalTokenCount": 1_170,
        },
        candidates=3,
    )
    assert usage is not None
    assert (usage.output, usage.input + usage.output, usage.reasoning, usage.candidates) == (
        270,
        1_170,
        60,
        3,
    )
    assert usage.quality == "reported"


@pytest.mark.parametrize(
    "counts",
    [
        None,
        {},
        [],
        "many",
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 5},
        {"input_tokens": "5", "output_tokens": 1},
        {"input_tokens": -5, "output_tokens": 1},
        {"input_tokens": 5.0, "output_tokens": 1},
        {"input_tokens": True, "output_tokens": 1},
        {"input_tokens": 2**60, "output_tokens": 1},
        {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": "many"},
        {"input_tokens": 5, "output_tokens": 1, "cache_creation": 7},
    ],
)
def test_what_cannot_be_read_is_unknown_not_zero(counts: object) -> None:
    """Rows 134, 136."""
    assert anthropic_usage(counts) is None


def test_contradictory_counts_are_unknown_and_odd_sums_are_marked() -> None:
    more = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 6}}
    assert openai_usage(more) is None
    odd = openai_usage({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 99})
    assert odd is not None
    assert odd.quality == "normalized"
    assert google_usage({"promptTokenCount": 5, "cachedContentTokenCount": 6}) is None


def test_ten_in_and_nothing_out_is_known() -> None:
    """Row 134."""
    assert anthropic_usage({"input_tokens": 10, "output_tokens": 0}) == Usage(input_uncached=10, output=0)
    assert google_usage({"promptTokenCount": 10}) == Usage(input_uncached=10, output=0, reasoning=0)


def test_totals_are_known_parts_and_a_count_of_the_rest() -> None:
    assert total_of([Usage(input_uncached=5, cache_read=1, output=2), None]) == (6, 2, 1)


def test_every_vendors_form_comes_back_as_it_was() -> None:
    usage = Usage(input_uncached=7, output=9, cache_read=5, cache_write_5m=3, cache_write_1h=2)
    assert anthropic_usage(anthropic_counts(usage)) == usage
    plain = Usage(input_uncached=7, output=9, cache_read=5, reasoning=4)
    assert openai_usage(openai_counts(plain)) == plain
    assert google_usage(google_counts(plain)) == plain
