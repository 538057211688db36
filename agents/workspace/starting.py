"""Starts one confined process: as which user, with which files handed over, by which of the two ways."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from agents.errors import NoSandbox
from agents.workspace.bubblewrap import ETC_FILES, HOME, Box, bubblewrap_argv, environment_of, sources_of
from agents.workspace.limits import CPU_GRACE_SECONDS, Limits
from agents.workspace.seccomp import filter_program
from agents.workspace.toolchain import Toolchain, toolchain

# Nobody's uid: what sandboxed code is outside its namespace when the worker is root. As root itself it
# would be root for file permissions, and no limit on processes would bind it.
SANDBOX_UID = 64_242
OOM_SCORE = "1000"
_STAGES = Path("/tmp")  # noqa: S108  # every user reaches it
_STAGE_PREFIX = "remit-stage-"
_STAGE_SECONDS_MAX = 3_600
_LAUNCHER = Path(__file__).with_name("launcher.py")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/tty")
_READABLE_ETC = (
    "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/localtime",
    "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/mime.types",
)  # fmt: skip

# Runs as root in a mount namespace of its own: makes paths that only root reaches mountable by the
# user that bubblewrap runs as, then becomes that user.
_STAGE_SCRIPT = """
set -e
stage=$1 uid=$2; shift 2
mount -t tmpfs -o mode=755,size=1m remit "$stage"
number=0
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir "$stage/$number"; else : > "$stage/$number"; fi
  mount --bind -- "$1" "$stage/$number"
  number=$((number + 1)); shift
