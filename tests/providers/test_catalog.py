"""The catalogue: dated prices, capacities, and None for what nobody knows."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from providers import catalog
from providers.catalog import CatalogError, known_models, library_card, price_card, profile_of

# A catalogue of one model with one band; the band's fields but its output go in.
PRICED = 'models: [{name: x, vendor: y, prices: [{since: 2026-01-01, bands: [{%s, output: "1"}]}]}]'


def card(model: str) -> catalog.PriceCard:
    found = price_card(model)
    assert found is not None
    return found


def test_the_tier_models_have_the_price_card_of_the_behaviours() -> None:
    """Behaviours section 0."""
    rates = card("claude-sonnet-5-5").rates_for(5_000)
    assert (rates.input, rates.output, rates.cache_write_5m, rates.cache_write_1h, rates.cache_read) == tuple(
        Decimal(text) for text in ("2", "10", "2.5", "4", "0.1")
    )
    assert card("claude-opus-5-5").rates_for(1).output == 20
    assert profile_of("claude-haiku-5-5").input_tokens == 1_000_000
    assert profile_of("claude-haiku-5-5").output_tokens == 128_000


def test_the_haiku_band_begins_above_a_prompt_of_100_000_tokens() -> None:
    haiku = card("claude-haiku-5-5")
    assert haiku.rates_for(100_000).input == Decimal("0.10")
    assert haiku.rates_for(100_001).input == Decimal("0.50")
    assert haiku.rates_for(100_001).output == Decimal("2.50")
    assert haiku.rates_for(0).input == Decimal("0.10")
    assert (haiku.highest_input(), haiku.highest().output) == (Decimal("1.00"), Decimal("2.50"))


def test_an_id_with_the_day_of_its_snapshot_resolves() -> None:
    """C49: aliases resolve or fail."""
    assert card("claude-haiku-5-5-20261001").rates_for(1) == card("claude-haiku-5-5").rates_for(1)
    assert profile_of("claude-haiku-5-5-20261001").verified
    assert card("anthropic/claude-haiku-5.5").rates_for(1) == card("claude-haiku-5-5").rates_for(1)


@pytest.mark.parametrize(
    "model", ["opus", "claude-haiku-5-5-turbo", "my-vllm-model", "", "acme/x", "gpt-4.1-made-up"]
)
def test_an_unknown_model_has_no_price_and_can_nothing(model: str) -> None:
    """Rows 84, 136; C49, C60: never the price of a name that merely looks alike."""
    assert price_card(model) is None
    profile = profile_of(model)
    assert not profile.verified
    assert not profile.can
    assert profile.input_tokens is None


def test_genai_prices_fill_in_with_bands_and_their_source() -> None:
    found = card("gemini-2.5-pro")
    assert found.source.startswith("genai-prices ")
    assert found.rates_for(200_000).input == Decimal("1.25")
    assert found.rates_for(200_001).input == Decimal("2.5")
    assert not profile_of("gemini-2.5-pro").verified


def test_the_own_file_agrees_with_the_library_on_the_tier_models() -> None:
    for model in (
        "claude-haiku-5-5",
        "claude-sonnet-5-5",
        "claude-opus-5-5",
        "gpt-4o-mini",
        "gemini-2.5-flash",
    ):
        theirs = library_card(model)
        assert theirs is not None
        assert [band.rates for band in theirs.bands] == [band.rates for band in card(model).bands]


def test_a_price_holds_from_its_day_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 88: an update is a new dated entry."""
    monkeypatch.setattr(catalog, "_own", {})
    path = tmp_path / "models.yaml"
    path.write_text(
        """
models:
  - name: house-model
    vendor: openai
    can: [tools]
    input_tokens: 8000
    prices:
      - {since: 2026-01-01, bands: [{prompt_above: 0, input: "1", output: "2"}]}
      - {since: 2026-06-01, bands: [{prompt_above: 0, input: "3", output: "4"}]}
"""
    )
    catalog.use_own_file(path)
    assert price_card("house-model", date(2025, 12, 31)) is None
    early, late = price_card("house-model", date(2026, 5, 31)), price_card("house-model", date(2026, 6, 1))
    assert early is not None
    assert late is not None
    assert [one.bands[0].rates.input for one in (early, late)] == [Decimal(1), Decimal(3)]
    assert late.source == "own file models.yaml"
    assert "house-model" in {profile.name for profile in known_models()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "not a catalogue"),
        ("models: [{vendor: x}]", "'name'"),
        ("models: [{name: x, vendor: y, can: [fly]}]", "unknown 'fly'"),
        ("models: [{name: x, vendor: y, input_tokens: 0}]", "whole number from 1"),
        (
            PRICED % "prompt_above: 0, input: 1.5",
            "is a text",
        ),
        ("models: [{name: x, vendor: y, prices: [{since: soon, bands: []}]}]", "since is a day"),
        (
            PRICED % 'prompt_above: 5, input: "1"',
            "begins at",
        ),
    ],
)
def test_a_catalogue_that_cannot_be_used_says_why(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(text)
    with pytest.raises(CatalogError, match=words):
        catalog.use_own_file(path)
