"""An Outcome becomes rows: run, ChangeSet, what happens next, dependents, receipts. One transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from django.db import transaction

from agents import continuation
from agents.models import Approval
from agents.spec import HELD, Outcome, Published
from routing.escalate import Escalate, Fail, Policy, Retry, Stop, next_attempt
from routing.words import BUDGET, EndReason, Tier, failure_class
from tasks.admission import WAITS_FOR_HELD_MONEY
from tasks.attempts.choice import history_of
from tasks.claims import release_claims
from tasks.dependents import settle_dependents
from tasks.dispatch import (
    HELD_WAIT_SECONDS,
    wake_next,
    wake_waiting_for_money,
)
from tasks.errors import LostRace
from tasks.events import record, tell_noted, write_receipt
from tasks.funding import cost_of_run, stop_task
from tasks.models import ChangeSet, Task, TaskRun
from tasks.opus import opus_rule
from tasks.states import ENDED_CHANGES, RunState, TaskState
from tasks.stops import EFFECT_UNCERTAIN, STOPPED_BY_PERSON
from tasks.transitions import locked_change, move_run, move_task

RETRY_SECONDS = 5
# A provider may ask for more patience than this; then the Task asks again and is told again (C63).
RETRY_AFTER_SECONDS_MAX = 3_600
TEXT_CHARACTERS_MAX = 20_000
FAILURE_LOG_CHARACTERS_MAX = 60_000
assert RETRY_SECONDS < RETRY_AFTER_SECONDS_MAX


@transaction.atomic
def finish(run: TaskRun, outcome: Outcome, *, now: datetime) -> None:
    """Write the end of an attempt and what follows from it.

    Raises `LostRace` when the run is no longer this worker's: then nothing at all is written (C66). Money
    that a late worker settles is on the meters all the same.
    """
    if run.state != RunState.RUNNING:
        raise LostRace(run)
    change = locked_change(run.task.change_id)
    task: Task = Task.objects.select_related("change__project").get(pk=run.task_id)
    run.task = task
    abandoned = outcome.end is EndReason.WORKER_LOST and continuation.was_claimed(run.pk)
    if abandoned:  # row 231: the claim had all the time there was, and nobody gives it back
        note = f"{outcome.note}; the time of its claim is forfeited"
        outcome = replace(outcome, end=EndReason.ACTIVE_BUDGET_EXHAUSTED, note=note)
    if task.state != TaskState.RUNNING or change.state in ENDED_CHANGES:
        _end_run(run, RunState.CANCELLED, outcome, end=EndReason.CANCELLED, now=now)
        if task.state == TaskState.RUNNING:
            move_task(task, TaskState.CANCELLED, because=EndReason.CANCELLED, now=now)
    elif outcome.end is EndReason.COMPLETED:
        _complete(task, run, outcome, now=now)
    elif _was_stopped(run):
        _stop_for_person(task, run, outcome, now=now)
    elif (uncertain := continuation.uncertain_effect(run.pk)) is not None:
        _ask_what_became(task, run, uncertain, outcome, now=now)
    elif outcome.end is EndReason.CANCELLED:
        _end_run(run, RunState.CANCELLED, outcome, end=EndReason.CANCELLED, now=now)
        move_task(task, TaskState.READY, because="run_cancelled", now=now)
    else:
        _fail_run(task, run, outcome, now=now)
    release_claims(run)
    continuation.close(run.pk, abandoned=abandoned, now=now)
    for noted in outcome.noted:
        tell_noted(noted, change=change, task=task, run=run, now=now)
    settle_dependents(change, now=now)
    wake_next(change, now=now)
    wake_waiting_for_money(change.organization_id, besides=task, now=now)


def _complete(task: Task, run: TaskRun, outcome: Outcome, *, now: datetime) -> None:
    _end_run(run, RunState.SUCCEEDED, outcome, end=EndReason.COMPLETED, now=now)
    if outcome.published is not None:
        _publish(task, run, outcome.published, intent=outcome.intent, now=now)
    move_task(task, TaskState.DONE, because=EndReason.COMPLETED, now=now)


def _publish(task: Task, run: TaskRun, published: Published, *, intent: str, now: datetime) -> None:
    """Rows 216, 217. Its id is the run's: the ref in git was named before the row existed (C78)."""
    changeset = ChangeSet.objects.create(
        id=run.pk,
        task=task,
        run=run,
        commit=published.commit,
        base_commit=published.base_commit,
        start_commit=published.start_commit,
        stacked_on=run.stacked_on,
        files=list(published.files),
        own_files=list(published.own_files),
        patch_key=published.patch_key,
        intent=intent[:TEXT_CHARACTERS_MAX],
        created_at=now,
    )
    data = {"commit": changeset.commit, "files": len(changeset.own_files)}
    record("changeset.published", change=task.change, task=task, run=run, data=data, now=now)


def _was_stopped(run: TaskRun) -> bool:
    """Asked of the row: the worker's object is as old as its attempt."""
    run.refresh_from_db(fields=["stop_asked_at", "stop_asked_by", "stop_reason"])
    return run.stop_asked_at is not None


def _stop_for_person(task: Task, run: TaskRun, outcome: Outcome, *, now: datetime) -> None:
    """However the attempt ended meanwhile, unless it had done its work: the Task waits for a person's word."""
    _end_run(run, RunState.CANCELLED, outcome, end=EndReason.CANCELLED, now=now)
    by = run.stop_asked_by.email if run.stop_asked_by else ""
    note = f"{by}: {run.stop_reason}" if run.stop_reason else by
    stop_task(task, STOPPED_BY_PERSON, reason=STOPPED_BY_PERSON, run=run, note=note, now=now)


