"""Runs a few programs together: their lines prefixed, a dead one started again, all stopped as one."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, TextIO

PR_SET_PDEATHSIG = 1

STOP_SECONDS_MAX = 10  # then what still lives is killed
TICK_SECONDS = 0.2
READY_SECONDS_MAX = 120
RESTARTS_MAX = 5
RESTARTS_WINDOW_SECONDS = 60
TAIL_LINES = 30


@dataclass(frozen=True)
class Program:
    name: str
    argv: list[str]
    env: Mapping[str, str]


@dataclass
class _Running:
    program: Program
    process: subprocess.Popen[bytes]
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    rest: bytes = b""


class Supervisor:
    """One thread watches everything, so that a fork never meets a lock that another thread holds."""

    def __init__(self, programs: list[Program], *, out: TextIO) -> None:
        self._programs = programs
        self._out = out
        self._running: dict[str, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self._restarts: deque[float] = deque()
        self._asked_to_stop = False

    def run(self, *, ready: tuple[str, int], banner: str) -> int:
        """Until a signal (0), or until a program keeps dying (1). `banner` is shown once the port answers."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop_soon)
        for program in self._programs:
            self._start(program)
        started, shown = time.monotonic(), False
        while not self._asked_to_stop:
            self._pass_lines_on(TICK_SECONDS)
            if not shown and _answers(*ready):
                shown = True
                self._say(f"\n{banner}\nCtrl-C stops all of it.\n")
            if not shown and time.monotonic() - started > READY_SECONDS_MAX:
                self._say(f"the web process did not answer within {READY_SECONDS_MAX} seconds")
                return self._end(1)
            for dead in [one for one in self._running.values() if one.process.poll() is not None]:
                if not self._revive(dead):
                    return self._end(1)
        self._say("stopping ...")
        return self._end(0)

    def _stop_soon(self, *_: object) -> None:
        self._asked_to_stop = True

    def _start(self, program: Program) -> None:
        process = subprocess.Popen(
            program.argv,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **program.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509  # one thread only: see the class
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._running[program.name] = _Running(program, process)
        self._selector.register(process.stdout, selectors.EVENT_READ, program.name)

    def _revive(self, dead: _Running) -> bool:
        """Start it again, unless dying has become a habit; then show its last lines."""
        self._drain(dead)
        now = time.monotonic()
        self._restarts.append(now)
        while self._restarts and now - self._restarts[0] > RESTARTS_WINDOW_SECONDS:
            self._restarts.popleft()
        name = dead.program.name
        self._say(f"{name} ended unexpectedly ({_how(dead.process.returncode)})")
        if len(self._restarts) > RESTARTS_MAX:
            self._say(f"too many ends in {RESTARTS_WINDOW_SECONDS} seconds; its last lines were:")
            for line in dead.tail:
                self._say(f"    {line}")
            return False
        self._say(f"{name} is started again")
        self._start(dead.program)
        return True

    def _end(self, code: int) -> int:
        for one in self._running.values():
            if one.process.poll() is None:
                one.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while time.monotonic() < deadline and any(
            one.process.poll() is None for one in self._running.values()
        ):
            self._pass_lines_on(0.05)
        for one in self._running.values():
            if one.process.poll() is None:
                self._say(f"{one.program.name} is killed: it did not end within {STOP_SECONDS_MAX} seconds")
                one.process.kill()
            one.process.wait()
            self._drain(one)
        return code

    def _pass_lines_on(self, seconds: float) -> None:
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        for key, _ in self._selector.select(seconds):
            self._read(self._running[key.data], key.fileobj)  # type: ignore[arg-type]  # we registered files

    def _read(self, one: _Running, pipe: IO[bytes]) -> None:
        chunk = pipe.read(65536)
        if chunk is None:
            return
        if not chunk:
            self._selector.unregister(pipe)
            pipe.close()
            return
        *lines, one.rest = (one.rest + chunk).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip()
            one.tail.append(text)
            self._say(f"{one.program.name:<6} | {text}")

    def _drain(self, one: _Running) -> None:
        """What a dead program still had to say. A grandchild may keep the pipe open: never wait for it."""
        pipe = one.process.stdout
        if pipe is not None and not pipe.closed and pipe in self._selector.get_map():
            self._read(one, pipe)
            if not pipe.closed:
                self._selector.unregister(pipe)
                pipe.close()

    def _say(self, text: str) -> None:
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except OSError:
            # The terminal is gone: nobody reads, but the programs still have to be stopped in order.
            self._asked_to_stop = True


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send us `number` when our parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def _answers(host: str, port: int) -> bool:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # asked, not bound
    try:
        with socket.create_connection((reachable, port), timeout=0.2):
            return True
    except OSError:
        return False


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
