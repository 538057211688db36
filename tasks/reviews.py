"""The reviews: each one metered question, read strictly. A model's word alone never promotes anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from budgets.keys import MeterKind
from budgets.meters import daily_meter
from routing.words import Tier
from tasks.asking import Role, ask_before_a_change, ask_role, facts_of
from tasks.fence import WorkHold
from tasks.models import Change, Criterion
from tasks.questions import (
    CHECKER_SYSTEM,
    COMPARISON_SYSTEM,
    CONFLICT_SYSTEM,
    INTAKE_SYSTEM,
    JUDGE_SYSTEM,
    ChangeFacts,
    check_prompt,
    comparison_prompt,
    conflict_prompt,
    intake_prompt,
    judge_prompt,
)
from tasks.states import ENDED_CHANGES, ChangeState
from tasks.verdicts import ConflictOpinion, Unreadable, Verdict, read_conflict, read_verdict
from tasks.wanted import WantedChange
from tenants.models import Project, User

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
    answer = ask_role(change, CONFLICT, prompt, now=now, hold=hold)
    return read_conflict(answer.text, cut_off=answer.cut_off)


def intake_gate(project: Project, wanted: WantedChange, *, by: User, now: datetime) -> Verdict | Unreadable:
    """Is a request clear enough to be planned? A person reads the answer; it changes nothing. Raises StopRun.

    Asked before a Change exists, so the project, the person and the month pay, and it counts as one of the
    day's classifier calls (rows 70, 147).
    """
    classifier = daily_meter(MeterKind.CLASSIFIER_CALLS, project.organization_id, now=now)
    prompt = intake_prompt(_facts_of_wanted(project, wanted))
    answer = ask_before_a_change(project, INTAKE, prompt, by=by, also=(classifier,), now=now)
    return read_verdict(answer.text, cut_off=answer.cut_off)


def request_review(
    project: Project, wanted: WantedChange, *, by: User, now: datetime
) -> Verdict | Unreadable | None:
    """Does a request repeat or contradict what is under way in its project? None: nothing is. Raises StopRun."""
    ended = [*ENDED_CHANGES, ChangeState.DRAFT]
    under_way = Change.objects.filter(project=project).exclude(state__in=ended).select_related("project")
    others = [facts_of(other) for other in under_way.order_by("-number")[:COMPARED_CHANGES_MAX]]
    if not others:
        return None
    prompt = comparison_prompt(_facts_of_wanted(project, wanted), others)
    answer = ask_before_a_change(project, COMPARISON, prompt, by=by, now=now)
    return read_verdict(answer.text, cut_off=answer.cut_off)


def _facts_of_wanted(project: Project, wanted: WantedChange) -> ChangeFacts:
    return ChangeFacts(
        key="new",
        title=wanted.title,
        goal=wanted.goal,
        criteria=[criterion.text for criterion in wanted.criteria],
        invariants=list(wanted.invariants),
        project=project.name,
        description=project.description,
    )
