"""The wall: one command of an untrusted repository, confined and bounded; its whole tree dies with it."""

from __future__ import annotations

import functools
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agents.errors import NoSandbox
from agents.tier import SandboxTier
from agents.workspace.bubblewrap import MEMORY_PLACES, Box
from agents.workspace.launcher import NOT_STARTED
from agents.workspace.limits import (
    BEAT_SECONDS,
    DISK_FREE_BYTES_MIN,
    DRAIN_SECONDS_MAX,
    FIRST_POLL_SECONDS,
    POLL_SECONDS,
    Limits,
)
from agents.workspace.output import Spool
from agents.workspace.processes import (
    files_in_memory,
    memory_left,
    space_left,
    space_taken,
    tree_of,
    unlinked_bytes,
)
from agents.workspace.starting import Started, sandbox_owner, start_in_bubblewrap, start_with_launcher

PROBE_SECONDS_MAX = 10.0
REASON_CHARACTERS_MAX = 120
_SIGXCPU_CODE = 128 + 24


@dataclass(frozen=True, slots=True)
class Probe:
    """The tier of this host, and why the better ones are not there."""

    tier: SandboxTier
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """`exit_code` is None when a limit ended the command; `reason` says which.

    exit, timeout, cpu, memory, disk, output_limit; prepared: answered without running anything.
    """

    text: str  # head and tail, at most `output_characters_max` characters
    exit_code: int | None
    reason: str
    whole: bytes  # for the object store: all of it up to a bound, nothing cleaned
    seconds: float
    bytes: int
    peak_memory_bytes: int

    @property
    def passed(self) -> bool:
        return self.exit_code == 0


def probe() -> SandboxTier:
    """The best tier that really works here, tried once per process."""
    return probe_in_full().tier


@functools.cache
def probe_in_full() -> Probe:
    reasons = []
    with tempfile.TemporaryDirectory(prefix="remit-probe-") as place:
        Path(place).chmod(0o755)  # tier C reaches it by its path
        directory = Path(place) / "tree"
        directory.mkdir()
        give(directory)
        box = Box(directory=directory)
        limits = Limits(seconds_max=PROBE_SECONDS_MAX)
        for tier in (SandboxTier.A, SandboxTier.B, SandboxTier.C):
            try:
                started = _start(tier, box, ["true"], limits)
                output = _watch(started, box, limits=limits, beat=None)
            except (NoSandbox, OSError) as error:
                reasons.append(f"{tier}: {error}")
                continue
            if output.passed:
                return Probe(tier, tuple(reasons))
            reasons.append(f"{tier}: {output.text.strip()[:REASON_CHARACTERS_MAX] or output.reason}")
    return Probe(SandboxTier.D, tuple(reasons))


def run(
    box: Box,
    argv: Sequence[str],
    *,
    limits: Limits | None = None,
    beat: Callable[[], None] | None = None,
    trusted: bool = False,
    tier: SandboxTier | None = None,
) -> CommandOutput:
    """Runs `argv` to its end or to a limit. Everything it started is gone when this returns or raises.

    `beat` is called every few seconds; when it raises (`StopRun`), the tree is killed first. Raises
    `NoSandbox` on a host without one, unless the project is `trusted`: then it runs bare, with limits.
    Start and wait happen in the calling thread: the kernel ties the sandbox's life to it.
    """
    limits = limits or Limits()
    tier = tier or probe()
    if tier is SandboxTier.D:
        if not trusted:
            raise NoSandbox("this host has no sandbox for commands; files and git still work")
        started = start_with_launcher(box, argv, limits=limits, confine=False)
    else:
        started = _start(tier, box, argv, limits)
    return _watch(started, box, limits=limits, beat=beat)


def give(directory: Path) -> None:
    """Makes an empty directory the sandbox's own, where the worker is another user."""
    owner = sandbox_owner()
    if owner is not None:
        os.chown(directory, *owner)


def _start(tier: SandboxTier, box: Box, argv: Sequence[str], limits: Limits) -> Started:
    if tier is SandboxTier.C:
        return start_with_launcher(box, argv, limits=limits, confine=True)
    return start_in_bubblewrap(box, argv, limits=limits, own_proc=tier is SandboxTier.A)


def _watch(started: Started, box: Box, *, limits: Limits, beat: Callable[[], None] | None) -> CommandOutput:
    spool = Spool(
        characters_max=limits.output_characters_max - REASON_CHARACTERS_MAX,
        whole_bytes_max=limits.whole_output_bytes_max,
    )
    watch = _Watch(started, box, limits, beat, spool)
    try:
        watch.until_the_end()
        return watch.output()
    finally:
        watch.end_everything()
        started.cleanup.close()


