"""The three tiers: which model runs each, how it thinks, and how many calls a run has."""

from __future__ import annotations

from dataclasses import dataclass

from routing.words import Tier

HAIKU_MODEL = "claude-haiku-5-5"
SONNET_MODEL = "claude-sonnet-5-5"
OPUS_MODEL = "claude-opus-5-5"

# Model calls of one run, by the routed tier, also when opus runs on sonnet (row 50).
CALLS_MAX: dict[Tier, int] = {Tier.HAIKU: 16, Tier.SONNET: 32, Tier.OPUS: 32}
# What a project may widen them to.
CALLS_HARD_MAX = 200
OUTPUT_TOKENS_MAX: dict[Tier, int] = {Tier.HAIKU: 8_000, Tier.SONNET: 16_000, Tier.OPUS: 16_000}
ATTEMPTS_PER_TIER_MAX = 2

assert CALLS_MAX.keys() == OUTPUT_TOKENS_MAX.keys() == set(Tier)
assert max(CALLS_MAX.values()) <= CALLS_HARD_MAX

OPUS_DISABLED = "opus_disabled"
# Beside it on the same receipt: which of the two forbade it.
OPUS_OFF_IN_DEPLOYMENT = "opus_off_in_deployment"
OPUS_OFF_IN_PROJECT = "opus_off_in_project"


@dataclass(frozen=True, slots=True)
class OpusRule:
    """Opus runs only where the deployment (`ALLOW_OPUS`, row 77) and the project's own setting both allow it."""

    deployment: bool
    project: bool

    @property
    def allowed(self) -> bool:
        return self.deployment and self.project

    def reasons_on(self, tier: Tier) -> tuple[str, ...]:
        """What the receipt of an attempt at this tier says about it: who forbade opus, where that made a difference."""
        if tier is not Tier.OPUS:
            return ()
        off = ((self.deployment, OPUS_OFF_IN_DEPLOYMENT), (self.project, OPUS_OFF_IN_PROJECT))
        return tuple(reason for allows, reason in off if not allows)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that runs a tier, with its settings (rows 75 to 78).

    `thinking` is "off" or "adaptive", `effort` is "low", "medium", "high" or ""
    (the provider's own). `reasons` go on the receipt.
    """

    name: str
    thinking: str
    effort: str
    output_tokens_max: int
    reasons: tuple[str, ...] = ()


def model_for(tier: Tier, *, allow_opus: bool) -> ModelChoice:
    """The model of a tier in the agent loop. Opus off: the opus row's settings on sonnet."""
    match tier:
        case Tier.HAIKU:
            return ModelChoice(HAIKU_MODEL, "adaptive", "low", OUTPUT_TOKENS_MAX[tier])
        case Tier.SONNET:
            return ModelChoice(SONNET_MODEL, "adaptive", "medium", OUTPUT_TOKENS_MAX[tier])
        case Tier.OPUS if allow_opus:
            return ModelChoice(OPUS_MODEL, "adaptive", "high", OUTPUT_TOKENS_MAX[tier])
        case Tier.OPUS:
            return ModelChoice(SONNET_MODEL, "adaptive", "high", OUTPUT_TOKENS_MAX[tier], (OPUS_DISABLED,))


def model_for_question(tier: Tier, *, allow_opus: bool, output_tokens_max: int) -> ModelChoice:
    """The model for one question outside the loop: the caller sets the output cap (row 80).

    Haiku does not think here (row 75).
    """
    choice = model_for(tier, allow_opus=allow_opus)
    thinking, effort = ("off", "") if tier is Tier.HAIKU else (choice.thinking, choice.effort)
    return ModelChoice(choice.name, thinking, effort, output_tokens_max, choice.reasons)
