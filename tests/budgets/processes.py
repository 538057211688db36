"""Real processes over one set of books."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, connections

_FORK = multiprocessing.get_context("fork")


@contextmanager
def books_on_disk(folder: Path) -> Iterator[None]:
    """A test's SQLite database lives in memory; for this while it is a file, which other processes see, too."""
    if connection.vendor == "postgresql":
        yield
        return
    connection.ensure_connection()
    memory, name = connection.connection, connection.settings_dict["NAME"]
    path = folder / "books.sqlite3"
    with sqlite3.connect(path) as file:
        memory.backup(file)
    connection.connection, connection.settings_dict["NAME"] = None, str(path)
    try:
        yield
    finally:
        connection.close()
        connection.connection, connection.settings_dict["NAME"] = memory, name


def in_processes(count: int, work: Callable[[int], Any]) -> list[Any]:
    """`work(number)` in that many processes that start together; their answers. A failure in one fails all."""
    connections.close_all()  # a child must not share its parent's socket
    start, answers = _FORK.Barrier(count), _FORK.SimpleQueue()
    children = [_FORK.Process(target=_child, args=(number, work, start, answers)) for number in range(count)]
    for child in children:
        child.start()
    found = [answers.get() for _ in children]
    for child in children:
        child.join()
    for _, trouble in found:
        assert trouble is None, trouble
    return [answer for answer, _ in found]


def in_threads(count: int, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """The jobs, that many at a time, each thread with a connection of its own."""

    def run(job: Callable[[], Any]) -> Any:
        return job()

    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(run, jobs))
        # Each thread closes what it opened.
        list(pool.map(lambda _: connection.close(), range(count * 4)))
    return answers


def spawn(work: Callable[[], None]) -> Any:
    """One process that may be killed; it starts without any open connection."""
    child = _FORK.Process(target=_lonely, args=(work,))
    child.start()
    return child


def _child(number: int, work: Callable[[int], Any], start: Any, answers: Any) -> None:
    try:
        connection.ensure_connection()
        start.wait(timeout=60)
        answers.put((work(number), None))
    except BaseException:
        answers.put((None, traceback.format_exc()))
    finally:
        connections.close_all()
        os._exit(0)  # no clean-up of the test run that was forked along


def _lonely(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