class _Watch:
    """One running command: its output, its clocks, and the one way to end it."""

    def __init__(
        self, started: Started, box: Box, limits: Limits, beat: Callable[[], None] | None, spool: Spool
    ) -> None:
        self._started, self._box, self._limits, self._beat, self._spool = started, box, limits, beat, spool
        self._process = started.process
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._begun = time.monotonic()
        self._deadline = self._begun + limits.seconds_max
        self._next_poll = self._begun + FIRST_POLL_SECONDS
        self._next_beat = self._begun + BEAT_SECONDS
        self._space_at_start = space_left(box.directory)
        self._memory_at_start = memory_left()
        self._open = True
        self._reason = "exit"
        self._killed_at: float | None = None
        self._ended_at: float | None = None
        self._peak = 0

    def until_the_end(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while not self._over():
                self._look()
                if not self._open:
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(0.02)
                elif selector.select(self._patience()):
                    self._take()
                    if not self._open:
                        selector.unregister(self._pipe)

    def output(self) -> CommandOutput:
        code = self._process.wait(DRAIN_SECONDS_MAX)
        if self._reason == "exit":
            self._must_have_run(code)
            if code == _SIGXCPU_CODE:
                self._reason = "cpu"
        ours = self._reason not in ("exit", "cpu")
        text = self._spool.text()
        if self._reason != "exit":
            text += f"\n[{self._words()}]"
        assert len(text) <= self._limits.output_characters_max
        return CommandOutput(
            text=text,
            exit_code=None if ours else code,
            reason=self._reason,
            whole=self._spool.whole(),
            seconds=time.monotonic() - self._begun,
            bytes=self._spool.total,
            peak_memory_bytes=self._peak,
        )

    def end_everything(self) -> None:
        """Whatever happened: nothing of the command lives on."""
        if self._process.poll() is None:
            self._kill("cancelled")
            # The pipe is closed by the last process of the tree; until then it is not gone.
            until = time.monotonic() + DRAIN_SECONDS_MAX
            while self._open and time.monotonic() < until:
                self._take()
                time.sleep(0.005)
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(DRAIN_SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _over(self) -> bool:
        now = time.monotonic()
        if self._process.poll() is None:
            if self._killed_at is not None and now - self._killed_at > DRAIN_SECONDS_MAX:
                self._process.kill()
            return False
        self._ended_at = self._ended_at or now
        return not self._open or now - self._ended_at > DRAIN_SECONDS_MAX

    def _patience(self) -> float:
        now = time.monotonic()
        # Once the main process is gone, only the pipe's end is awaited.
        until = min(self._next_poll, self._next_beat, max(self._deadline, now + POLL_SECONDS))
        return max(0.0, min(until - now, POLL_SECONDS))

    def _look(self) -> None:
        now = time.monotonic()
        if self._killed_at is not None:
            return
        if now >= self._deadline:
            self._kill("timeout")
        elif now >= self._next_poll:
            self._next_poll = now + POLL_SECONDS
            self._measure()
        if self._beat is not None and now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._beat()

    def _measure(self) -> None:
        tree = tree_of(self._process.pid)
        self._peak = max(self._peak, tree.resident_bytes)
        if tree.resident_bytes > self._limits.memory_bytes_max or self._hides_memory(tree.processes):
            self._kill("memory")
        elif self._fills_the_disk(tree.processes):
            self._kill("disk")

    def _hides_memory(self, processes: Sequence[int]) -> bool:
        """What no process is charged for: names in file systems in memory, and buffers of the kernel."""
        if (
            not self._started.gentle
            and files_in_memory(processes, MEMORY_PLACES) > self._limits.memory_files_max
        ):
            return True
        left = memory_left()
        taken = self._memory_at_start - left
        return left < self._limits.memory_free_bytes_min and taken > self._limits.memory_bytes_max // 4

    def _fills_the_disk(self, processes: Sequence[int]) -> bool:
        """Others use this disk too: our own is counted before anybody is blamed."""
        left, directory, limits = space_left(self._box.directory), self._box.directory, self._limits
        taken = self._space_at_start.bytes - left.bytes
        if taken > limits.disk_bytes_max or self._space_at_start.files - left.files > limits.files_max:
            ours = space_taken(directory)
            if ours.files > limits.files_max:
                return True
            if ours.bytes + unlinked_bytes(processes, directory) > limits.disk_bytes_max:
                return True
        return left.bytes < DISK_FREE_BYTES_MIN and taken > 0

    def _take(self) -> None:
        try:
            piece = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self._open = False
            return
        self._spool.feed(piece)
        if self._spool.total > self._limits.output_bytes_max:
            self._kill("output_limit")

    def _kill(self, reason: str) -> None:
        if self._killed_at is not None:
            return
        self._reason, self._killed_at = reason, time.monotonic()
        if self._started.gentle:
            self._process.terminate()
        else:
            self._process.kill()  # its child, which is the namespace's first process, dies with it

    def _must_have_run(self, code: int) -> None:
        """Raises `NoSandbox` when the box could not be made: that is no result of the command."""
        if self._started.status is None:
            failed = code == NOT_STARTED and "could not be confined" in self._spool.text()
        else:
            status = b""
            with suppress(BlockingIOError):
                status = os.read(self._started.status, 1 << 16)
            failed = b'"exit-code"' not in status
        if failed:
            raise NoSandbox(f"the sandbox did not start: {self._spool.text().strip()[:500]}")

    def _words(self) -> str:
        limits = self._limits
        return {
            "timeout": f"stopped: not finished after {limits.seconds_max:g} seconds",
            "cpu": f"stopped: a process used {limits.cpu_seconds_max} seconds of processor time",
            "memory": f"stopped: more than {limits.memory_bytes_max:,} bytes of memory, or the machine has no more",
            "disk": f"stopped: more than {limits.disk_bytes_max:,} bytes, {limits.files_max:,} files or the whole disk",
            "output_limit": f"stopped: more than {limits.output_bytes_max:,} bytes of output",
        }[self._reason]
