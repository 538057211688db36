"""The states of Changes, Tasks, runs, Candidates, Preflights, imports and questions, and the moves between them."""

from __future__ import annotations

from enum import StrEnum


class ChangeState(StrEnum):
    DRAFT = "draft"  # written down, not handed over yet
    PLANNING = "planning"  # the planner is asked
    AWAITING_APPROVAL = "awaiting_approval"  # a person must approve the plan
    RUNNING = "running"  # Tasks are worked on
    BUDGET_BLOCKED = "budget_blocked"  # a stop needs a person (or a new period)
    COMPOSING = "composing"  # a Candidate is merged and checked
    READY = "ready"  # every criterion passes; a person may promote
    PROMOTED = "promoted"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskState(StrEnum):
    PENDING = "pending"  # waits for its dependencies
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"  # by a stop of its own, or by a dependency that failed or stopped
    CANCELLED = "cancelled"


class RunState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"  # before a command that waits for a person's yes; nobody works on it
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CandidateState(StrEnum):
    COMPOSING = "composing"
    CONFLICT = "conflict"
    CHECKING = "checking"
    PASSED = "passed"
    FAILED = "failed"
    STALE = "stale"  # main moved meanwhile: composed anew, never forced
    PROMOTED = "promoted"


class PreflightState(StrEnum):
    QUEUED = "queued"  # the row is the queue: a worker takes it
    RUNNING = "running"
    PASSED = "passed"  # attempts may begin
    FAILED = "failed"  # something would make them fail; `found` says what
    CANCELLED = "cancelled"


class ImportState(StrEnum):
    QUEUED = "queued"  # the row is the queue: a worker takes it
    RUNNING = "running"
    DONE = "done"  # the project has its repository
    FAILED = "failed"  # nothing came in; the row says why
    CANCELLED = "cancelled"


class QuestionState(StrEnum):
    """Of a question that a client asks a helper."""

    QUEUED = "queued"  # the row is the queue: a worker takes it
    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"  # no answer that fits; the row says why


C, T, R, K, P, I = ChangeState, TaskState, RunState, CandidateState, PreflightState, ImportState  # noqa: E741

CHANGE_MOVES: dict[ChangeState, frozenset[ChangeState]] = {
    C.DRAFT: frozenset({C.PLANNING, C.CANCELLED}),
    C.PLANNING: frozenset({C.AWAITING_APPROVAL, C.RUNNING, C.BUDGET_BLOCKED, C.FAILED, C.CANCELLED}),
    C.AWAITING_APPROVAL: frozenset({C.PLANNING, C.RUNNING, C.CANCELLED}),
    C.RUNNING: frozenset({C.BUDGET_BLOCKED, C.COMPOSING, C.FAILED, C.CANCELLED}),
    C.BUDGET_BLOCKED: frozenset({C.PLANNING, C.RUNNING, C.COMPOSING, C.FAILED, C.CANCELLED}),
    C.COMPOSING: frozenset({C.RUNNING, C.READY, C.PROMOTED, C.BUDGET_BLOCKED, C.FAILED, C.CANCELLED}),
    C.READY: frozenset({C.COMPOSING, C.RUNNING, C.PROMOTED, C.CANCELLED}),
    # A person may reopen a failed Change: a Task again, or the plan.
    C.FAILED: frozenset({C.PLANNING, C.RUNNING, C.COMPOSING, C.CANCELLED}),
    C.PROMOTED: frozenset(),
    # Only when main had moved already: the cancel came too late, and the Change says where its work is.
    C.CANCELLED: frozenset({C.PROMOTED}),
}
assert CHANGE_MOVES.keys() == set(ChangeState)

TASK_MOVES: dict[TaskState, frozenset[TaskState]] = {
    T.PENDING: frozenset({T.READY, T.BLOCKED, T.CANCELLED}),
    T.READY: frozenset({T.RUNNING, T.BLOCKED, T.FAILED, T.PENDING, T.CANCELLED}),
    T.RUNNING: frozenset({T.READY, T.DONE, T.FAILED, T.BLOCKED, T.PENDING, T.CANCELLED}),
    # Blocked again: another stop takes the place of the first.
    T.BLOCKED: frozenset({T.PENDING, T.READY, T.BLOCKED, T.CANCELLED}),
    # The integrate rule, a review comment or a person reopens finished work.
    T.DONE: frozenset({T.READY, T.PENDING}),
    T.FAILED: frozenset({T.READY, T.PENDING, T.CANCELLED}),
    T.CANCELLED: frozenset(),
}
assert TASK_MOVES.keys() == set(TaskState)

RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    R.RUNNING: frozenset({R.PAUSED, R.SUCCEEDED, R.FAILED, R.CANCELLED}),
    R.PAUSED: frozenset({R.RUNNING, R.FAILED, R.CANCELLED}),
    R.SUCCEEDED: frozenset(),
    R.FAILED: frozenset(),
    R.CANCELLED: frozenset(),
}
assert RUN_MOVES.keys() == set(RunState)

CANDIDATE_MOVES: dict[CandidateState, frozenset[CandidateState]] = {
    K.COMPOSING: frozenset({K.CHECKING, K.CONFLICT, K.STALE, K.FAILED}),
    K.CHECKING: frozenset({K.PASSED, K.FAILED, K.STALE}),
    K.PASSED: frozenset({K.PROMOTED, K.STALE}),
    K.CONFLICT: frozenset({K.STALE}),
    K.FAILED: frozenset({K.STALE}),
    K.STALE: frozenset(),
    K.PROMOTED: frozenset(),
}
assert CANDIDATE_MOVES.keys() == set(CandidateState)

PREFLIGHT_MOVES: dict[PreflightState, frozenset[PreflightState]] = {
    P.QUEUED: frozenset({P.RUNNING, P.CANCELLED}),
    # Running again: another worker takes it over from one that died.
    P.RUNNING: frozenset({P.RUNNING, P.PASSED, P.FAILED, P.CANCELLED}),
    P.PASSED: frozenset(),
    P.FAILED: frozenset(),
    P.CANCELLED: frozenset(),
}
assert PREFLIGHT_MOVES.keys() == set(PreflightState)

IMPORT_MOVES: dict[ImportState, frozenset[ImportState]] = {
    # Failed without having run: no worker took it in a day.
    I.QUEUED: frozenset({I.RUNNING, I.FAILED, I.CANCELLED}),
    # Running again: another worker takes it over from one that died.
    I.RUNNING: frozenset({I.RUNNING, I.DONE, I.FAILED, I.CANCELLED}),
    I.DONE: frozenset(),
    I.FAILED: frozenset(),
    I.CANCELLED: frozenset(),
}
assert IMPORT_MOVES.keys() == set(ImportState)

QUESTION_MOVES: dict[QuestionState, frozenset[QuestionState]] = {
    QuestionState.QUEUED: frozenset({QuestionState.RUNNING}),
    # Running or queued again only while nothing has been sent: its worker died, or only held money is in the way.
    QuestionState.RUNNING: frozenset(QuestionState),
    QuestionState.ANSWERED: frozenset(),
    QuestionState.FAILED: frozenset(),
}
assert QUESTION_MOVES.keys() == set(QuestionState)

# The Tasks that still may cost money: the divisor of the Task's share (row 17).
OPEN_TASKS = frozenset({T.PENDING, T.READY, T.RUNNING, T.BLOCKED})
ENDED_CHANGES = frozenset({C.PROMOTED, C.CANCELLED})
# They have work of their own: planning, integrating, composing.
WORKING_CHANGES = (C.PLANNING, C.RUNNING, C.COMPOSING)
# A stop, a plan, a finished candidate and a failure: nothing moves before somebody says so.
WAITING_FOR_A_PERSON = (C.BUDGET_BLOCKED, C.AWAITING_APPROVAL, C.READY, C.FAILED)
OPEN_RUNS = frozenset({R.RUNNING, R.PAUSED})
OPEN_PREFLIGHTS = frozenset({P.QUEUED, P.RUNNING})
OPEN_IMPORTS = frozenset({I.QUEUED, I.RUNNING})
OPEN_QUESTIONS = frozenset({QuestionState.QUEUED, QuestionState.RUNNING})
