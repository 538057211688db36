"""Which model runs a tier: rows 75 to 80."""

from __future__ import annotations

from routing.tiers import CALLS_MAX, ModelChoice, model_for, model_for_question
from routing.words import Tier


def test_a_destructive_migration_runs_on_sonnet_while_opus_is_off() -> None:
    """Acceptance 6a."""
    assert model_for(Tier.OPUS, allow_opus=False) == ModelChoice(
        "claude-sonnet-5-5", "adaptive", "high", 16_000, ("opus_disabled",)
    )
    assert CALLS_MAX[Tier.OPUS] == 32


def test_each_tier_has_its_model_effort_and_cap() -> None:
    assert model_for(Tier.HAIKU, allow_opus=False) == ModelChoice(
        "claude-haiku-5-5", "adaptive", "low", 8_000
    )
    assert model_for(Tier.SONNET, allow_opus=True) == ModelChoice(
        "claude-sonnet-5-5", "adaptive", "medium", 16_000
    )
    assert model_for(Tier.OPUS, allow_opus=True) == ModelChoice("claude-opus-5-5", "adaptive", "high", 16_000)


def test_haiku_does_not_think_over_a_single_question() -> None:
    """Row 75; the caller sets the output cap (row 80)."""
    haiku = model_for_question(Tier.HAIKU, allow_opus=False, output_tokens_max=900)
    assert haiku == ModelChoice("claude-haiku-5-5", "off", "", 900)
    assert model_for_question(Tier.SONNET, allow_opus=False, output_tokens_max=900).effort == "medium"
