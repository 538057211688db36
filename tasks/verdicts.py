"""Pure: the strict readers of what model roles answer. A guess is never a verdict."""

from __future__ import annotations

from dataclasses import dataclass

from agents.jsontext import Found, extract_object
from tasks.plan import Plan, PlanRefused, plan_of

REASON_CHARACTERS_MAX = 2_000
CONFLICT_RESOURCES_MAX = 50


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ConflictOpinion:
    """`resources`: what the two sides disagree about; empty when they only touch the same lines."""

    resources: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No verdict: the answer is not in the form that was asked for."""

    problem: str


def read_plan(text: str, *, cut_off: bool = False) -> Plan | PlanRefused:
    """A planner's answer as a plan. What is cut off, no JSON or goes in circles is refused (C84 to C88)."""
    found = extract_object(text, cut_off=cut_off)
    if not isinstance(found, Found):
        return PlanRefused((str(found),))
    return plan_of(found.value)


def read_verdict(text: str, *, cut_off: bool = False) -> Verdict | Unreadable:
    found = extract_object(text, cut_off=cut_off)
    if not isinstance(found, Found):
        return Unreadable(str(found))
    verdict, reason = found.value.get("verdict"), found.value.get("reason")
    if (
        set(found.value) != {"verdict", "reason"}
        or verdict not in ("pass", "fail")
        or not isinstance(reason, str)
    ):
        return Unreadable(
            'the answer has not exactly the fields "verdict" (pass or fail) and "reason" (text)'
        )
    return Verdict(verdict == "pass", reason[:REASON_CHARACTERS_MAX])


def read_conflict(text: str, *, cut_off: bool = False) -> ConflictOpinion | Unreadable:
    found = extract_object(text, cut_off=cut_off)
    if not isinstance(found, Found):
        return Unreadable(str(found))
    design, resources, advice = (found.value.get(name) for name in ("design_conflict", "resources", "advice"))
    if not isinstance(design, bool) or not isinstance(advice, str) or not isinstance(resources, list):
        return Unreadable('the answer has not the fields "design_conflict", "resources" and "advice"')
    if not all(isinstance(one, str) for one in resources):
        return Unreadable('"resources" is not a list of texts')
    named = tuple(dict.fromkeys(one.strip()[:500] for one in resources if one.strip()))
    return ConflictOpinion(named[:CONFLICT_RESOURCES_MAX] if design else (), advice[:REASON_CHARACTERS_MAX])
