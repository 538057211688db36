"""Events as people read them: a sentence for each kind, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Steps of the machine that a sentence beside them says better. The whole history shows them, too.
QUIET = frozenset(
    {
        "agent.wake",
        "candidate.checking",
        "candidate.composing",
        "candidate.promoted",
        "change.planning",
        "changeset.published",
        "run.failed",
        "run.running",
        "run.succeeded",
        "spend_limited",
        "task.pending",
        "task.ready",
        "task.running",
        "trunk.promoted",
    }
)

SENTENCES: Mapping[str, str] = {
    "agent.escalated": "Moved up from {from} to {to}",
    "agent.resumed": "Goes on where it was",
    "agent.wake": "Woken",
    "budget.raised": "A limit was raised",
    "budget.threshold": "{percent}% of the budget is spent",
    "candidate.checking": "Candidate {candidate} is merged, its criteria are run",
    "candidate.composing": "Candidate {candidate} is composed",
    "candidate.conflict": "Candidate {candidate} did not merge",
    "candidate.failed": "Candidate {candidate} did not pass",
    "candidate.passed": "Candidate {candidate} passed",
    "candidate.promoted": "Candidate {candidate} was promoted",
    "candidate.stale": "Candidate {candidate} is stale: main has moved",
    "change.awaiting_approval": "The plan waits for approval",
    "approval.approved": "Somebody said yes to the command",
    "approval.asked": "Asks for a yes to a command",
    "approval.declined": "Somebody said no to the command",
    "approval.reconciled": "Somebody said what became of the command",
    "change.budget_blocked": "Waits for a person",
    "change.cancelled": "Cancelled",
    "change.composing": "The work is put together",
    "change.failed": "Failed",
    "change.paused": "Paused",
    "change.plan.refused": "The plan was refused",
    "change.planned": "Planned in {tasks} tasks",
    "change.planning": "The planner is asked",
    "change.promoted": "On main",
    "change.ready": "Ready to be promoted",
    "change.resumed": "Resumed",
    "change.running": "Agents are at work",
    "change.stop_changed": "Stopped at another limit now",
    "change.submitted": "Handed over",
    "change.work.delayed": "Delayed",
    "change.work.resumed": "Goes on with {work}",
    "changeset.published": "Published {files} changed files",
    "claim.contended": "A file that it needs is taken",
    "criterion.checked": "Criterion {criterion}: {verdict}",
    "model.fallback": "{to} stands in for {from}",
    "model.fallback.unfit": "{to} cannot stand in",
    "model.retry": "A call is tried once more",
    "model.route.decided": "Attempt {attempt} goes to {tier}",
    "reservation.unknown": "Nobody could read what a call cost",
    "run.cancelled": "The attempt was cancelled",
    "run.failed": "The attempt failed",
    "run.stop_asked": "Somebody asked the attempt to stop",
    "run.paused": "The attempt paused",
    "run.resumed": "Attempt {attempt} goes on",
    "run.running": "Attempt {attempt} started",
    "run.succeeded": "The attempt succeeded",
    "spend_limited": "A budget refused the next call",
    "task.blocked": "Stopped",
    "task.cancelled": "Cancelled",
    "task.done": "Done",
    "task.failed": "Failed",
    "task.integrate": "Opened again, to be built on what it did not merge with",
    "task.pending": "Waits for what it builds on",
    "task.ready": "Ready to start",
    "task.reopened": "Opened again",
    "task.resumed": "Goes on",
    "task.running": "Started",
    "task.waits": "Waits",
    "trunk.promoted": "Main moved to generation {generation}",
}

# Of a Change that nobody has handed over yet.
DRAFTED = "Kept as a draft"

# How an attempt ended; the words of `routing.words.EndReason`.
END_WORDS: Mapping[str, str] = {
    "bad_output": "the model's answers could not be used",
    "bad_request": "the provider refused the request",
    "cancelled": "cancelled",
    "change_budget": "stopped by the change's budget",
    "completed": "completed",
    "daily_call_cap": "stopped: the calls of the day are used up",
    "failed_by_agent": "the agent gave up",
    "monthly_budget": "stopped by the organization's budget",
    "nothing_changed": "it changed nothing",
    "project_budget": "stopped by the project's budget",
    "publish_failed": "its work could not be published",
    "rate_limited": "the provider let nothing through",
    "refused": "the model refused",
    "run_call_cap": "it used up its calls",
    "run_cost_cap": "it used up its share of the budget",
    "spend_limited": "a budget refused the next call",
    "stuck": "it went round in circles",
    "timeout": "the provider did not answer in time",
    "transient": "the provider failed",
    "user_budget": "stopped by the author's budget",
    "worker_lost": "its worker died",
    "active_budget_exhausted": "it had paused, and had no time left to go on",
    "resume_rejected": "it had paused, and what it stood on had changed",
}

# Why a Task failed for good; the words of `routing.escalate` and `tasks.attempts.refusal`.
FAILURE_WORDS: Mapping[str, str] = {
    "connector_not_found": "the project's connector is missing or off",
    "dependency_merge_conflict": "what it builds on does not merge",
    "internal_fault": "Remit could not start it",
    "packet_too_large": "what it must be told does not fit",
    "second_transport_failure": "the provider failed twice",
    "worker_lost_repeatedly": "its worker died again and again",
}

WHY: Mapping[str, str] = {
    "change_cancelled": "the change was cancelled",
    "composed_anew": "it is composed anew",
    "dependencies": "what it builds on is done",
    "dependency_stopped": "what it builds on has stopped",
    "failed_by_agent": "the agent gave up",
    "first_failure": "the same tier tries once more",
    "handed_over": "the draft was handed over",
    "integrate": "work did not merge",
    "period_turned": "a new period began",
    "planned": "the plan was accepted",
    "question_stopped": "a budget stopped it",
    "raised": "a limit was raised",
    "rate_limited": "the provider let nothing through",
    "room_again": "there is room again",
    "timeout": "the provider did not answer in time",
    "transient": "the provider failed",
    "tasks_go_on": "its tasks go on",
    "transport_failure": "the provider could not be reached",
}
# Under which name an event says why.
_WHY_NAMES = ("because", "for", "limit")
# These say no more than the sentence.
_SAID = frozenset(
    {"completed", "started", "submitted", "merged", "promoted", "criteria_passed", "tasks_done", "cancelled"}
)


@dataclass(frozen=True, slots=True)
class Story:
    text: str
    why: str


def story(kind: str, data: Mapping[str, Any]) -> Story:
    """An event in words. A kind that this file does not know is shown as its own words: the vocabulary grows."""
    is_draft = kind == "change.submitted" and data.get("draft") is True
    sentence = DRAFTED if is_draft else SENTENCES.get(kind, _words(kind).capitalize())
    because = next((said for name in _WHY_NAMES if isinstance(said := data.get(name), str)), "")
    why = "" if because in _SAID else WHY.get(because, _words(because))
    return Story(sentence.format_map(_Figures(data)), why)


class _Figures(dict[str, Any]):
    """An event of an older version may lack a figure."""

    def __missing__(self, name: str) -> str:
        return "?"


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ").replace(":", ": ")
