"""A Paused becomes rows: the attempt waits, its Task stops and says for whom, its worker is free. One transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction

from agents import continuation
from agents.clock import Clock
from agents.continuation import claim_time
from agents.errors import SnapshotError, StopRun
from agents.models import Approval, ApprovalState, Continuation
from agents.runlog import empty_rows
from agents.snapshot import Snapshot
from agents.spec import AttemptSpec, Outcome, Paused, RunCaps
from routing.active_time import Claimed, Exhausted
from routing.tiers import model_for
from routing.words import EndReason, Tier
from tasks.approvals import may_decide
from tasks.attempts.finish import finish
from tasks.attempts.spec import binding, spec_of, stack_now
from tasks.claims import release_claims, take_claims
from tasks.dispatch import wake_next, wake_waiting_for_money
from tasks.errors import LostRace
from tasks.events import record, tell_noted, write_receipt
from tasks.funding import cost_of_run, stop_task
from tasks.models import Task, TaskRun
from tasks.opus import opus_rule
from tasks.states import ENDED_CHANGES, RunState, TaskState
from tasks.stops import APPROVAL_NEEDED
from tasks.supervision import RUN_SECONDS_MAX, lease_from
from tasks.transitions import locked_change, move_run, move_task

ACTIVE_BUDGET_MS = RUN_SECONDS_MAX * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """An attempt that may go on: checked and claimed."""

    run: TaskRun
    spec: AttemptSpec
    after: tuple[Approval, Snapshot]


@transaction.atomic
def pause(run: TaskRun, spec: AttemptSpec, paused: Paused, *, now: datetime) -> None:
    """Write a pause. Raises `LostRace` when the run is no longer this worker's; a cancel or a stop wins over it."""
    if run.state != RunState.RUNNING:
        raise LostRace(run)
    change = locked_change(run.task.change_id)
    task: Task = Task.objects.select_related("change__project", "change__author").get(pk=run.task_id)
    run.task = task
    run.refresh_from_db(fields=["stop_asked_at"])
    if task.state != TaskState.RUNNING or change.state in ENDED_CHANGES or run.stop_asked_at is not None:
        ended = Outcome(
            end=EndReason.CANCELLED,
            calls=paused.calls,
            reads=paused.reads,
            tool_log_key=paused.tool_log_key,
            noted=paused.noted,
        )
        finish(run, ended, now=now)
        return
    known, unknown = cost_of_run(run.pk)
    also = {
        "calls": paused.calls,
        "reads": paused.reads,
        "cost": known,
        "unknown_calls": unknown,
        "tool_log_key": paused.tool_log_key,
        "owner": "",
        "fence": run.fence + 1,
    }
    move_run(run, RunState.PAUSED, because=APPROVAL_NEEDED, now=now, also=also)
    bound = binding(task, spec, stacked_on=run.stacked_on)
    approval = continuation.keep(
        paused, spec, bound, budget_ms=ACTIVE_BUDGET_MS, started_at=run.started_at, now=now
    )
    release_claims(run)  # nobody works meanwhile: others are not warned of it (rows 220 to 223)
    # Events go to endpoints: the command itself is the agent's words, and stays behind the wall.
    data = {"approval": str(approval.pk)}
    record("approval.asked", change=change, task=task, run=run, data=data, now=now)
    more = {**data, "argv": list(paused.argv)}
    stop_task(task, APPROVAL_NEEDED, reason=APPROVAL_NEEDED, run=run, more=more, now=now)
    for noted in paused.noted:
        tell_noted(noted, change=change, task=task, run=run, now=now)
    wake_next(change, now=now)
    wake_waiting_for_money(change.organization_id, besides=task, now=now)


