"""Up to which event everything has surely arrived: ids are given before commits, so a lower one may come later.

A reader that has seen event 7 and asks for what is greater would miss event 6 that commits a moment
afterwards. The horizon of a process moves over ids without holes; at a hole it waits for
`HOLE_SECONDS`, after which the transaction that had taken the id was surely rolled back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from asgiref.sync import sync_to_async
from django.db import connections

from tasks.models import Event

log = structlog.get_logger(__name__)
P = ParamSpec("P")
Result = TypeVar("Result")

POLL_SECONDS = 0.4
# No transaction that records an event holds a model call, a sandbox or git: it is over long before.
HOLE_SECONDS = 2.0
IDS_PER_POLL_MAX = 2_000
# Where a process starts to look: what is older was there before anybody listened.
LOOK_BACK_IDS = 200
assert POLL_SECONDS < HOLE_SECONDS
assert LOOK_BACK_IDS < IDS_PER_POLL_MAX


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event that is there, and whose it is."""

    id: int
    organization_id: UUID
    change_id: UUID | None


@dataclass(frozen=True, slots=True)
class Settled:
    """Everything up to `upto` has arrived or never will; `holes` were first seen missing at these moments."""

    upto: int
    holes: Mapping[int, float]


def settle(before: Settled, ids: Sequence[int], *, now: float) -> Settled:
    """Move over `ids`, which follow `before.upto` in order. Pure; `now` in seconds of any steady clock."""
    upto, holes, waits = before.upto, {}, False
    expected = before.upto + 1
    for each in ids:
        if each != expected:
            since = before.holes.get(expected, now)
            holes[expected] = since
            waits = waits or now - since < HOLE_SECONDS
        if not waits:
            upto = each
        expected = each + 1
    return Settled(upto, {start: since for start, since in holes.items() if start > upto})


@dataclass(eq=False, slots=True)
class Listener:
    """Somebody who wants to know when there is news about a Change or an organization."""

    about: UUID
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Horizon:
    """The horizon of one event loop, polled by one task while anybody listens."""

    def __init__(self) -> None:
        self._settled: Settled | None = None
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self, about: UUID) -> AsyncIterator[Listener]:
        listener = Listener(about)
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._settled = None
            self._looked.clear()
            self._task = asyncio.get_running_loop().create_task(self._poll())
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def looked(self) -> None:
        """Once the first look is over, `upto` says something."""
        await self._looked.wait()

    @property
    def upto(self) -> int:
        """0 until the first look."""
        return self._settled.upto if self._settled else 0

    async def _poll(self) -> None:
        """Ends when nobody listens any more. A database that fails for a moment is asked again."""
        while self._listeners:
            try:
                await self._look()
            except Exception:  # the outermost frame of this task: a dead one would silence every stream
                log.warning("horizon.look_failed", exc_info=True)
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self) -> None:
        before = self._settled or Settled(max(await in_database(newest_id)() - LOOK_BACK_IDS, 0), {})
        arrived = await in_database(arrived_after)(before.upto)
        self._settled = settle(before, [each.id for each in arrived], now=time.monotonic())
        fresh = [each for each in arrived if each.id <= self._settled.upto]
        about = {each.organization_id for each in fresh} | {each.change_id for each in fresh}
        for listener in self._listeners:
            if listener.about in about:
                listener.news.set()
        self._looked.set()


def horizon() -> Horizon:
    """The one of the running loop."""
    return _HORIZONS.setdefault(asyncio.get_running_loop(), Horizon())


def in_database(read: Callable[P, Result]) -> Callable[P, Coroutine[Any, Any, Result]]:
    """A reading function as a coroutine, in a shared thread that gives its connection back at once.

    A stream lives for minutes: a connection of its own would take one of the few that a process may have.
    """

    def reading(*args: P.args, **more: P.kwargs) -> Result:
        try:
            return read(*args, **more)
        finally:
            connections.close_all()

    return sync_to_async(reading, thread_sensitive=False)


def newest_id() -> int:
    return Event.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def arrived_after(event_id: int) -> list[Arrived]:
    rows = Event.objects.filter(pk__gt=event_id).order_by("pk")[:IDS_PER_POLL_MAX]
    return [Arrived(*row) for row in rows.values_list("pk", "organization_id", "change_id")]


_HORIZONS: WeakKeyDictionary[asyncio.AbstractEventLoop, Horizon] = WeakKeyDictionary()
