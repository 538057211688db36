"""What a stop says: its limit, the figures of that moment, and every act that would lift it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from budgets.keys import MeterKind
from routing.words import MAX_ATTEMPTS_PER_TIER, EndReason

E = EndReason

# A person ended the attempt; no limit refused anything.
STOPPED_BY_PERSON = "stopped_by_person"

# An attempt paused before a command: somebody says yes or no (row 228).
APPROVAL_NEEDED = "approval_needed"
# A worker died while an approved command ran: somebody says whether it took effect (row 232).
EFFECT_UNCERTAIN = "effect_uncertain"
# What waits for a decision about one command; no meter refused anything, and no raise lifts it.
DECIDED_ON = {APPROVAL_NEEDED: "decide", EFFECT_UNCERTAIN: "reconcile"}

# The limit that stops a Task, and the meters whose raise lifts it. The platform's meter is an operator's.
RAISED_BY: Mapping[str, tuple[MeterKind, ...]] = {
    E.CHANGE_BUDGET: (MeterKind.CHANGE,),
    E.PROJECT_BUDGET: (MeterKind.PROJECT,),
    E.USER_BUDGET: (MeterKind.USER,),
    E.MONTHLY_BUDGET: (MeterKind.ORGANIZATION, MeterKind.PROVIDER),
    E.DAILY_CALL_CAP: (MeterKind.DAILY_CALLS,),
    MAX_ATTEMPTS_PER_TIER: (MeterKind.CHANGE,),
}
# Row 196: a raise after these opens a fresh attempt window. Row 197: after the others it does not.
FRESH_WINDOW = frozenset(
    {E.CHANGE_BUDGET, E.PROJECT_BUDGET, E.USER_BUDGET, MAX_ATTEMPTS_PER_TIER, STOPPED_BY_PERSON}
)
# What a person lifts without raising anything.
WAITS_FOR_A_WORD = frozenset({MAX_ATTEMPTS_PER_TIER, STOPPED_BY_PERSON})
# These end by themselves when their period turns.
ENDS_WITH_ITS_PERIOD = frozenset({E.PROJECT_BUDGET, E.USER_BUDGET, E.MONTHLY_BUDGET, E.DAILY_CALL_CAP})
# And these when every meter that refused has room again for what it refused: a limit raised through
# another door, or in the very moment in which the stop was written.
ENDS_WITH_ROOM = ENDS_WITH_ITS_PERIOD | {E.CHANGE_BUDGET}
# What a person may raise, and thereby reopen row 196's repeated-failure stops of the Change in view.
BUDGET_KINDS = (MeterKind.CHANGE, MeterKind.PROJECT, MeterKind.USER)

PROVIDER_SPEND_LIMIT = "provider_spend_limit"
ROLE_TO_RAISE = "admin"
ROLE_TO_REOPEN = "member"
ROLE_TO_DECIDE = "admin"


def stop_detail(
    limit: str,
    *,
    reason: str,
    refusals: Sequence[Mapping[str, Any]],
    now: datetime,
    run_id: str = "",
    note: str = "",
) -> dict[str, Any]:
    """The stop as the rows and pages carry it: every meter that refused, as it was at that moment (row 240)."""
    return {
        "at": now.isoformat(),
        "limit": limit,
        "reason": reason,
        "note": note,
        "run": run_id,
        "refusals": [dict(refusal) for refusal in refusals],
        "ways_out": ways_out(limit, refusals),
    }


def ways_out(limit: str, refusals: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every act that would lift this stop, with the role it needs and, where known, the figure it must exceed."""
    found: list[dict[str, Any]] = []
    if limit in DECIDED_ON:
        found.append({"act": DECIDED_ON[limit], "role": ROLE_TO_DECIDE})
    refused = {str(refusal["kind"]): refusal for refusal in _in_the_way(refusals)}
    for kind in RAISED_BY.get(limit, ()):
        if (
            limit != E.MONTHLY_BUDGET or kind in refused
        ):  # two meters bear this name: name the one that refused
            least = _least(refused.get(kind))
            found.append({"act": "raise", "meter": str(kind), "role": ROLE_TO_RAISE, **least})
    # Meters that refused beside the first one must have room, too, before anything goes on.
    for name, refusal in refused.items():
        if name not in RAISED_BY.get(limit, ()):
            role = "operator" if name == MeterKind.PLATFORM else ROLE_TO_RAISE
            found.append({"act": "raise", "meter": name, "role": role, **_least(refusal)})
    if limit in WAITS_FOR_A_WORD:
        found.append({"act": "reopen", "role": ROLE_TO_REOPEN})
    if limit == E.MONTHLY_BUDGET and not refused:
        found.append({"act": "top_up_provider", "role": "operator"})
        found.append({"act": "reopen", "role": ROLE_TO_REOPEN})
    ends = [str(refusal["ends_at"]) for refusal in refused.values() if refusal.get("ends_at")]
    if limit in ENDS_WITH_ITS_PERIOD and ends and len(ends) == len(refused):
        found.append({"act": "wait", "until": max(ends)})
    return found


def was_stopped_by(kind: MeterKind, limit: str, detail: Mapping[str, Any]) -> bool:
    """Whether a raise of that meter lifts this stop.

    The monthly stop is named after three meters and a provider's own limit: a raise of one lifts only what
    that one refused. Other stops bear the name of their one meter.
    """
    if kind not in RAISED_BY.get(limit, ()):
        return kind in (MeterKind.PROJECT, MeterKind.USER) and limit == MAX_ATTEMPTS_PER_TIER  # row 196
    if limit != E.MONTHLY_BUDGET:
        return True
    return any(refusal["kind"] == kind for refusal in _in_the_way(detail.get("refusals", ())))


def may_reopen_without_raising(limit: str, refusals: Sequence[Mapping[str, Any]]) -> bool:
    """After replan, a person's stop, and a provider's own limit: our meters are not what stands in the way."""
    return limit in WAITS_FOR_A_WORD or (limit == E.MONTHLY_BUDGET and not refusals)


def _in_the_way(refusals: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The meters that must get room: not those that merely wait for held money, unless all of them do."""
    return [refusal for refusal in refusals if not refusal.get("waits")] or list(refusals)


def _least(refusal: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the limit must at least be for the refused call, unknown and held amounts included."""
    if refusal is None or refusal.get("amount") is None:
        return {}
    return {"at_least": refusal["spent"] + refusal["held"] + refusal["amount"], "unit": refusal["unit"]}