def _ask_what_became(
    task: Task, run: TaskRun, uncertain: Approval, outcome: Outcome, *, now: datetime
) -> None:
    """The approved command began and nobody saw it end: never replayed, a person says what became of it (row 232)."""
    _end_run(run, RunState.FAILED, outcome, end=outcome.end, now=now)
    more = {"approval": str(uncertain.pk), "argv": uncertain.argv}
    stop_task(task, EFFECT_UNCERTAIN, reason=EFFECT_UNCERTAIN, run=run, more=more, now=now)


def _fail_run(task: Task, run: TaskRun, outcome: Outcome, *, now: datetime) -> None:
    _end_run(run, RunState.FAILED, outcome, end=outcome.end, now=now)
    if outcome.end in BUDGET and outcome.note == HELD:
        _wait_for_money(task, run, outcome, now=now)
        return
    verdict = next_attempt(history_of(task), Policy(opus_rule(task.change.project).allowed))
    match verdict:
        case Retry(_, reason):
            _again(task, run, outcome, decision="retry", reason=reason, now=now)
        case Escalate(from_tier, tier, reason):
            _again(task, run, outcome, decision="escalate", reason=reason, now=now)
            _tell_escalation(task, run, from_tier, tier, reason, now=now)
        case Fail(reason):
            move_task(task, TaskState.FAILED, because=reason, now=now, also={"failure": reason})
            write_receipt(
                "failure", "failed", change=task.change, task=task, run=run, reasons=[reason], now=now
            )
        case Stop(limit, reason):
            stop_task(
                task,
                limit,
                reason=reason,
                refusals=outcome.refusals,
                run=run,
                note=outcome.note[:TEXT_CHARACTERS_MAX],
                now=now,
            )
        case _:
            assert_never(verdict)


def _again(task: Task, run: TaskRun, outcome: Outcome, *, decision: str, reason: str, now: datetime) -> None:
    """Row 195: 5 s later, or when the provider says so. The worker is not held meanwhile (C63)."""
    seconds = min(max(RETRY_SECONDS, outcome.retry_after_seconds or 0), RETRY_AFTER_SECONDS_MAX)
    due = now + timedelta(seconds=seconds)
    move_task(
        task, TaskState.READY, because=reason, now=now, also={"not_before": due, "waiting_for": decision}
    )
    if decision == "retry":
        detail = {"tier": Tier(run.tier).word, "not_before": due.isoformat(), "end": run.end_reason}
        write_receipt(
            "retry", "retry", change=task.change, task=task, run=run, reasons=[reason], detail=detail, now=now
        )


def _tell_escalation(
    task: Task, run: TaskRun, from_tier: Tier, tier: Tier, reason: str, *, now: datetime
) -> None:
    data = {"from": from_tier.word, "to": tier.word, "reason": reason}
    write_receipt(
        "escalation",
        tier.word,
        change=task.change,
        task=task,
        run=run,
        reasons=[reason],
        detail=data,
        now=now,
    )
    key = f"agent.escalated:{run.pk}"
    record("agent.escalated", change=task.change, task=task, run=run, data=data, key=key, now=now)


def _wait_for_money(task: Task, run: TaskRun, outcome: Outcome, *, now: datetime) -> None:
    """Only held money stands in the way: the Task waits and is woken when a hold ends. No attempt is counted."""
    due = now + timedelta(seconds=HELD_WAIT_SECONDS)
    first = str(outcome.refusals[0]["kind"]) if outcome.refusals else outcome.end
    also = {"not_before": due, "waiting_for": f"{WAITS_FOR_HELD_MONEY}{first}"}
    move_task(task, TaskState.READY, because=HELD, now=now, also=also)
    detail = {"refusals": [dict(one) for one in outcome.refusals]}
    write_receipt(
        "refusal", "wait", change=task.change, task=task, run=run, reasons=[HELD], detail=detail, now=now
    )


def _end_run(run: TaskRun, to: RunState, outcome: Outcome, *, end: EndReason, now: datetime) -> None:
    known, unknown = cost_of_run(run.pk)
    also: dict[str, Any] = {
        "failure_class": failure_class(end) if to is RunState.FAILED else "",
        "note": outcome.note[:TEXT_CHARACTERS_MAX],
        "intent": outcome.intent[:TEXT_CHARACTERS_MAX],
        "failure_log": outcome.failure_log[-FAILURE_LOG_CHARACTERS_MAX:],
        "detail": _detail_of(outcome),
        "tool_log_key": outcome.tool_log_key or run.tool_log_key,
        "cost": known,
        "unknown_calls": unknown,
        # A worker that died after a pause tells none: what the pause had counted stays.
        "calls": max(outcome.calls, run.calls),
        "reads": max(outcome.reads, run.reads),
        # Whoever still holds the old fence can write nothing any more.
        "fence": run.fence + 1,
    }
    move_run(run, to, because=end, now=now, also=also)


def _detail_of(outcome: Outcome) -> Mapping[str, Any]:
    return {
        **({"refusals": [dict(one) for one in outcome.refusals]} if outcome.refusals else {}),
        **({"retry_after": outcome.retry_after_seconds} if outcome.retry_after_seconds else {}),
        **outcome.detail,
    }


def refresh_cost(run: TaskRun) -> None:
    """A call that settled after its run had ended: the run shows what the ledger says."""
    known, unknown = cost_of_run(run.pk)
    TaskRun.objects.filter(pk=run.pk).exclude(state=RunState.RUNNING).update(
        cost=known, unknown_calls=unknown
    )
