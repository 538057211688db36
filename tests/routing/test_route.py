"""Which tier a first attempt gets: rows 62 to 73, one line per arrow of the flowchart."""

from __future__ import annotations

import itertools

import pytest

from routing.route import (
    SENTENCES,
    NeedsOpinion,
    Opinion,
    Route,
    RouteFacts,
    floor_of,
    route,
    with_opinion,
)
from routing.words import Area, Risk, Size, TaskKind, Tier

SMALL, MEDIUM, LARGE = Size.SMALL, Size.MEDIUM, Size.LARGE
LOW, HIGH = Risk.LOW, Risk.HIGH


def facts(
    kind: TaskKind = TaskKind.IMPLEMENT,
    size: Size = SMALL,
    risk: Risk = LOW,
    area: Area = Area.GENERAL,
    *,
    destructive: bool = False,
    conflicts: int = 0,
    attempt: int = 1,
) -> RouteFacts:
    return RouteFacts(
        kind=kind,
        size=size,
        risk=risk,
        area=area,
        destructive_migration=destructive,
        design_conflicts=conflicts,
        attempt=attempt,
    )


def routed(wanted: RouteFacts) -> Route:
    found = route(wanted)
    assert isinstance(found, Route)
    return found


@pytest.mark.parametrize(
    ("wanted", "tier", "rule"),
    [
        (facts(destructive=True), Tier.OPUS, "R1"),
        (facts(TaskKind.SUMMARIZE, destructive=True), Tier.OPUS, "R1"),
        (facts(conflicts=2), Tier.OPUS, "R2"),
        (facts(conflicts=1), Tier.HAIKU, "R4"),
        (facts(TaskKind.SUMMARIZE, LARGE, HIGH), Tier.HAIKU, "R3"),
        (facts(TaskKind.CLASSIFY, MEDIUM), Tier.HAIKU, "R3"),
        (facts(TaskKind.COMPACT, MEDIUM), Tier.HAIKU, "R3"),
        (facts(TaskKind.TRANSFORM, MEDIUM), Tier.HAIKU, "R3"),
        (facts(), Tier.HAIKU, "R4"),
        (facts(attempt=2), Tier.SONNET, "R7_not_first"),
        (facts(size=MEDIUM), Tier.SONNET, "R5"),
        (facts(size=MEDIUM, risk=Risk.MEDIUM), Tier.SONNET, "R5"),
        (facts(TaskKind.PLAN, LARGE), Tier.OPUS, "R6_design"),
        (facts(TaskKind.ARCHITECTURE, LARGE, HIGH), Tier.OPUS, "R6_design"),
        (facts(TaskKind.ARBITRATION, LARGE), Tier.OPUS, "R6_design"),
        (facts(TaskKind.IMPLEMENT, LARGE, HIGH), Tier.SONNET, "R6_large"),
    ],
    ids=str,
)
def test_the_first_rule_that_fits_decides(wanted: RouteFacts, tier: Tier, rule: str) -> None:
    found = routed(wanted)
    assert (found.tier, found.base, found.reasons) == (tier, tier, (rule,))


@pytest.mark.parametrize(
    "wanted", [facts(risk=Risk.MEDIUM), facts(risk=HIGH), facts(size=MEDIUM, risk=HIGH)], ids=str
)
def test_a_first_attempt_that_no_rule_fits_needs_an_opinion(wanted: RouteFacts) -> None:
    """Row 68; row 66: medium work at high risk falls to default."""
    assert route(wanted) == NeedsOpinion(None)


def test_small_low_risk_billing_is_raised_to_the_floor_without_asking() -> None:
    """Acceptance 5a."""
    assert routed(facts(area=Area.BILLING)) == Route(
        tier=Tier.SONNET, base=Tier.HAIKU, floor=Tier.SONNET, reasons=("R4", "floor_billing")
    )


@pytest.mark.parametrize(
    ("area", "confidence", "tier", "reasons"),
    [
        (Area.GENERAL, 0.59, Tier.SONNET, ("R7_abstained",)),
        (Area.GENERAL, 0.60, Tier.HAIKU, ("R7_classifier",)),
        (Area.AUTHORIZATION, 0.60, Tier.SONNET, ("R7_classifier", "floor_authorization")),
    ],
)
def test_the_opinion_counts_from_six_tenths_and_never_lowers_the_floor(
    area: Area, confidence: float, tier: Tier, reasons: tuple[str, ...]
) -> None:
    """Acceptance 5b."""
    asked = facts(risk=Risk.MEDIUM, area=area)
    assert isinstance(route(asked), NeedsOpinion)
    found = with_opinion(asked, Opinion(Tier.HAIKU, confidence))
    assert (found.tier, found.reasons) == (tier, reasons)


def test_compacting_in_authorization_runs_at_the_floor() -> None:
    """Acceptance 5c."""
    found = routed(facts(TaskKind.COMPACT, MEDIUM, Risk.MEDIUM, Area.AUTHORIZATION))
    assert (found.base, found.tier) == (Tier.HAIKU, Tier.SONNET)


@pytest.mark.parametrize(
    ("area", "size", "risk", "floor"),
    [
        (Area.AUTHORIZATION, SMALL, LOW, None),
        (Area.AUTHORIZATION, SMALL, Risk.MEDIUM, Tier.SONNET),
        (Area.AUTHORIZATION, MEDIUM, LOW, Tier.SONNET),
        (Area.BILLING, SMALL, LOW, Tier.SONNET),
        (Area.GENERAL, LARGE, HIGH, None),
    ],
)
def test_trivial_authorization_has_no_floor_but_trivial_billing_has(
    area: Area, size: Size, risk: Risk, floor: Tier | None
) -> None:
    """Rows 71 and 72."""
    assert floor_of(facts(size=size, risk=risk, area=area)) is floor


def test_no_route_ever_runs_below_its_floor_and_every_reason_has_a_sentence() -> None:
    opinions = [None, *(Opinion(tier, share) for tier in Tier for share in (0.1, 0.6, 1.0))]
    for kind, size, risk, area, destructive, conflicts, attempt in itertools.product(
        TaskKind, Size, Risk, Area, (False, True), (0, 1, 2), (1, 2)
    ):
        asked = facts(kind, size, risk, area, destructive=destructive, conflicts=conflicts, attempt=attempt)
        first = route(asked)
        for found in [first] if isinstance(first, Route) else [with_opinion(asked, o) for o in opinions]:
            assert found.tier >= (floor_of(asked) or Tier.HAIKU)
            assert set(found.reasons) <= SENTENCES.keys()
