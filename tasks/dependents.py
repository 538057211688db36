"""A Task ends, stops or opens again: its dependents become ready or blocked, and its Change follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tasks.events import record
from tasks.models import Change, Dependency, Task
from tasks.stack import closure
from tasks.states import CHANGE_MOVES, ChangeState, TaskState
from tasks.transitions import move_change, move_task
from tasks.wake import wake_change, wake_task

C, T = ChangeState, TaskState

BROKEN = frozenset({T.FAILED, T.CANCELLED})
# Only these move because of a dependency: what runs or has ended stays as it is.
FOLLOWERS = frozenset({T.PENDING, T.READY, T.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the rules may know of one Task. `stopped`: by a limit of its own, not by a dependency."""

    id: UUID
    position: int
    state: TaskState
    stopped: bool = False
    mendable: bool = False  # failed at a merge that the integrate rule has not judged yet (row 215)
    needs: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """The nearest thing to blame: the first Task, by position, that failed or stopped below this one."""

    task_id: UUID


Verdict = TaskState | BlockedBy


@dataclass(frozen=True, slots=True)
class AllDone:
    """The Change may be composed."""


@dataclass(frozen=True, slots=True)
class GoesOn:
    pass


@dataclass(frozen=True, slots=True)
class Halted:
    """Some Task stopped at a limit and needs a person or a new period."""


@dataclass(frozen=True, slots=True)
class ToIntegrate:
    """Nothing runs, but the integrate rule may still mend what did not merge."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Nothing can go on, and no raise would help: these Tasks failed."""

    failed: tuple[UUID, ...]


def verdicts(tasks: Iterable[Standing]) -> dict[UUID, Verdict]:
    """Where every follower belongs, from the rows alone (row 14): transitively, and the same however often asked."""
    rows = {task.id: task for task in tasks}
    needs = {task.id: task.needs for task in rows.values()}
    return {
        task.id: _verdict(task, rows, needs)
        for task in rows.values()
        if task.state in FOLLOWERS and not task.stopped
    }


def outlook(tasks: Iterable[Standing]) -> AllDone | GoesOn | Halted | ToIntegrate | Broken:
    """What a Change that works on its Tasks is at. A stop is named before a failure: it can be lifted."""
    rows = list(tasks)
    wanted = [task for task in rows if task.state is not T.CANCELLED]
    if any(task.stopped for task in wanted):
        return Halted()
    if wanted and all(task.state is T.DONE for task in wanted):
        return AllDone()
    if not wanted or any(task.state in (T.PENDING, T.READY, T.RUNNING) for task in wanted):
        return GoesOn()
    if any(task.mendable for task in wanted):
        return ToIntegrate()
    return Broken(tuple(task.id for task in wanted if task.state is T.FAILED))


def settle_dependents(change: Change, *, now: datetime) -> None:
    """Bring every follower, then the Change, to where its rows say it belongs; wakes what became ready.

    The Change's row must be locked (`locked_change`). Safe to call again at any time.
    """
    change.refresh_from_db(fields=["state", "stop_limit", "stop_detail", "failure", "not_before"])
    tasks = {task.pk: task for task in Task.objects.filter(change=change)}
    for task in tasks.values():
        task.change = change
    standings = standings_of(tasks)
    for task_id, verdict in verdicts(standings).items():
        _bring(tasks[task_id], verdict, now=now)
    _follow(change, tasks, now=now)


def standings_of(tasks: Mapping[UUID, Task]) -> tuple[Standing, ...]:
    needs: dict[UUID, set[UUID]] = {task_id: set() for task_id in tasks}
    for task_id, on_id in Dependency.objects.filter(task__in=tasks).values_list("task_id", "on_id"):
        needs[task_id].add(on_id)
    return tuple(
        Standing(
            id=task.pk,
            position=task.position,
            state=TaskState(task.state),
            stopped=bool(task.stop_limit),
            mendable=task.state == T.FAILED and bool(task.stop_detail),
            needs=frozenset(needs[task.pk]),
        )
        for task in sorted(tasks.values(), key=lambda task: task.position)
    )


