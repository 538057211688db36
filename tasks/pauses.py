"""Attempts that paused before a command: found, ended, and never left behind (rows 228 to 233)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.db import transaction

from agents import continuation
from agents.runlog import empty_rows
from routing.words import EndReason, failure_class
from tasks.errors import LostRace
from tasks.models import Change, Task, TaskRun
from tasks.states import RunState, TaskState
from tasks.transitions import locked_change, move_run

# A Task in one of these goes nowhere any more with what it had paused.
OVER = (TaskState.CANCELLED, TaskState.FAILED, TaskState.DONE)


def paused_run_of(task: Task) -> TaskRun | None:
    found: TaskRun | None = task.runs.filter(state=RunState.PAUSED).first()
    return found


def end_paused(run: TaskRun, to: RunState, *, end: EndReason, note: str = "", now: datetime) -> None:
    """End an attempt that nobody works on; what was kept for it goes. Call inside the transaction."""
    also: Mapping[str, Any] = {
        "failure_class": failure_class(end) if to is RunState.FAILED else "",
        "note": note,
        "fence": run.fence + 1,
    }
    move_run(run, to, because=end, now=now, also=also)
    continuation.close(run.pk, now=now)
    empty_rows(run.pk)


def withdraw_pauses(change: Change, *, now: datetime) -> int:
    """Its Tasks were cancelled: what waits for a yes waits no longer. How many. Call with the Change locked."""
    ended = 0
    waiting = TaskRun.objects.filter(state=RunState.PAUSED, task__change=change, task__state__in=OVER)
    for run in waiting.select_related("task__change"):
        with suppress(LostRace):
            end_paused(run, RunState.CANCELLED, end=EndReason.CANCELLED, now=now)
            ended += 1
    return ended


def end_forsaken_pauses(now: datetime) -> int:
    """The sweep's share: a pause whose Task ended by another way."""
    forsaken = TaskRun.objects.filter(state=RunState.PAUSED, task__state__in=OVER)
    changes = set(forsaken.values_list("task__change_id", flat=True))
    ended = 0
    for change_id in changes:
        with transaction.atomic():
            ended += withdraw_pauses(locked_change(change_id), now=now)
    return ended
