"""Finished work is opened again: by the integrate rule, by a criterion that failed, or by a person's comment."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from tasks.dependents import settle_dependents
from tasks.errors import NotStopped
from tasks.events import record, write_receipt
from tasks.fence import make_rest
from tasks.models import Change, Dependency, Reopening, Task
from tasks.states import ENDED_CHANGES, TaskState
from tasks.transitions import locked_change, move_task
from tenants import audit, text
from tenants.access import require_role
from tenants.models import Role, User

# By the platform alone; people may reopen as often as they like.
REOPENINGS_PER_TASK_MAX = 3
NOTE_CHARACTERS_MAX = 4_000


class ReopenedOften(Exception):
    """The platform has opened this Task again as often as it may; a person decides."""


def reopen_done(change: Change, task: Task, *, key: str, because: str, note: str, now: datetime) -> None:
    """Reopen a done Task once per `key`, and everything done on top of it, with a note for the next packet.

    The attempt window begins anew: what the Task failed at before it was done says nothing about this.
    Call with the Change locked. Raises ReopenedOften; nothing is changed then.
    """
    _count(task, key, because, now=now)
    _open_again(change, task, because=because, note=note, now=now)
    record("task.reopened", change=change, task=task, data={"because": because, "key": key}, now=now)


@transaction.atomic
def send_back(task: Task, comment: str, *, by: User, key: str, now: datetime) -> None:
    """A person's comment on finished work: the Task is done again with it in its packet. Once per `key`.

    What stands on it is done again too. Raises `RoleTooLow` below MEMBER, InvalidInput for an empty comment,
    and NotStopped for a Task that is not done or a Change that has ended.
    """
    require_role(by, task.change.organization_id, Role.MEMBER)
    comment = text.free_text("comment", comment, characters_max=NOTE_CHARACTERS_MAX, required=True)
    change = locked_change(task.change_id)
    fresh: Task = Task.objects.get(pk=task.pk)
    if fresh.reopenings.filter(key=key).exists():
        return
    if change.state in ENDED_CHANGES:
        raise NotStopped(f"{change.key} has ended", "Submit a new Change.")
    if fresh.state != TaskState.DONE:
        raise NotStopped(f"{fresh.key} is not done", "Only finished work is sent back; reopen the others.")
    Reopening.objects.create(task=fresh, key=key, by=by, stop_limit="comment", reason=comment, at=now)
    _open_again(change, fresh, because="comment", note=f"A person looked at your work: {comment}", now=now)
    write_receipt("reset", "reopened", change=change, task=fresh, reasons=["comment"], now=now)
    record("task.reopened", change=change, task=fresh, data={"because": "comment", "by": str(by.pk)}, now=now)
    audit.note(change.organization, by, "task.sent_back", f"{change.key}/{fresh.key}", reason=comment)
    task.refresh_from_db()


def _open_again(change: Change, task: Task, *, because: str, note: str, now: datetime) -> None:
    Task.objects.filter(pk=task.pk).update(
        notes=[*task.notes, note[:NOTE_CHARACTERS_MAX]], attempts_reset_at=now
    )
    for one in (task, *followers_of(task)):
        one.refresh_from_db()
        if one.state == TaskState.DONE:
            Task.objects.filter(pk=one.pk).update(attempts_reset_at=now)
            move_task(one, TaskState.PENDING, because=because, now=now)
    make_rest(change)
    settle_dependents(change, now=now)


def followers_of(task: Task) -> list[Task]:
    """Every Task whose work is stacked on this one, near and far."""
    edges: dict[object, list[Task]] = {}
    for row in Dependency.objects.filter(task__change_id=task.change_id).select_related("task"):
        edges.setdefault(row.on_id, []).append(row.task)
    found: dict[object, Task] = {}
    ahead = list(edges.get(task.pk, []))
    while ahead:
        follower = ahead.pop()
        if follower.pk not in found:
            found[follower.pk] = follower
            ahead.extend(edges.get(follower.pk, []))
    return sorted(found.values(), key=lambda one: one.position)


def was_reopened(task: Task, key: str) -> bool:
    return task.reopenings.filter(key=key).exists()


def _count(task: Task, key: str, because: str, *, now: datetime) -> None:
    by_platform = task.reopenings.filter(by__isnull=True)
    if by_platform.filter(key=key).exists() or by_platform.count() >= REOPENINGS_PER_TASK_MAX:
        raise ReopenedOften(f"{task.key} was already done again for this")
    Reopening.objects.create(task=task, key=key, by=None, stop_limit=because, reason="", at=now)
