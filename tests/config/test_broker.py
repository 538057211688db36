"""The folder broker: many writers and readers, and no message is ever seen half."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection

from config.broker import UNFINISHED

MESSAGES = 150
WRITERS = 4


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
