"""On which ChangeSets a Task starts, and in which order they are merged. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

_FIRST = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Layer:
    """The newest published ChangeSet of one Task."""

    task_id: UUID
    changeset_id: UUID
    commit: str
    created_at: datetime


class CircularDependency(Exception):
    """Tasks that wait for each other: a plan with a circle was let in. `tasks` are those on it or behind it."""

    def __init__(self, tasks: frozenset[UUID]) -> None:
        super().__init__(f"{len(tasks)} Tasks depend on each other")
        self.tasks = tasks


def stack_of(
    task_id: UUID, *, needs: Mapping[UUID, frozenset[UUID]], layers: Mapping[UUID, Layer]
) -> tuple[Layer, ...]:
    """All dependencies of a Task, near and far, dependencies first; ties by creation time, then Task id (row 213).

    A dependency without a published ChangeSet is skipped, but what it depends on is not.
    """
    return in_order(closure(task_id, needs), needs=needs, layers=layers)


def in_order(
    tasks: frozenset[UUID], *, needs: Mapping[UUID, frozenset[UUID]], layers: Mapping[UUID, Layer]
) -> tuple[Layer, ...]:
    """The layers of these Tasks in merge order; composition uses the same one."""
    waits = {task: set(needs.get(task, frozenset())) & tasks for task in tasks}
    free = [_rank(task, layers) for task, on in waits.items() if not on]
    heapq.heapify(free)
    ordered: list[Layer] = []
    while free:
        *_, task = heapq.heappop(free)
        if task in layers:
            ordered.append(layers[task])
        del waits[task]
        for other, on in waits.items():
            if task in on:
                on.remove(task)
                if not on:
                    heapq.heappush(free, _rank(other, layers))
    if waits:
        raise CircularDependency(frozenset(waits))
    return tuple(ordered)


def closure(task_id: UUID, needs: Mapping[UUID, frozenset[UUID]]) -> frozenset[UUID]:
    """Everything that a Task depends on, near and far; itself only when there is a circle."""
    seen: set[UUID] = set()
    ahead = list(needs.get(task_id, frozenset()))
    while ahead:
        task = ahead.pop()
        if task not in seen:
            seen.add(task)
            ahead.extend(needs.get(task, frozenset()))
    return frozenset(seen)


def _rank(task: UUID, layers: Mapping[UUID, Layer]) -> tuple[datetime, UUID]:
    """A Task without work of its own comes at once, so that it holds nobody up."""
    layer = layers.get(task)
    return (layer.created_at if layer else _FIRST, task)
