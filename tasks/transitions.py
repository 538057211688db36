"""The only writers of state columns. Compare and set in one statement: two callers, one winner."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import models, transaction

from tasks.errors import IllegalMove, LostRace
from tasks.events import record
from tasks.models import Candidate, Change, HelperQuestion, Preflight, ProjectImport, Task, TaskRun
from tasks.states import (
    CANDIDATE_MOVES,
    CHANGE_MOVES,
    ENDED_CHANGES,
    IMPORT_MOVES,
    OPEN_IMPORTS,
    OPEN_PREFLIGHTS,
    OPEN_QUESTIONS,
    OPEN_RUNS,
    PREFLIGHT_MOVES,
    QUESTION_MOVES,
    RUN_MOVES,
    TASK_MOVES,
    CandidateState,
    ChangeState,
    ImportState,
    PreflightState,
    QuestionState,
    RunState,
    TaskState,
)

# What belongs to one stay in a state ends with it. A move names what the new state needs;
# so no stop, wait or lease survives by accident.
TASK_STAY: Mapping[str, Any] = {
    "not_before": None,
    "owner": "",
    "waiting_for": "",
    "woken_at": None,
    "index_waits": 0,
    "stop_limit": "",
    "stop_detail": {},
    "blocked_by_id": None,
    "failure": "",
    "ended_at": None,
}
CHANGE_STAY: Mapping[str, Any] = {
    "waiting_for": "",
    "stop_limit": "",
    "stop_detail": {},
    "failure": "",
    "ended_at": None,
}

ENDED_TASKS = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})
ENDED_CANDIDATES = frozenset(
    {CandidateState.CONFLICT, CandidateState.FAILED, CandidateState.STALE, CandidateState.PROMOTED}
)


def locked_change(change_id: UUID) -> Change:
    """The Change's row, locked until the transaction ends. Always taken before any row of its Tasks."""
    change: Change = Change.objects.select_for_update(no_key=True).get(pk=change_id)
    return change


def move_change(
    change: Change, to: ChangeState, *, because: str, now: datetime, also: Mapping[str, Any] | None = None
) -> None:
    """Raises `IllegalMove` or `LostRace`. `also` holds other columns of the same statement."""
    if to not in CHANGE_MOVES[ChangeState(change.state)]:
        raise IllegalMove(change, to)
    columns = {**CHANGE_STAY, "ended_at": now if to in ENDED_CHANGES else None, **(also or {})}
    with transaction.atomic():
        _swap(change, to, columns | {"updated_at": now})
        record(f"change.{to}", change=change, data={"because": because}, now=now)


def move_task(
    task: Task,
    to: TaskState,
    *,
    because: str,
    now: datetime,
    also: Mapping[str, Any] | None = None,
    held_by: str | None = None,
) -> None:
    """Raises `IllegalMove` or `LostRace`. `held_by` demands that this owner still has the start of the Task."""
    if to not in TASK_MOVES[TaskState(task.state)]:
        raise IllegalMove(task, to)
    columns = {**TASK_STAY, "ended_at": now if to in ENDED_TASKS else None, **(also or {})}
    with transaction.atomic():
        _swap(task, to, columns, **({} if held_by is None else {"owner": held_by}))
        record(f"task.{to}", change=task.change, task=task, data={"because": because}, now=now)


def move_run(
    run: TaskRun, to: RunState, *, because: str, now: datetime, also: Mapping[str, Any] | None = None
) -> None:
    """End, pause or go on with a run. Only the holder of the run's fence may: whoever lost it gets `LostRace`."""
    if to not in RUN_MOVES[RunState(run.state)]:
        raise IllegalMove(run, to)
    ended = (
        {"ended_at": None, "end_reason": ""} if to in OPEN_RUNS else {"ended_at": now, "end_reason": because}
    )
    columns = {**ended, **(also or {})}
    with transaction.atomic():
        _swap(run, to, columns, fence=run.fence)
        record(
            f"run.{to}", change=run.task.change, task=run.task, run=run, data={"because": because}, now=now
        )


def move_candidate(
    candidate: Candidate,
    to: CandidateState,
    *,
    because: str,
    now: datetime,
    also: Mapping[str, Any] | None = None,
) -> None:
    """Raises `IllegalMove` or `LostRace`."""
    if to not in CANDIDATE_MOVES[CandidateState(candidate.state)]:
        raise IllegalMove(candidate, to)
    columns = {"ended_at": now if to in ENDED_CANDIDATES else None, **(also or {})}
    with transaction.atomic():
        _swap(candidate, to, columns)
        data = {"because": because, "candidate": candidate.number}
        record(f"candidate.{to}", change=candidate.change, data=data, now=now)


def move_preflight(
    preflight: Preflight, to: PreflightState, *, now: datetime, also: Mapping[str, Any] | None = None
) -> None:
    """Only whoever read the row with the work key that it still has may move it. Raises `IllegalMove` or `LostRace`."""
    if to not in PREFLIGHT_MOVES[PreflightState(preflight.state)]:
        raise IllegalMove(preflight, to)
    ended = {} if to in OPEN_PREFLIGHTS else {"ended_at": now, "work_key": "", "not_before": None, "step": ""}
    _swap(preflight, to, {**ended, **(also or {})}, work_key=preflight.work_key)


def move_import(
    found: ProjectImport, to: ImportState, *, now: datetime, also: Mapping[str, Any] | None = None
) -> None:
    """As with Preflights. Whoever's password it was, the end of the import is the end of it."""
    if to not in IMPORT_MOVES[ImportState(found.state)]:
        raise IllegalMove(found, to)
    used = {"username": "", "sealed_password": "", "work_key": "", "not_before": None, "step": ""}
    ended = {} if to in OPEN_IMPORTS else {"ended_at": now, **used}
    _swap(found, to, {**ended, **(also or {})}, work_key=found.work_key)


def move_question(
    question: HelperQuestion, to: QuestionState, *, now: datetime, also: Mapping[str, Any] | None = None
) -> None:
    """As with Preflights. The end of the question is the end of its packet."""
    if to not in QUESTION_MOVES[QuestionState(question.state)]:
        raise IllegalMove(question, to)
    ended = (
        {} if to in OPEN_QUESTIONS else {"ended_at": now, "packet": "", "work_key": "", "not_before": None}
    )
    _swap(question, to, {**ended, **(also or {})}, work_key=question.work_key)


def _swap(row: models.Model, to: str, columns: Mapping[str, Any], **still: Any) -> None:
    """The WHERE clause is the lock: the row moves only from the state (and holder) it was read with."""
    unmoved = type(row)._default_manager.filter(pk=row.pk, state=row.state, **still)  # type: ignore[attr-defined]  # every row here has a state
    if not unmoved.update(state=to, **columns):
        raise LostRace(row)
    for name, value in {"state": to, **columns}.items():
        setattr(row, name, value)
