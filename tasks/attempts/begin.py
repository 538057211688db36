"""Bring a taken Task to its first model call: prepare, one batch of rows, claims (rows 16 to 30)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from django.db import transaction

from agents.clock import WALL, Clock
from agents.context.render import render
from agents.spec import AttemptSpec
from tasks.attempts.prepare import Prepared, prepare
from tasks.attempts.refusal import (
    NotStarted,
    write_refusal,
)
from tasks.attempts.spec import spec_of
from tasks.claims import take_claims
from tasks.events import record, write_receipt
from tasks.models import Task, TaskRun
from tasks.opus import opus_rule
from tasks.states import TaskState
from tasks.supervision import lease_from
from tasks.transitions import locked_change, move_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An attempt whose rows exist. `run` holds the fence."""

    run: TaskRun
    spec: AttemptSpec


def begin(task: Task, *, clock: Clock = WALL) -> Begun | None:
    """Bring a taken Task to its first model call. None: it does not start, and its rows say why.

    Raises `LostRace` when somebody else has the Task by now.
    """
    try:
        prepared = prepare(task, clock=clock)
    except NotStarted as refused:
        write_refusal(task, refused.refusal, now=clock.now())
        return None
    run = _write_batch(task, prepared, now=clock.now())
    take_claims(run, task.resources, now=clock.now())
    spec = spec_of(
        task,
        run,
        model=prepared.model,
        caps=prepared.caps,
        prompt=render(prepared.packet),
        now=clock.now(),
    )
    return Begun(run=run, spec=spec)


@transaction.atomic
def _write_batch(task: Task, prepared: Prepared, *, now: datetime) -> TaskRun:
    """Step 8 (row 26): run, receipt, event and state, all or none."""
    change, owner, tree = locked_change(task.change_id), task.owner, prepared.tree
    move_task(task, TaskState.RUNNING, because="started", now=now, held_by=owner)
    run: TaskRun = TaskRun.objects.create(
        id=prepared.run_id,
        task=task,
        attempt=prepared.attempt,
        tier=prepared.choice.tier,
        model=prepared.model.name,
        context_hash=prepared.packet.hash,
        packet_key=prepared.packet_key,
        caps=asdict(prepared.caps),
        budget=prepared.share,
        base_commit=tree.base_commit if tree else "",
        start_commit=tree.start_commit if tree else "",
        stacked_on=[str(layer.changeset_id) for layer in tree.layers] if tree else [],
        compaction=prepared.told.compaction,
        owner=owner,
        lease_until=lease_from(now),
        started_at=now,
    )
    _tell_route(task, run, prepared, now=now)
    record("run.running", change=change, task=task, run=run, data={"attempt": run.attempt}, now=now)
    return run


def _tell_route(task: Task, run: TaskRun, prepared: Prepared, *, now: datetime) -> None:
    """One receipt and one event per route (rows 73, 237); the escalation's reason and why opus is off on both."""
    choice, model = prepared.choice, prepared.model
    opus = opus_rule(task.change.project).reasons_on(choice.tier)
    reasons = (*choice.reasons, *model.reasons, *opus)
    detail = {
        "by": choice.by,
        "base": choice.base.word,
        "floor": choice.floor.word if choice.floor else None,
        "model": model.name,
        "attempt": run.attempt,
        "confidence": choice.confidence,
        "share": prepared.share.micro if prepared.share is not None else None,
        "effort": model.effort,
    }
    write_receipt(
        "route",
        choice.tier.word,
        change=task.change,
        task=task,
        run=run,
        reasons=reasons,
        detail=detail,
        now=now,
    )
    record(
        "model.route.decided",
        change=task.change,
        task=task,
        run=run,
        data={"tier": choice.tier.word, "reasons": list(reasons), **detail},
        key=f"model.route.decided:{run.pk}",
        now=now,
    )
