"""`manage.py up` as a newcomer meets it: real processes, a killed worker, an emptied broker, and the books in order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 180

pytestmark = [pytest.mark.slow, pytest.mark.sqlite, pytest.mark.bwrap]


def clean_env() -> dict[str, str]:
    """The environment of a person, not of the tests."""
    ours = ("REMIT_", "DATABASE_", "REDIS_", "DJANGO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


class Up:
    """One `manage.py up` over a data folder of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder = folder
        self.env = clean_env() | {"REMIT_DATA_DIR": str(folder), "REMIT_WORKER_PROCESSES": "2"}
        self.log = folder.parent / f"up-{time.monotonic_ns()}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", "8400", *more],
                cwd=ROOT, env=self.env, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def address(self) -> str:
        found = re.search(r"Remit is up: (\S+)", self.output)
        return found.group(1) if found else ""

    def rows(self, query: str) -> list[tuple[object, ...]]:
        try:
            with sqlite3.connect(f"file:{self.folder}/remit.sqlite3?mode=ro", uri=True, timeout=20) as reader:
                return reader.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    def states(self) -> dict[object, object]:
        return dict(self.rows("SELECT number, state FROM tasks_change"))  # type: ignore[arg-type]  # two columns

    def pid_of(self, word: str) -> int:
        """The program of ours with this word in its command line."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if (
                    entry.name.isdigit()
                    and self._is_parent_of(entry)
                    and word in (entry / "cmdline").read_text()
                ):
                    return int(entry.name)
        raise AssertionError(f"no program of ours has {word} in its command line")

    def _is_parent_of(self, entry: Path) -> bool:
        return _parent(entry) == self.process.pid

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, f"waited in vain: {what}\n{self.output}"
            time.sleep(0.2)


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and _parent(entry) == pid:
                found.append(int(entry.name))
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def make(*more: str) -> Up:
        started.append(Up(tmp_path / "var", *more))
        return started[-1]

    yield make
    for up in started:
        if up.process.poll() is None:
            up.process.kill()
            up.process.wait()


def manage(up: Up, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=up.env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_killed_worker_and_an_emptied_broker_lose_nothing(start: Callable[..., Up]) -> None:
    """The demo's first two Changes are promoted all the same, nothing runs twice, and the books are in order."""
    up = start("--demo")
    up.until(lambda: up.rows("SELECT 1 FROM tasks_taskrun WHERE state = 'running'"), "a run starts")
    os.kill(up.pid_of("agent-wakeups"), signal.SIGKILL)
    shutil.rmtree(up.folder / "broker" / "messages")
    (up.folder / "broker" / "messages").mkdir()
    up.until(lambda: "worker is started again" in up.output, "the worker comes back")
    up.until(lambda: [up.states().get(n) for n in (1, 2)] == ["promoted"] * 2, "two Changes are promoted")
    up.until(lambda: up.states().get(3) == "budget_blocked", "the third asks for money")
    up.until(lambda: not up.rows("SELECT 1 FROM tasks_taskrun WHERE state = 'running'"), "all is quiet")
    assert up.rows("SELECT task_id, attempt FROM tasks_taskrun GROUP BY 1, 2 HAVING count(*) > 1") == []
    assert up.stop() == 0

    audit = manage(up, "audit_ledger")
    assert audit.returncode == 0, audit.stdout + audit.stderr

    again = start("--demo")
    again.until(lambda: again.address, "the second start")
    assert again.states() == {1: "promoted", 2: "promoted", 3: "budget_blocked"}
    with urllib.request.urlopen(f"{again.address}readyz", timeout=10) as answer:
        assert answer.status == 200
    assert again.stop() == 0


def test_children_killed_while_they_wait_for_work_do_not_stop_it_for_ever(start: Callable[..., Up]) -> None:
    """Whoever waits for the next job holds a lock that the others need; killed, it took the lock along."""
    up = start()
    up.until(lambda: "worker@" in up.output, "the worker is ready")
    up.until(lambda: len(children_of(up.pid_of("agent-wakeups"))) == 2, "its children")
    for child in children_of(up.pid_of("agent-wakeups")):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    up.until(lambda: up.output.count("worker@") == 2, "a new worker is ready")
    assert "worker is started again" in up.output
    assert up.stop() == 0


def test_a_second_one_over_the_same_folder_is_refused_and_a_busy_port_is_passed_over(
    start: Callable[..., Up], tmp_path: Path
) -> None:
    first = start()
    first.until(lambda: first.address, "the first start")
    second = Up(tmp_path / "var")
    assert second.process.wait(timeout=60) != 0
    assert "already runs" in second.output
    assert first.address in second.output

    (tmp_path / "other").mkdir()
    elsewhere = Up(tmp_path / "other" / "var")
    try:
        elsewhere.until(lambda: elsewhere.address, "a start beside it")
        assert elsewhere.address != first.address
        with urllib.request.urlopen(f"{elsewhere.address}healthz", timeout=10) as answer:
            assert answer.read() == b"ok\n"
        assert elsewhere.stop() == 0
    finally:
        elsewhere.process.kill()
        elsewhere.process.wait()
    assert first.stop() == 0
    assert "is killed" not in first.output, "all of it ends by itself"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{first.address}healthz", timeout=5)


def refused_start(folder: Path, **env: str) -> str:
    """What a start that stops says."""
    found = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env=clean_env() | {"REMIT_DATA_DIR": str(folder)} | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    return found.stderr


def test_an_odd_setting_is_named_before_anything_starts(tmp_path: Path) -> None:
    assert "REMIT_CALLS_PER_DAY_MAX" in refused_start(tmp_path / "var", REMIT_CALLS_PER_DAY_MAX="many")
    assert not (tmp_path / "var").exists()


def test_a_database_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    nobody_listens = "postgresql://remit@127.0.0.1:1/remit"
    assert "DATABASE_URL" in refused_start(tmp_path / "var", DATABASE_URL=nobody_listens)
