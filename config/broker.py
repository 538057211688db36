"""Kombu's folder transport, made safe for several processes.

As it comes, a message and an exchange table are written in place: a reader that looks
between the opening and the writing finds an empty file, and the worker or the page dies of
it (seen with three demo Changes). Here every file appears whole, by a rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar
from uuid import uuid4

import structlog
from kombu.transport import filesystem
from kombu.utils.json import dumps

log = structlog.get_logger(__name__)

UNFINISHED = ".part"
SLICE_SECONDS = 0.2  # how long a wait for a message lasts before it looks whether the worker is to stop


class Channel(filesystem.Channel):
    """Messages and tables are written beside their place and moved into it."""

    def _put(self, queue: str, payload: dict[str, Any], **kwargs: Any) -> None:  # type: ignore[override]  # noqa: ARG002  # as kombu has it
        # Names sort by time: the oldest message is taken first.
        name = f"{time.monotonic() * 1000:.0f}_{uuid4()}.{queue}.msg"
        folder = Path(self.data_folder_out)
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / name, dumps(payload))

    def _get(self, queue: str) -> dict[str, Any]:  # type: ignore[override]  # kombu's two layers disagree
        while True:
            try:
                return super()._get(queue)
            except json.JSONDecodeError:
                # Left by a crash or another program: a nudge is lost, and the sweep finds its row.
                log.warning("an unreadable message was dropped", queue=queue)
            except FileNotFoundError:
                raise Empty from None  # somebody took the folder away: so are its messages, and no worker ends of it

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str) -> None:
        self.control_folder.mkdir(exist_ok=True)
        wanted = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        with self._alone():
            table = self.get_table(exchange)
            if wanted not in table:
                _write_whole(self._exchange_file(exchange), dumps([wanted, *table]))  # type: ignore[attr-defined]  # not in the stubs

    def get_table(self, exchange: str) -> list[Any]:
        try:
            found: list[Any] = super().get_table(exchange)
        except json.JSONDecodeError:
            log.warning("an unreadable exchange table is written anew", exchange=exchange)
            return []
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer of tables at a time; the kernel lets go when the holder is killed."""
        with (self.control_folder / "tables.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Transport(filesystem.Transport):
    Channel = Channel
    # Of this process; a plain word, since it is set by the handler of a signal, which may take no lock.
    stopping: ClassVar[bool] = False

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Waits in slices: a worker asks for 2 seconds at a time, and one told to stop waited for the rest of them."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE_SECONDS if until is None else until - time.monotonic()
            try:
                super().drain_events(connection, timeout=max(0.0, min(SLICE_SECONDS, left)))
            except TimeoutError:
                if until is not None and (self.stopping or time.monotonic() >= until):
                    raise
            else:
                return


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f"{uuid4()}{UNFINISHED}")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
