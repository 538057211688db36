"""What follows a failed attempt: rows 185 to 198."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.escalate import (
    SENTENCES,
    WORKER_LOSSES_MAX,
    Escalate,
    Fail,
    FirstAttempt,
    PastAttempt,
    Policy,
    Retry,
    Stop,
    Verdict,
    attempt_to_start,
    next_attempt,
)
from routing.tiers import ATTEMPTS_PER_TIER_MAX
from routing.words import BUDGET, NOT_COUNTED, TRANSPORT, EndReason, Tier

OFF, ON = Policy(allow_opus=False), Policy(allow_opus=True)
TIERS = {"h": Tier.HAIKU, "s": Tier.SONNET, "o": Tier.OPUS}
ENDS = {
    "I": EndReason.FAILED_BY_AGENT,
    "T": EndReason.TRANSIENT,
    "B": EndReason.MONTHLY_BUDGET,
    "L": EndReason.WORKER_LOST,
    "C": EndReason.RUN_CALL_CAP,
    "$": EndReason.RUN_COST_CAP,
}
MAX = "max_attempts_per_tier"


def past(words: str) -> list[PastAttempt]:
    """`"hI hT"`: an intelligence failure at haiku, then a transport failure at haiku."""
    return [PastAttempt(TIERS[word[0]], ENDS[word[1]]) for word in words.split()]


@pytest.mark.parametrize(
    ("history", "policy", "verdict"),
    [
        # Acceptance 17a, opus off
        ("hI", OFF, Retry(Tier.HAIKU, "first_failure")),
        ("hI hI", OFF, Escalate(Tier.HAIKU, Tier.SONNET, "two_failures_at_haiku")),
        ("hT hI", OFF, Escalate(Tier.HAIKU, Tier.SONNET, "max_attempts_at_haiku")),
        ("hI hT", OFF, Stop(MAX, "max_attempts_at_haiku")),
        ("hT hT", OFF, Fail("second_transport_failure")),
        ("hI hI sI sI", OFF, Stop(MAX, "two_failures_at_sonnet")),
        # Acceptance 17b: only the latest failure matters
        ("sC s$", OFF, Stop("change_budget", "two_failures_at_sonnet")),
        ("s$ sC", OFF, Stop(MAX, "two_failures_at_sonnet")),
        # row 187
        ("hT", OFF, Retry(Tier.HAIKU, "transport_failure")),
        ("hI hI sT", OFF, Retry(Tier.SONNET, "transport_failure")),
        ("hT hI sT", OFF, Retry(Tier.SONNET, "transport_failure")),
        # row 186
        ("hB", OFF, Stop("monthly_budget", "budget_refused")),
        ("hI hB", OFF, Stop("monthly_budget", "budget_refused")),
        # row 192
        ("hI hI sI sI", ON, Escalate(Tier.SONNET, Tier.OPUS, "two_failures_at_sonnet")),
        ("oI oI", ON, Stop(MAX, "two_failures_at_opus")),
        ("oI oI", OFF, Stop(MAX, "two_failures_at_opus")),
        ("sI sI hI hI", OFF, Stop(MAX, "two_failures_at_haiku")),
        ("sI sI hI hI", ON, Escalate(Tier.HAIKU, Tier.OPUS, "two_failures_at_haiku")),
        # row 197: what a budget cut short is no attempt
        ("hB hI", OFF, Retry(Tier.HAIKU, "first_failure")),
        ("hT hB hT", OFF, Fail("second_transport_failure")),
        # a lost worker is no attempt either
        ("hL", OFF, Retry(Tier.HAIKU, "worker_lost")),
        ("hI hL", OFF, Retry(Tier.HAIKU, "worker_lost")),
        ("hI hI sL", OFF, Retry(Tier.SONNET, "worker_lost")),
        ("hL hI", OFF, Retry(Tier.HAIKU, "first_failure")),
        (" ".join(["hL"] * WORKER_LOSSES_MAX), OFF, Fail("worker_lost_repeatedly")),
    ],
)
def test_the_verdict_after_a_failure(history: str, policy: Policy, verdict: Verdict) -> None:
    assert next_attempt(past(history), policy) == verdict


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        ("", FirstAttempt()),
        ("hB", FirstAttempt()),
        ("hL hB", FirstAttempt()),
        ("hI hB", Retry(Tier.HAIKU, "first_failure")),
        ("hI hI sB", Escalate(Tier.HAIKU, Tier.SONNET, "two_failures_at_haiku")),
    ],
)
def test_a_start_leaves_out_what_a_budget_cut_short(history: str, verdict: FirstAttempt | Verdict) -> None:
    """Rows 19, 197 and 198."""
    assert attempt_to_start(past(history), OFF) == verdict


def test_a_providers_own_limit_stops_under_the_monthly_name() -> None:
    """Row 118."""
    stop = next_attempt([PastAttempt(Tier.HAIKU, EndReason.SPEND_LIMITED)], OFF)
    assert stop == Stop("monthly_budget", "budget_refused")


UNCOUNTED = BUDGET | NOT_COUNTED
FAILURES = [end for end in EndReason if end not in (EndReason.COMPLETED, EndReason.CANCELLED)]
policies = st.builds(Policy, st.booleans())
histories = st.lists(
    st.builds(PastAttempt, st.sampled_from(list(Tier)), st.sampled_from(FAILURES)), min_size=1, max_size=12
)


@given(st.sampled_from(list(Tier)), st.lists(st.sampled_from(FAILURES), max_size=40), policies)
def test_a_window_holds_at_most_two_counted_attempts_per_tier_and_never_goes_down(
    routed: Tier, ends: list[EndReason], policy: Policy
) -> None:
    """Follow the verdicts from a first attempt, whatever goes wrong."""
    history: list[PastAttempt] = []
    tier = routed
    for end in ends:
        history.append(PastAttempt(tier, end))
        if isinstance(next_attempt(history, policy), Fail | Stop) and end not in BUDGET:
            break  # a stop by a budget may be lifted, and then the window goes on
        again = attempt_to_start(history, policy)
        if isinstance(again, Fail | Stop):
            break
        following = routed if isinstance(again, FirstAttempt) else again.tier
        assert following >= tier
        tier = following
    for each in Tier:
        counted = [past for past in history if past.tier is each and past.end not in UNCOUNTED]
        assert len(counted) <= ATTEMPTS_PER_TIER_MAX


@given(histories, st.sampled_from(list(Tier)), policies)
def test_two_transport_failures_in_a_row_always_fail(
    before: list[PastAttempt], tier: Tier, policy: Policy
) -> None:
    """Row 188, after any history."""
    transport = [PastAttempt(tier, end) for end in sorted(TRANSPORT - NOT_COUNTED)[:2]]
    assert next_attempt([*before, *transport], policy) == Fail("second_transport_failure")


@given(histories, policies)
def test_every_verdict_is_explained_and_an_escalation_goes_up(
    history: list[PastAttempt], policy: Policy
) -> None:
    verdict = next_attempt(history, policy)
    assert verdict.reason in SENTENCES
    if isinstance(verdict, Escalate):
        assert verdict.tier > verdict.from_tier
        assert verdict.tier is not Tier.OPUS or policy.allow_opus


@pytest.mark.parametrize("end", sorted(NOT_COUNTED))
def test_what_is_our_own_doing_starts_again_at_the_same_tier_and_is_named(end: EndReason) -> None:
    """Rows 230, 231: a pause that could not go on is no failure of the agent."""
    history = [PastAttempt(Tier.SONNET, EndReason.FAILED_BY_AGENT), PastAttempt(Tier.SONNET, end)]
    assert next_attempt(history, Policy(allow_opus=True)) == Retry(Tier.SONNET, end.value)
    assert attempt_to_start(history, Policy(allow_opus=True)) == Retry(Tier.SONNET, "first_failure")


def test_rejected_pauses_never_fail_a_task_but_lost_claims_do() -> None:
    rejected = [PastAttempt(Tier.HAIKU, EndReason.RESUME_REJECTED)] * 9
    assert next_attempt(rejected, Policy(allow_opus=True)) == Retry(Tier.HAIKU, "resume_rejected")
    lost = [PastAttempt(Tier.HAIKU, EndReason.ACTIVE_BUDGET_EXHAUSTED)] * 5
    assert next_attempt(lost, Policy(allow_opus=True)) == Fail("worker_lost_repeatedly")
