"""The reviews: each one metered question, read strictly. A model's word alone never promotes anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from agents.complete import Answer
from routing.words import Tier
from tasks.asking import Role, ask_role, facts_of
from tasks.fence import WorkHold
from tasks.models import Change, Criterion
from tasks.questions import (
    CHECKER_SYSTEM,
    COMPARISON_SYSTEM,
    CONFLICT_SYSTEM,
    INTAKE_SYSTEM,
    JUDGE_SYSTEM,
    check_prompt,
    comparison_prompt,
    conflict_prompt,
    intake_prompt,
    judge_prompt,
)
from tasks.states import ENDED_CHANGES, ChangeState
from tasks.verdicts import ConflictOpinion, Unreadable, Verdict, read_conflict, read_verdict

COMPARED_CHANGES_MAX = 20

INTAKE = Role(name="intake", system=INTAKE_SYSTEM, tier=Tier.HAIKU, output_tokens_max=1_000)
COMPARISON = Role(name="request_review", system=COMPARISON_SYSTEM, tier=Tier.HAIKU, output_tokens_max=1_000)
CHECKER = Role(name="acceptance_check", system=CHECKER_SYSTEM, tier=Tier.SONNET, output_tokens_max=2_000)
JUDGE = Role(name="integration_judge", system=JUDGE_SYSTEM, tier=Tier.SONNET, output_tokens_max=2_000)
# The one review that the daily counter counts and that is part of what a Change spent (rows 142, 223).
CONFLICT = Role(
    name="conflict_review",
    system=CONFLICT_SYSTEM,
    tier=Tier.SONNET,
    output_tokens_max=2_000,
    counts_daily=True,
)


def acceptance_check(
    hold: WorkHold, change: Change, criterion: Criterion, patch: str, *, now: datetime
) -> Verdict | Unreadable:
    """Does the patch meet a criterion that has no command? Raises StopRun."""
    prompt = check_prompt(facts_of(change), criterion.text, patch)
    answer = ask_role(change, CHECKER, prompt, now=now, hold=hold)
    return read_verdict(answer.text, cut_off=answer.cut_off)


def integration_judge(hold: WorkHold, change: Change, patch: str, *, now: datetime) -> Verdict | Unreadable:
    """Do the invariants still hold? Asked once per Candidate of a Change that has some. Raises StopRun."""
    answer = ask_role(change, JUDGE, judge_prompt(facts_of(change), patch), now=now, hold=hold)
    return read_verdict(answer.text, cut_off=answer.cut_off)


def conflict_review(
    hold: WorkHold,
    change: Change,
    *,
    first: str,
    second: str,
    paths: Sequence[str],
    patches: str,
    now: datetime,
) -> ConflictOpinion | Unreadable:
    """Same lines, or different designs? Raises StopRun."""
    facts = facts_of(change)
    prompt = conflict_prompt(facts, first=first, second=second, paths=paths, patches=patches)
    answer: Answer = ask_role(change, CONFLICT, prompt, now=now, hold=hold)
    return read_conflict(answer.text, cut_off=answer.cut_off)


def intake_gate(change: Change, *, now: datetime) -> Verdict | Unreadable:
    """Is a draft clear enough to be planned? A person reads the answer; it changes no state. Raises StopRun."""
    answer = ask_role(change, INTAKE, intake_prompt(facts_of(change)), now=now)
    return read_verdict(answer.text, cut_off=answer.cut_off)


def request_review(change: Change, *, now: datetime) -> Verdict | Unreadable | None:
    """Does a draft repeat or contradict what is under way in its project? None: nothing is. Raises StopRun."""
    ended = [*ENDED_CHANGES, ChangeState.DRAFT]
    under_way = Change.objects.filter(project_id=change.project_id).exclude(pk=change.pk)
    others = under_way.exclude(state__in=ended).select_related("project").order_by("-number")
    facts = [facts_of(other) for other in others[:COMPARED_CHANGES_MAX]]
    if not facts:
        return None
    answer = ask_role(change, COMPARISON, comparison_prompt(facts_of(change), facts), now=now)
    return read_verdict(answer.text, cut_off=answer.cut_off)