def _verdict(task: Standing, rows: Mapping[UUID, Standing], needs: Mapping[UUID, frozenset[UUID]]) -> Verdict:
    below = [rows[task_id] for task_id in closure(task.id, needs)]
    to_blame = [other for other in below if other.state in BROKEN or other.stopped]
    if to_blame:
        return BlockedBy(min(to_blame, key=lambda other: other.position).id)
    near = [rows[task_id] for task_id in task.needs]
    return T.READY if all(other.state is T.DONE for other in near) else T.PENDING


def _bring(task: Task, verdict: Verdict, *, now: datetime) -> None:
    match verdict:
        case BlockedBy(root) if task.state != T.BLOCKED:
            move_task(task, T.BLOCKED, because="dependency_stopped", now=now, also={"blocked_by_id": root})
        case BlockedBy(root) if task.blocked_by_id != root:
            Task.objects.filter(pk=task.pk, state=T.BLOCKED).update(blocked_by_id=root)
            task.blocked_by_id = root
        case TaskState() as to if to != task.state:
            move_task(task, to, because="dependencies", now=now)
            if to is T.READY:
                wake_task(task.pk)
        case _:
            pass


def _follow(change: Change, tasks: Mapping[UUID, Task], *, now: datetime) -> None:
    state = ChangeState(change.state)
    match outlook(standings_of(tasks)):
        case Halted():
            _show_stop(change, tasks, now=now)
        case GoesOn() if state in (C.FAILED, C.COMPOSING, C.READY) or _task_stop_is_shown(change):
            move_change(change, C.RUNNING, because="tasks_go_on", now=now)
        case AllDone() | ToIntegrate() if state is C.RUNNING or _task_stop_is_shown(change):
            _make_due(change, now=now)
        case Broken(failed) if state in (C.RUNNING, C.BUDGET_BLOCKED):
            names = ", ".join(f"{tasks[task_id].key}: {tasks[task_id].failure}" for task_id in failed)
            move_change(change, C.FAILED, because="tasks_failed", now=now, also={"failure": names})
        case _:
            pass


def _show_stop(change: Change, tasks: Mapping[UUID, Task], *, now: datetime) -> None:
    """The Change carries the oldest stop of its Tasks, with every meter that refused (row 240)."""
    stopped = [task for task in tasks.values() if task.stop_limit]
    first = min(stopped, key=lambda task: (str(task.stop_detail.get("at", "")), task.position))
    shown = {"stop_limit": first.stop_limit, "stop_detail": {**first.stop_detail, "task": first.key}}
    if change.state == C.BUDGET_BLOCKED:
        if _task_stop_is_shown(change) and shown["stop_detail"] != change.stop_detail:
            Change.objects.filter(pk=change.pk).update(**shown, updated_at=now)
            change.stop_limit, change.stop_detail = first.stop_limit, dict(shown["stop_detail"])
            record(
                "change.stop_changed", change=change, task=first, data={"limit": first.stop_limit}, now=now
            )
    elif C.BUDGET_BLOCKED in CHANGE_MOVES[ChangeState(change.state)]:
        move_change(change, C.BUDGET_BLOCKED, because=first.stop_limit, now=now, also=shown)


def _make_due(change: Change, *, now: datetime) -> None:
    if change.state == C.BUDGET_BLOCKED:
        move_change(change, C.RUNNING, because="tasks_done", now=now)
    Change.objects.filter(pk=change.pk).update(not_before=now)
    change.not_before = now
    wake_change(change.pk)


def _task_stop_is_shown(change: Change) -> bool:
    """A stop of the Change's own work (planning, composing) is not a Task's to lift."""
    return change.state == C.BUDGET_BLOCKED and "work" not in change.stop_detail
