"""The folder broker: many writers and readers, and no message is ever seen half."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import signals
from kombu import Connection

from config.broker import UNFINISHED, Transport

MESSAGES = 150
WRITERS = 4
LONG_SECONDS = 60.0


@pytest.fixture
def queue() -> str:
    """A name of its own: kombu remembers per process which queues it has bound, whatever the folder."""
    return f"nudges-{uuid4().hex}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("messages", "control", "taken"):
        (tmp_path / name).mkdir()
    return tmp_path


def connection(folder: Path) -> Connection:
    return Connection(
        transport="config.broker:Transport",
        transport_options={
            "data_folder_in": str(folder / "messages"),
            "data_folder_out": str(folder / "messages"),
            "control_folder": str(folder / "control"),
            "processed_folder": str(folder / "taken"),
            "polling_interval": 0.01,
        },
    )


def write(folder: Path, queue: str, writer: int) -> None:
    with connection(folder) as broker:
        nudges = broker.SimpleQueue(queue)
        for number in range(MESSAGES):
            nudges.put({"writer": writer, "number": number, "filling": "x" * 20_000})


def taken(folder: Path, queue: str, count: int) -> Iterator[dict[str, Any]]:
    with connection(folder) as broker:
        nudges = broker.SimpleQueue(queue)
        for _ in range(count):
            message = nudges.get(timeout=20)
            message.ack()
            yield message.payload


def test_messages_of_several_processes_arrive_whole_and_once(folder: Path, queue: str) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write, args=(folder, queue, number)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    seen = [(each["writer"], each["number"]) for each in taken(folder, queue, WRITERS * MESSAGES)]
    for writer in writers:
        writer.join(20)
        assert writer.exitcode == 0
    assert sorted(seen) == [(w, n) for w in range(WRITERS) for n in range(MESSAGES)]
    assert not list(folder.rglob(f"*{UNFINISHED}"))


def test_an_unreadable_message_is_dropped_and_the_next_one_taken(folder: Path, queue: str) -> None:
    (folder / "messages" / f"0_x.{queue}.msg").write_bytes(b"")
    (folder / "messages" / f"1_x.{queue}.msg").write_bytes(b'{"half')
    with connection(folder) as broker:
        broker.SimpleQueue(queue).put({"number": 1})
    assert [each["number"] for each in taken(folder, queue, 1)] == [1]


def test_an_unreadable_table_is_written_anew(folder: Path, queue: str) -> None:
    (folder / "control" / f"{queue}.exchange").write_bytes(b"")
    with connection(folder) as broker:
        broker.SimpleQueue(queue).put({"number": 1})
    assert [each["number"] for each in taken(folder, queue, 1)] == [1]


@pytest.mark.django_db(transaction=True)  # another who hears that signal closes all connections
def test_a_worker_that_is_told_to_stop_does_not_wait_for_the_next_message(
    folder: Path, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery asks for 2 seconds at a time and looks up between; three workers' waits made Ctrl-C slow."""
    monkeypatch.setattr(Transport, "stopping", False)
    signals.worker_shutting_down.send(sender="worker@here", sig="SIGTERM", how="Cold", exitcode=0)
    with connection(folder) as broker:
        broker.SimpleQueue(queue).queue.declare()
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=LONG_SECONDS)
        assert time.monotonic() - started < LONG_SECONDS / 2


def test_who_waits_for_a_message_waits_as_long_as_asked(
    folder: Path, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transport, "stopping", False)
    with connection(folder) as broker:
        broker.SimpleQueue(queue).queue.declare()
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.7)
        assert time.monotonic() - started >= 0.7


def test_a_folder_that_is_taken_away_takes_its_messages_and_no_worker(folder: Path, queue: str) -> None:
    with connection(folder) as broker:
        nudges = broker.SimpleQueue(queue)
        nudges.put({"number": 1})
        shutil.rmtree(folder / "messages")
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.1)
        nudges.put({"number": 2})
    assert [each["number"] for each in taken(folder, queue, 1)] == [2]
