"""Why an attempt does not start: closed verdicts, and what each does to the Task (row 29)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from django.db import transaction

from tasks.dependents import settle_dependents
from tasks.dispatch import give_back
from tasks.events import record, write_receipt
from tasks.funding import stop_task
from tasks.models import Change, Task
from tasks.states import TaskState
from tasks.transitions import locked_change, move_task
from tasks.wake import wake_change

DEPENDENCY_MERGE_CONFLICT = "dependency_merge_conflict"
CONNECTOR_NOT_FOUND = "connector_not_found"
PACKET_TOO_LARGE = "packet_too_large"
# A fault of ours before there is a run: tried again after 5, 10, 20, 40 and 80 s, then a person is told.
INTERNAL_FAULT = "internal_fault"
START_FAULTS_MAX = 5
START_FAULT_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A limit: the Task is blocked until a person raises it or its period turns."""

    limit: str
    reason: str
    refusals: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The Task fails at once, without an attempt."""

    reason: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Not now, and nobody's fault: no attempt is counted, and the Task is due again after `seconds`."""

    waiting_for: str
    seconds: float
    detail: Mapping[str, Any] = field(default_factory=dict)
    index_waits: int = 0


Refusal = Stopped | Failed | Waits


class NotStarted(Exception):
    """Carries a refusal out of the steps of a start; never leaves `begin`."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def write_refusal(task: Task, refusal: Refusal, *, now: datetime) -> None:
    """The rows say what stopped the start. `LostRace` when somebody else has the Task by now."""
    match refusal:
        case Stopped(limit=limit, reason=reason, refusals=refusals):
            stop_task(task, limit, reason=reason, refusals=refusals, held_by=task.owner, now=now)
        case Failed():
            _fail(task, refusal, now=now)
        case Waits():
            _wait(task, refusal, now=now)
        case _:
            assert_never(refusal)


def refuse_after_fault(task: Task, fault: Exception, *, now: datetime) -> None:
    """What a fault in a start does to the Task. When its run exists already, the watch ends that one."""
    fresh: Task = Task.objects.select_related("change").get(pk=task.pk)
    if fresh.state != TaskState.READY or fresh.owner != task.owner:
        return
    before, _, count = fresh.waiting_for.partition(":")
    faults = int(count) + 1 if before == INTERNAL_FAULT else 1
    detail = {"fault": type(fault).__name__, "faults": faults}
    if faults > START_FAULTS_MAX:
        write_refusal(fresh, Failed(reason=INTERNAL_FAULT, detail=detail), now=now)
        return
    seconds = START_FAULT_SECONDS * 2 ** (faults - 1)
    waits = Waits(waiting_for=f"{INTERNAL_FAULT}:{faults}", seconds=seconds, detail=detail)
    write_refusal(fresh, waits, now=now)


@transaction.atomic
def _fail(task: Task, refusal: Failed, *, now: datetime) -> None:
    change = locked_change(task.change_id)
    detail = {**refusal.detail}
    # Only a merge conflict keeps its detail on the row: the integrate rule reads it there (row 215).
    conflict = refusal.reason == DEPENDENCY_MERGE_CONFLICT
    also = {"failure": refusal.reason, "stop_detail": detail if conflict else {}}
    move_task(task, TaskState.FAILED, because=refusal.reason, now=now, also=also, held_by=task.owner)
    write_receipt(
        "failure", "failed", change=change, task=task, reasons=[refusal.reason], detail=detail, now=now
    )
    settle_dependents(change, now=now)
    if conflict:
        Change.objects.filter(pk=change.pk).update(not_before=now)
        wake_change(change.pk)


@transaction.atomic
def _wait(task: Task, refusal: Waits, *, now: datetime) -> None:
    change = locked_change(task.change_id)
    was = task.waiting_for
    due = now + timedelta(seconds=refusal.seconds)
    mine = give_back(task, not_before=due, waiting_for=refusal.waiting_for, index_waits=refusal.index_waits)
    if mine and was != refusal.waiting_for:
        detail = {"for": refusal.waiting_for, **refusal.detail}
        reason = refusal.waiting_for.partition(":")[0]
        write_receipt("refusal", "wait", change=change, task=task, reasons=[reason], detail=detail, now=now)
        record("task.waits", change=change, task=task, data={"for": refusal.waiting_for}, now=now)
