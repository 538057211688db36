"""The programs of `manage.py up` live and die together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from config.management.commands.up import free_port

ROOT = Path(__file__).resolve().parents[2]
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', int(__import__('sys').argv[1]))); time.sleep(600)"
WRITE_PID = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); "
PATIENCE_SECONDS = 30
FROM_PORT = 21_300


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def start(tmp_path: Path, child: str) -> subprocess.Popen[str]:
    """A supervisor with one listening program and one that does `child` after noting its pid."""
    program = f"""
import socket, sys
from config.processes import Program, Supervisor
with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
programs = [
    Program("web", [sys.executable, "-c", {LISTEN!r}, str(port)], {{}}),
    Program("worker", [sys.executable, "-c", {WRITE_PID + child!r}, {str(tmp_path / "pids")!r}], {{}}),
]
sys.exit(Supervisor(programs, out=sys.stdout).run(ready=("127.0.0.1", port), banner="all is up"))
"""
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_of_it(tmp_path: Path, number: signal.Signals) -> None:
    up = start(tmp_path, "print('hello'); time.sleep(600)")
    until(lambda: pids(tmp_path / "pids"), "the program starts")
    output = up.stdout
    assert output is not None
    until(lambda: "all is up" in output.readline(), "the banner")
    up.send_signal(number)
    rest, _ = up.communicate(timeout=PATIENCE_SECONDS)
    assert up.returncode == 0, rest
    assert [pid for pid in pids(tmp_path / "pids") if alive(pid)] == []


def test_a_program_that_dies_is_started_again(tmp_path: Path) -> None:
    up = start(tmp_path, "time.sleep(600)")
    until(lambda: pids(tmp_path / "pids"), "the first start")
    os.kill(pids(tmp_path / "pids")[0], signal.SIGKILL)
    until(lambda: len(pids(tmp_path / "pids")) == 2, "the second start")
    up.terminate()
    shown, _ = up.communicate(timeout=PATIENCE_SECONDS)
    assert "worker ended unexpectedly (signal 9)" in shown


def test_a_program_that_keeps_dying_stops_all_and_shows_its_last_lines(tmp_path: Path) -> None:
    up = start(tmp_path, "print('no database'); sys.exit(3)")
    shown, _ = up.communicate(timeout=PATIENCE_SECONDS)
    assert up.returncode == 1
    assert "too many ends" in shown
    assert "    no database" in shown
    assert "exit code 3" in shown


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_nothing_is_orphaned_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    up = start(tmp_path, "time.sleep(600)")
    until(lambda: pids(tmp_path / "pids"), "the program starts")
    up.kill()
    up.communicate(timeout=PATIENCE_SECONDS)
    until(lambda: not any(alive(pid) for pid in pids(tmp_path / "pids")), "the program ends")


def test_a_program_that_ignores_the_signal_is_killed_in_the_end(tmp_path: Path) -> None:
    up = start(
        tmp_path,
        "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
    )
    output = up.stdout
    assert output is not None
    until(lambda: "deaf" in output.readline(), "the program is deaf")
    up.terminate()
    shown, _ = up.communicate(timeout=PATIENCE_SECONDS)
    assert "worker is killed" in shown
    assert not alive(pids(tmp_path / "pids")[0])


def test_two_that_start_at_once_choose_two_ports() -> None:
    """Both looked before either of them listened, and the web process of one ended four times."""
    first, claim = free_port("127.0.0.1", FROM_PORT)
    with claim:
        second, other = free_port("127.0.0.1", FROM_PORT)
        other.close()
    third, again = free_port("127.0.0.1", FROM_PORT)
    again.close()
    assert first < second
    assert third == first