done
shift
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all -- "$@"
"""
# Instead of Popen's own `user`: that one forks the whole worker, where a vfork takes a tenth of the time.
_DROP = (
    "setpriv", "--reuid", str(SANDBOX_UID), "--regid", str(SANDBOX_UID), "--clear-groups", "--inh-caps=-all", "--",
)  # fmt: skip


@dataclass(slots=True)
class Started:
    """`status` tells whether the command itself ran; None where the exit code alone tells."""

    process: subprocess.Popen[bytes]
    status: int | None
    gentle: bool  # ends its own descendants on SIGTERM
    cleanup: ExitStack


def sandbox_owner() -> tuple[int, int] | None:
    """Whom files of a sandbox belong to: None where the worker is that user itself."""
    return (SANDBOX_UID, SANDBOX_UID) if os.geteuid() == 0 else None


def start_in_bubblewrap(box: Box, argv: Sequence[str], *, limits: Limits, own_proc: bool) -> Started:
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox("bubblewrap is not installed")
    tools = toolchain()
    cleanup = ExitStack()
    with ExitStack() as stack:
        staged, before = _stage(sources_of(box, tools), cleanup)
        etc_fds = {path: _memory_file(text.encode(), stack) for path, text in ETC_FILES.items()}
        rules = filter_program(sockets=True)
        filter_fd = _memory_file(rules, stack) if rules is not None else None
        reader, writer = os.pipe()
        stack.callback(os.close, writer)
        line = bubblewrap_argv(
            box, argv, program=program, tools=tools, limits=limits, filter_fd=filter_fd, etc_fds=etc_fds,
            own_proc=own_proc, disable_userns=own_proc and "--disable-userns" in _options(program), staged=staged,
        )  # fmt: skip
        line[1:1] = ["--json-status-fd", str(writer)]
        fds = [*etc_fds.values(), writer, *([filter_fd] if filter_fd is not None else [])]
        cleanup.callback(os.close, reader)
        os.set_blocking(reader, False)
        try:
            process = _popen([*before, *_first_to_go(), *line], fds=fds)
        except BaseException:
            cleanup.close()
            raise
    return Started(process, reader, gentle=False, cleanup=cleanup)


def start_with_launcher(box: Box, argv: Sequence[str], *, limits: Limits, confine: bool) -> Started:
    """Tier C; or, without `confine`, bare with limits for a trusted project."""
    tools = toolchain()
    if sandbox_owner() is not None and not _reachable(box.directory):
        raise NoSandbox(f"only root reaches {box.directory}; run the worker as a plain user")
    cleanup = ExitStack()
    private = Path(
        cleanup.enter_context(tempfile.TemporaryDirectory(prefix="private-", dir=box.directory.parent))
    )
    owner = sandbox_owner()
    for name in ("home", "tmp"):
        (private / name).mkdir()
    if owner is not None:
        for place in (private, private / "home", private / "tmp"):
            os.chown(place, *owner)
    where = {box.place: box.directory, HOME: private / "home", "/tmp": private / "tmp"}  # noqa: S108
    where |= {mount.target: mount.source for mount in box.mounts}
    environment = {name: _outside(value, where) for name, value in environment_of(box, tools).items()}
    rules = filter_program(sockets=False)
    if confine and rules is None:
        raise NoSandbox("no system call filter for this processor")
    order = {
        "parent": os.getpid(),
        "argv": _runnable(argv, environment, tools),
        "environment": environment,
        "directory": str(box.directory),
        "confine": confine,
        "filter": (rules or b"").hex(),
        "uid": owner[0] if owner is not None else None,
        "read": [*map(str, tools.trees), "/proc", *_READABLE_ETC, *(str(m.source) for m in box.mounts)]
        + [path for path, _ in tools.links],
        "write": [str(box.directory), str(private)],
        "devices": list(_DEVICES),
        "limits": _rlimits(limits),
    }
    process = _popen([sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(order)], fds=[])
    return Started(process, None, gentle=True, cleanup=cleanup)


@functools.cache
def _first_to_go() -> tuple[str, ...]:
    """Should the machine run out of memory, a sandbox is what the kernel ends, and not the worker."""
    program = shutil.which("choom")
    return (program, "--adjust", OOM_SCORE, "--") if program is not None else ()


def _popen(line: Sequence[str], *, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(line),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=tuple(fds),
        env={"PATH": os.environ.get("PATH", os.defpath)},
        cwd="/",
    )


def _stage(sources: Sequence[Path], cleanup: ExitStack) -> tuple[Mapping[Path, str], list[str]]:
    """Where each source can be mounted from, and what has to run before bubblewrap for that."""
    if sandbox_owner() is None:
        return {}, []
    hidden = list(dict.fromkeys(source for source in sources if not _reachable(source)))
    if not hidden:
        return {}, list(_DROP)
    stage = Path(tempfile.mkdtemp(prefix=_STAGE_PREFIX, dir=_STAGES))
    stage.chmod(0o755)
    # Mounted upon only inside the child's namespace; here it is an empty directory.
    cleanup.callback(_remove, stage)
    before = ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", _STAGE_SCRIPT, "sh"]
    before += [str(stage), str(SANDBOX_UID), *map(str, hidden), "--"]
    return {source: str(stage / str(number)) for number, source in enumerate(hidden)}, before


def forget_stages() -> None:
    """Removes the empty directories of workers that were killed."""
    for stage in _STAGES.glob(f"{_STAGE_PREFIX}*"):
        with suppress(OSError):
            if stage.stat().st_mtime < time.time() - _STAGE_SECONDS_MAX:
                stage.rmdir()


def _remove(stage: Path) -> None:
    with suppress(OSError):
        stage.rmdir()


def _reachable(path: Path) -> bool:
    """Whether any user can walk to it."""
    return all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents)


@functools.cache
def _options(program: str) -> str:
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=False, timeout=10).stdout


def _memory_file(data: bytes, stack: ExitStack) -> int:
    fd = os.memfd_create("remit")
    stack.callback(os.close, fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _outside(value: str, where: Mapping[str, Path]) -> str:
    """A variable's value with the sandbox's places as this host's paths."""
    parts = []
    for part in value.split(":"):
        target = next((t for t in where if part == t or part.startswith(t + "/")), None)
        parts.append(f"{where[target]}{part.removeprefix(target)}" if target is not None else part)
    return ":".join(parts)


def _runnable(argv: Sequence[str], environment: Mapping[str, str], tools: Toolchain) -> list[str]:
    """A script whose first line names a path of the sandbox is run by the host's own Python."""
    found = shutil.which(argv[0], path=environment["PATH"])
    if found is not None:
        with suppress(OSError), Path(found).open("rb") as file:
            first = file.readline(200)
            if first.startswith(b"#!/deps/") and b"python" in first:
                return [str(tools.python), found, *argv[1:]]
    return list(argv)


def _rlimits(limits: Limits) -> dict[str, tuple[int, int]]:
    cpu = limits.cpu_seconds_max
    return {
        "RLIMIT_NPROC": (limits.processes_max, limits.processes_max),
        "RLIMIT_NOFILE": (limits.open_files_max, limits.open_files_max),
        "RLIMIT_FSIZE": (limits.file_bytes_max, limits.file_bytes_max),
        "RLIMIT_DATA": (limits.memory_bytes_max, limits.memory_bytes_max),
        "RLIMIT_CPU": (cpu, cpu + CPU_GRACE_SECONDS),
        "RLIMIT_CORE": (0, 0),
    }
