"""An attempt on one screen: take, begin or go on, run, finish or pause."""

from __future__ import annotations

from uuid import UUID

import structlog

from agents.attempt import run_attempt
from agents.clock import WALL, Clock
from agents.desk import Desk
from agents.spec import Outcome, Paused
from routing.words import EndReason
from tasks.attempts.begin import Begun, begin
from tasks.attempts.finish import finish
from tasks.attempts.pausing import Resumed, pause, resume
from tasks.attempts.refusal import refuse_after_fault
from tasks.dispatch import take
from tasks.errors import LostRace
from tasks.models import Task
from tasks.owners import this_process
from tasks.pauses import paused_run_of
from tasks.supervision import RunSupervisor

log = structlog.get_logger(__name__)


def run_task(task_id: UUID, *, clock: Clock = WALL) -> None:
    """Start the Task if it is due and admitted, and work on it to the end of the attempt.

    Safe to call twice, late, or by two workers at once: the rows let one in (rows 13, C66).
    """
    try:
        task = take(task_id, owner=this_process(), now=clock.now())
        begun = _begun(task, clock=clock) if task is not None else None
        if begun is None:
            return
        match _attempt(begun, clock=clock):
            case Paused() as paused:
                pause(begun.run, begun.spec, paused, now=clock.now())
            case Outcome() as outcome:
                finish(begun.run, outcome, now=clock.now())
    except LostRace as lost:
        log.warning("somebody else has this task now", task=str(task_id), lost=str(lost))


def _begun(task: Task, *, clock: Clock) -> Begun | Resumed | None:
    """A fault of ours must not leave the Task with a start that nobody makes, until its lease ends, again and again."""
    try:
        paused = paused_run_of(task)
        return begin(task, clock=clock) if paused is None else resume(task, paused, clock=clock)
    except LostRace:
        raise
    except Exception as fault:
        log.exception("a start broke", change=str(task.change_id), task=str(task.pk))
        refuse_after_fault(task, fault, now=clock.now())
        return None


def _attempt(begun: Begun | Resumed, *, clock: Clock) -> Outcome | Paused:
    """The outermost frame of the engine: a fault of ours ends the run as transient, and is logged (row 28)."""
    with structlog.contextvars.bound_contextvars(
        change=str(begun.run.task.change_id), task=begun.run.task.key, run=str(begun.run.pk)
    ):
        try:
            supervisor = RunSupervisor(begun.run, clock=clock)
            desk = Desk(begun.spec, supervisor, clock=clock)
            after = begun.after if isinstance(begun, Resumed) else None
            return run_attempt(begun.spec, supervisor, desk=desk, after=after)
        except Exception as fault:
            log.exception("the engine broke")
            return Outcome(end=EndReason.TRANSIENT, note=f"internal fault: {type(fault).__name__}")
