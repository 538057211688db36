"""Which tier a first attempt gets: readable rules, then an opinion, then the floor."""

from __future__ import annotations

from dataclasses import dataclass

from routing.words import Area, Risk, Size, TaskKind, Tier

# An opinion below this is an abstention; exactly this much counts (row 69).
CONFIDENCE_MIN = 0.6

MECHANICAL_KINDS = frozenset({TaskKind.SUMMARIZE, TaskKind.CLASSIFY, TaskKind.COMPACT, TaskKind.TRANSFORM})
DESIGN_KINDS = frozenset({TaskKind.PLAN, TaskKind.ARCHITECTURE, TaskKind.ARBITRATION})

# Every word that a route may leave on a receipt, with the sentence that people read.
SENTENCES: dict[str, str] = {
    "R1": "A destructive migration goes to opus.",
    "R2": "A design conflict over more than one resource goes to opus.",
    "R3": "Summaries, classification, compaction and transformation go to haiku.",
    "R4": "A small first attempt at low risk goes to haiku.",
    "R5": "Medium work at no more than medium risk goes to sonnet.",
    "R6_design": "Large planning, architecture and arbitration go to opus.",
    "R6_large": "Other large work goes to sonnet.",
    "R7_classifier": "No rule fits; the classifier chose the tier.",
    "R7_abstained": "No rule fits and the classifier was not sure enough: sonnet.",
    "R7_not_first": "No rule fits and this is not a first attempt: sonnet.",
    "floor_billing": "Billing never runs below sonnet.",
    "floor_authorization": "Authorization that is not trivial never runs below sonnet.",
    "opus_disabled": "The opus tier runs on sonnet.",
    "opus_off_in_deployment": "Opus is off in this deployment: ALLOW_OPUS is not true.",
    "opus_off_in_project": "Opus is off in the settings of this project.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts:
    """What the rules may look at. `attempt` counts from 1 inside the current attempt window."""

    kind: TaskKind
    size: Size
    risk: Risk
    area: Area = Area.GENERAL
    destructive_migration: bool = False
    design_conflicts: int = 0  # resources touched by a design conflict
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The tier to run, and why: `base` is what the rule or the classifier said, `floor` what raised it."""

    tier: Tier
    base: Tier
    floor: Tier | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeedsOpinion:
    """No rule fits a first attempt: ask the classifier, then call `with_opinion` (row 68)."""

    floor: Tier | None


@dataclass(frozen=True, slots=True)
class Opinion:
    """The classifier's top option with its probability."""

    tier: Tier
    confidence: float


def route(facts: RouteFacts) -> Route | NeedsOpinion:
    """The rules, first match wins (rows 62 to 68). If none fits, says so and lets the caller ask."""
    found = _first_rule(facts)
    if found is None:
        return (
            NeedsOpinion(floor_of(facts))
            if facts.attempt == 1
            else _raised(facts, Tier.SONNET, "R7_not_first")
        )
    tier, rule = found
    return _raised(facts, tier, rule)


def with_opinion(facts: RouteFacts, opinion: Opinion | None) -> Route:
    """The route after the classifier was asked; None when it abstained, failed or was not allowed (row 70)."""
    if opinion is None or opinion.confidence < CONFIDENCE_MIN:
        return _raised(facts, Tier.SONNET, "R7_abstained")
    return _raised(facts, opinion.tier, "R7_classifier")


def floor_of(facts: RouteFacts) -> Tier | None:
    """The tier below which this work never runs (rows 71, 72); None: no floor."""
    trivial = facts.size is Size.SMALL and facts.risk is Risk.LOW
    if facts.area is Area.BILLING or (facts.area is Area.AUTHORIZATION and not trivial):
        return Tier.SONNET
    return None


def _first_rule(facts: RouteFacts) -> tuple[Tier, str] | None:
    if facts.destructive_migration:
        return Tier.OPUS, "R1"
    if facts.design_conflicts > 1:
        return Tier.OPUS, "R2"
    if facts.kind in MECHANICAL_KINDS:
        return Tier.HAIKU, "R3"
    if facts.size is Size.SMALL and facts.risk is Risk.LOW and facts.attempt == 1:
        return Tier.HAIKU, "R4"
    if facts.size is Size.MEDIUM and facts.risk is not Risk.HIGH:
        return Tier.SONNET, "R5"
    if facts.size is Size.LARGE:
        return (Tier.OPUS, "R6_design") if facts.kind in DESIGN_KINDS else (Tier.SONNET, "R6_large")
    return None


def _raised(facts: RouteFacts, base: Tier, rule: str) -> Route:
    floor = floor_of(facts)
    if floor is None or base >= floor:
        return Route(tier=base, base=base, floor=floor, reasons=(rule,))
    return Route(tier=floor, base=base, floor=floor, reasons=(rule, f"floor_{facts.area.value}"))
