"""The integrate rule: the Task that did not merge is done again on top of the others (rows 215, 219)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from agents import archive
from agents.errors import StopRun
from routing.words import BUDGET
from tasks.asking import stop_work
from tasks.events import record, write_receipt
from tasks.fence import WorkHold
from tasks.models import Change, ChangeSet, Dependency, Task
from tasks.plan import cycle_in
from tasks.reopening import ReopenedOften, reopen_done
from tasks.reviews import conflict_review
from tasks.states import ChangeState, TaskState
from tasks.transitions import move_change, move_task
from tasks.verdicts import ConflictOpinion

MERGE_CONFLICT = "dependency_merge_conflict"
NOTE_FILES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """Work that did not merge: whose, with which files, onto which work. `onto` empty: onto main itself."""

    loser: Task
    onto: tuple[Task, ...]
    paths: tuple[str, ...]
    changesets: tuple[UUID, ...] = ()

    def as_data(self) -> dict[str, Any]:
        return {
            "task": self.loser.key,
            "onto": [task.key for task in self.onto],
            "paths": list(self.paths),
        }


def integrate(hold: WorkHold, collision: Collision) -> bool:
    """Review the conflict, then reopen its loser on top of the others. False: the Change waits or failed.

    The review advises; the rule does not need it. What refuses its money stops the Change like any other stop.
    """
    change: Change = Change.objects.select_related("project").get(pk=hold.change_id)
    opinion: ConflictOpinion | None = None
    if collision.onto:
        try:
            opinion = _reviewed(hold, change, collision)
        except StopRun as stop:
            if stop.end in BUDGET:
                stop_work(hold, "composing", stop, now=timezone.now())
                return False
    return _reopen(hold, collision, opinion, now=timezone.now())


def stuck_starts(change: Change) -> list[Task]:
    """The Tasks that could not start because what they depend on does not merge."""
    return list(change.tasks.filter(state=TaskState.FAILED, failure=MERGE_CONFLICT).order_by("position"))


def collision_of(task: Task) -> Collision | None:
    """What stood in the way of that start; None when the row does not say it."""
    detail = task.stop_detail
    stacked = [str(one) for one in detail.get("stacked_on", [])]
    changesets = {str(one.pk): one for one in ChangeSet.objects.filter(pk__in=stacked).select_related("task")}
    ordered = [changesets[pk] for pk in stacked if pk in changesets]
    losing = next((one for one in ordered if one.commit == detail.get("at")), None)
    if losing is None:
        return None
    return collision_between(losing, ordered[: ordered.index(losing)], tuple(detail.get("paths", ())))


def collision_between(losing: ChangeSet, merged: Sequence[ChangeSet], paths: tuple[str, ...]) -> Collision:
    """The others are those already merged that touched the files; all of them when none says so."""
    touched = [one for one in merged if set(one.own_files) & set(paths)] or list(merged)
    return Collision(
        loser=losing.task,
        onto=tuple(dict.fromkeys(one.task for one in touched)),
        paths=paths,
        changesets=tuple(one.pk for one in (losing, *touched)),
    )


def why_no_edges(loser: Task, onto: Sequence[Task]) -> str:
    """Why the loser cannot be put on top of the others; empty when it can. A circle is shown as a path."""
    rows = Dependency.objects.filter(task__change_id=loser.change_id).select_related("task", "on")
    edges: dict[str, list[str]] = {}
    for row in rows:
        edges.setdefault(row.task.key, []).append(row.on.key)
    known = set(edges.get(loser.key, []))
    if onto and all(task.key in known for task in onto):
        return f"{loser.key} already builds on {', '.join(sorted(known))} and still does not merge"
    for task in onto:
        edges.setdefault(loser.key, []).append(task.key)
    circle = cycle_in({loser.key: edges.get(loser.key, []), **edges})
    return f"the dependencies would lead in a circle: {' -> '.join(circle)}" if circle else ""


def _reopen(hold: WorkHold, collision: Collision, opinion: ConflictOpinion | None, *, now: datetime) -> bool:
    loser = collision.loser
    problem = why_no_edges(loser, collision.onto)
    with hold.writing() as change:
        if not problem:
            try:
                _rebuild(change, collision, opinion, now=now)
            except ReopenedOften as often:
                problem = str(often)
        if problem:
            _fail(change, collision, problem, now=now)
            return False
        reasons = ["integrate", "design_conflict" if opinion and opinion.resources else "same_lines"]
        write_receipt(
            "integrate",
            "reopened",
            change=change,
            task=loser,
            reasons=reasons,
            detail=collision.as_data(),
            now=now,
        )
        record("task.integrate", change=change, task=loser, data=collision.as_data(), now=now)
        return True


def _rebuild(change: Change, collision: Collision, opinion: ConflictOpinion | None, *, now: datetime) -> None:
    loser = collision.loser
    for task in collision.onto:
        Dependency.objects.get_or_create(task=loser, on=task, defaults={"added_by": "integrate"})
    if opinion is not None and opinion.resources:
        Task.objects.filter(pk=loser.pk).update(design_conflicts=len(opinion.resources))
    names = "-".join(sorted(task.key for task in collision.onto)) or "main"
    for task in stuck_starts(change):
        move_task(task, TaskState.PENDING, because="integrate", now=now)
    reopen_done(
        change,
        loser,
        key=f"integrate:{names}",
        because="integrate",
        note=_note(collision, opinion),
        now=now,
    )


def _note(collision: Collision, opinion: ConflictOpinion | None) -> str:
    """What the next packet says: build on what is really there."""
    files = ", ".join(collision.paths[:NOTE_FILES_MAX])
    onto = ", ".join(f"{task.key} ({task.title})" for task in collision.onto) or "the newest main branch"
    said = f"Your last work did not merge with {onto}: {files}. Its result is in your workspace now. "
    said += "Build on the real routes, names and shapes that you find there; do not redo it."
    return f"{said} {opinion.advice}".strip() if opinion is not None else said


def _fail(change: Change, collision: Collision, problem: str, *, now: datetime) -> None:
    failure = f"{collision.loser.key} does not merge ({', '.join(collision.paths[:5])}): {problem}"
    also = {"failure": failure, "work_key": "", "not_before": None}
    move_change(change, ChangeState.FAILED, because="merge_conflict", now=now, also=also)
    write_receipt(
        "failure", "merge_conflict", change=change, task=collision.loser, detail=collision.as_data(), now=now
    )


def _reviewed(hold: WorkHold, change: Change, collision: Collision) -> ConflictOpinion | None:
    rows = ChangeSet.objects.filter(pk__in=collision.changesets)
    texts = [archive.get(row.patch_key).decode("utf-8", "replace") for row in rows]
    opinion = conflict_review(
        hold,
        change,
        first="; ".join(f"{task.key} {task.title}: {task.objective}" for task in collision.onto),
        second=f"{collision.loser.key} {collision.loser.title}: {collision.loser.objective}",
        paths=collision.paths,
        patches="\n".join(texts),
        now=timezone.now(),
    )
    return opinion if isinstance(opinion, ConflictOpinion) else None