def resume(task: Task, run: TaskRun, *, clock: Clock) -> Resumed | None:
    """Claim a decided pause and check that all is as it was (rows 230, 231, 233).

    None: it ended, or waits for another person's yes; its rows say why. Raises `LostRace` when somebody else has
    the Task by now.
    """
    now, log_key = clock.now(), run.tool_log_key
    if _asked_again(task, run, now=now):
        return None
    verdict = _claim(task, run, now=now)
    found = _exhausted() if isinstance(verdict, Exhausted) else _checked(task, run, now=now)
    if isinstance(found, Resumed):
        take_claims(run, task.resources, now=now)
        return found
    # What the pause had counted stays on its row.
    counted = replace(found, calls=run.calls, reads=run.reads, tool_log_key=log_key)
    finish(run, counted, now=now)
    empty_rows(run.pk)
    return None


@transaction.atomic
def _asked_again(task: Task, run: TaskRun, *, now: datetime) -> bool:
    """Whether the yes lapsed with its person's role: then the command waits on, and no time is claimed."""
    change = locked_change(task.change_id)
    said = Approval.objects.filter(
        continuation__run_id=run.pk, state=ApprovalState.APPROVED, effect_began_at__isnull=True
    )
    approval = said.select_related("decided_by").first()
    if approval is None or may_decide(approval.decided_by, change.organization_id):
        return False
    continuation.take_back(approval)
    data = {"approval": str(approval.pk)}
    more = {**data, "argv": approval.argv}
    by = {"by": str(approval.decided_by_id or "")}
    write_receipt(
        "approval",
        "lapsed",
        change=change,
        task=task,
        run=run,
        reasons=["approver_may_not"],
        detail=more | by,
        now=now,
    )
    record("approval.asked", change=change, task=task, run=run, data=data, now=now)
    held_by = task.owner
    stop_task(task, APPROVAL_NEEDED, reason=APPROVAL_NEEDED, run=run, more=more, held_by=held_by, now=now)
    wake_next(change, now=now)
    return True


def _exhausted() -> Outcome:
    return Outcome(end=EndReason.ACTIVE_BUDGET_EXHAUSTED, note="no active time is left")


def _checked(task: Task, run: TaskRun, *, now: datetime) -> Resumed | Outcome:
    paused = Continuation.objects.get(run_id=run.pk)
    approvals = Approval.objects.select_related("continuation")
    approval = approvals.get(continuation=paused, revision=paused.revision)
    model = model_for(Tier(run.tier), allow_opus=opus_rule(task.change.project).allowed)
    spec = spec_of(
        task, run, model=model, caps=RunCaps(**run.caps), prompt="", pauses=paused.revision, now=now
    )
    try:
        bound = binding(task, spec, stacked_on=stack_now(task))
        snapshot = continuation.check(approval, paused, bound)
    except StopRun as rejected:
        return Outcome(end=rejected.end, note=rejected.note)
    except SnapshotError as broken:
        return Outcome(end=EndReason.RESUME_REJECTED, note=str(broken), detail=broken.copy)
    return Resumed(run=run, spec=spec, after=(approval, snapshot))


@transaction.atomic
def _claim(task: Task, run: TaskRun, *, now: datetime) -> Claimed | Exhausted:
    """Task and run are at work again, for this worker alone, and so is all the time that was left."""
    change, owner = locked_change(task.change_id), task.owner
    left = Continuation.objects.get(run_id=run.pk)
    move_task(task, TaskState.RUNNING, because="resumed", now=now, held_by=owner)
    run.task = task
    also = {
        "owner": owner,
        "fence": run.fence + 1,
        "lease_until": lease_from(now),
        "tool_log_key": "",  # its rows show the log again, until the whole is stored
        "active_from": now - timedelta(milliseconds=left.budget_ms - left.remaining_ms),
    }
    move_run(run, RunState.RUNNING, because="resumed", now=now, also=also)
    verdict = claim_time(left, now=now)
    data = {"attempt": run.attempt, "revision": left.revision, "ms_left": left.remaining_ms}
    record("run.resumed", change=change, task=task, run=run, data=data, now=now)
    return verdict
