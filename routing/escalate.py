"""What happens after a failed attempt: retry, escalate, fail or stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing.tiers import ATTEMPTS_PER_TIER_MAX
from routing.words import (
    BUDGET,
    MAX_ATTEMPTS_PER_TIER,
    NOT_COUNTED,
    EndReason,
    FailureClass,
    Tier,
    failure_class,
)

# A lost worker is our own fault, not the Task's: it neither counts as an attempt nor
# as a transport failure. Only a Task that takes its worker down again and again ends.
WORKER_LOSSES_MAX = 5

SECOND_TRANSPORT_FAILURE = "second_transport_failure"
WORKER_LOST_REPEATEDLY = "worker_lost_repeatedly"

# Every word that a verdict may leave on a receipt, with the sentence that people read.
SENTENCES: dict[str, str] = {
    "first_failure": "A first failure at a tier is tried once more at the same tier.",
    "transport_failure": "The provider could not be reached; the same tier is tried once more.",
    "worker_lost": "The worker died; the attempt does not count and starts again.",
    "active_budget_exhausted": "A paused attempt had no time left to go on; it does not count and starts again.",
    "resume_rejected": "What a paused attempt stood on had changed; it does not count and starts again.",
    "two_failures_at_haiku": "Two attempts failed at haiku: the Task moves up to sonnet.",
    "two_failures_at_sonnet": "Two attempts failed at sonnet.",
    "two_failures_at_opus": "Two attempts failed at opus.",
    "max_attempts_at_haiku": "haiku has had its two attempts: the Task moves up to sonnet.",
    "max_attempts_at_sonnet": "sonnet has had its two attempts.",
    "max_attempts_at_opus": "opus has had its two attempts.",
    "budget_refused": "A budget refused the next call.",
    SECOND_TRANSPORT_FAILURE: "The provider failed twice in a row: the Task fails.",
    WORKER_LOST_REPEATEDLY: f"The worker died {WORKER_LOSSES_MAX} times in a row under this Task: it fails.",
}


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """A failed attempt in the current window. `tier` is the routed one (row 79)."""

    tier: Tier
    end: EndReason


@dataclass(frozen=True, slots=True)
class Policy:
    allow_opus: bool


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """Nothing in the window counts: route as attempt 1 (row 198)."""


@dataclass(frozen=True, slots=True)
class Retry:
    tier: Tier
    reason: str


@dataclass(frozen=True, slots=True)
class Escalate:
    """Up to `tier`; an `agent.escalated` event names all three."""

    from_tier: Tier
    tier: Tier
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A person decides, or a period turns. `limit` is the name that people see."""

    limit: str
    reason: str


Verdict = Retry | Escalate | Fail | Stop


def next_attempt(history: Sequence[PastAttempt], policy: Policy) -> Verdict:
    """The verdict after the attempt that just failed, the last of `history` (rows 185 to 194)."""
    assert history, "the attempt that just ended is part of the history"
    latest = history[-1]
    if latest.end in BUDGET:
        return Stop(stop_name(latest.end), "budget_refused")
    if latest.end in NOT_COUNTED:
        return _after_uncounted(history, policy)
    counted = _counted(history)
    if failure_class(latest.end) is FailureClass.TRANSPORT:
        return _after_transport(counted, latest)
    return _after_intelligence(counted, latest, policy)


def attempt_to_start(history: Sequence[PastAttempt], policy: Policy) -> FirstAttempt | Verdict:
    """What the next start runs: the same rules over the same rows (row 19).

    Attempts that a budget cut short, or that lost their worker, are left out: they
    must not stop the Task again once there is room (row 197).
    """
    counted = _counted(history)
    return next_attempt(counted, policy) if counted else FirstAttempt()


def stop_name(end: EndReason) -> str:
    """The limit that a budget end is shown under: a provider's own limit is the monthly one (row 118)."""
    return EndReason.MONTHLY_BUDGET.value if end is EndReason.SPEND_LIMITED else end.value


def _counted(history: Sequence[PastAttempt]) -> list[PastAttempt]:
    return [past for past in history if past.end not in BUDGET | NOT_COUNTED]


def _after_uncounted(history: Sequence[PastAttempt], policy: Policy) -> Verdict:
    """Again, at the tier that the counted attempts ask for; its reason is how the latest one ended."""
    losses, reason = 0, history[-1].end.value
    for past in reversed(history):
        if past.end not in NOT_COUNTED:
            break
        losses += past.end is not EndReason.RESUME_REJECTED  # a person's act each time
    if losses >= WORKER_LOSSES_MAX:
        return Fail(WORKER_LOST_REPEATEDLY)
    match attempt_to_start(history, policy):
        case FirstAttempt():
            return Retry(history[-1].tier, reason)
        case Retry(tier, _) | Escalate(_, tier, _):
            return Retry(tier, reason)
        case verdict:
            return verdict


def _after_transport(counted: list[PastAttempt], latest: PastAttempt) -> Verdict:
    if len(counted) > 1 and failure_class(counted[-2].end) is FailureClass.TRANSPORT:
        return Fail(SECOND_TRANSPORT_FAILURE)  # before row 189: fail wins
    if _attempts_at(counted, latest.tier) >= ATTEMPTS_PER_TIER_MAX:
        return Stop(MAX_ATTEMPTS_PER_TIER, f"max_attempts_at_{latest.tier.word}")
    return Retry(latest.tier, "transport_failure")


def _after_intelligence(counted: list[PastAttempt], latest: PastAttempt, policy: Policy) -> Verdict:
    at_tier = [past for past in counted if past.tier is latest.tier]
    failures = sum(failure_class(past.end) is FailureClass.INTELLIGENCE for past in at_tier)
    if failures >= ATTEMPTS_PER_TIER_MAX:
        return _up(counted, latest, policy, f"two_failures_at_{latest.tier.word}")
    if len(at_tier) >= ATTEMPTS_PER_TIER_MAX:
        return _up(counted, latest, policy, f"max_attempts_at_{latest.tier.word}")
    return Retry(latest.tier, "first_failure")


def _up(counted: list[PastAttempt], latest: PastAttempt, policy: Policy, reason: str) -> Escalate | Stop:
    highest = Tier.OPUS if policy.allow_opus else Tier.SONNET
    for tier in Tier:
        if latest.tier < tier <= highest and _attempts_at(counted, tier) < ATTEMPTS_PER_TIER_MAX:
            return Escalate(latest.tier, tier, reason)
    # replan: a person decides. A run that went over its share makes it a budget stop (row 194).
    over_share = latest.end is EndReason.RUN_COST_CAP
    return Stop(EndReason.CHANGE_BUDGET.value if over_share else MAX_ATTEMPTS_PER_TIER, reason)


def _attempts_at(counted: list[PastAttempt], tier: Tier) -> int:
    return sum(past.tier is tier for past in counted)
