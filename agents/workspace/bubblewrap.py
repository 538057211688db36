"""Pure: the command line of bubblewrap for one box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.workspace.limits import CPU_GRACE_SECONDS, HOME_BYTES_MAX, Limits
from agents.workspace.toolchain import Toolchain

WORKSPACE = "/workspace"
HOME = "/home/agent"
SANDBOX_UID_INSIDE = 1000
LOCALE = "C.UTF-8"
MEMORY_PLACES = ("/tmp", "/dev/shm", HOME)  # noqa: S108  # inside the sandbox

# A skeleton, never the host's own /etc: nothing of it may be a secret.
ETC_FILES: Mapping[str, str] = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "/etc/group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/resolv.conf": "",
    "/etc/gitconfig": "[safe]\n\tdirectory = *\n[core]\n\ttrustctime = false\n",
}
_ETC_TREES = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf")
_NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts")


@dataclass(frozen=True, slots=True)
class Mount:
    """A read-only view of a host path."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What one command sees. `directory` is its only writable place on disk, mounted at `place`."""

    directory: Path
    place: str = WORKSPACE
    mounts: tuple[Mount, ...] = ()
    path: tuple[str, ...] = ()  # searched before the host's programs
    environment: Mapping[str, str] = field(default_factory=dict)
    network: bool = False  # only for the step that prepares dependencies


def environment_of(box: Box, tools: Toolchain) -> dict[str, str]:
    """Exactly these variables, and nothing of the worker's own."""
    return {
        "PATH": ":".join((*box.path, *tools.path)),
        "HOME": HOME,
        "TMPDIR": "/tmp",  # noqa: S108  # inside the sandbox: a file system of its own
        "LANG": LOCALE,
        "LC_ALL": LOCALE,
        "TZ": "UTC",
        "TERM": "dumb",
        "CI": "1",
        "NO_COLOR": "1",
        "USER": "agent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "GIT_TERMINAL_PROMPT": "0",
        **box.environment,
    }


def sources_of(box: Box, tools: Toolchain) -> tuple[Path, ...]:
    """Every host path that must be reachable by the user who starts bubblewrap."""
    return (box.directory, *(mount.source for mount in box.mounts), *tools.trees)


def bubblewrap_argv(
    box: Box,
    argv: Sequence[str],
    *,
    program: str,
    tools: Toolchain,
    limits: Limits,
    filter_fd: int | None,
    etc_fds: Mapping[str, int],
    own_proc: bool,
    disable_userns: bool,
    staged: Mapping[Path, str],
) -> list[str]:
    """The whole command line. `staged` says where a source really lies for the user who mounts it."""

    def at(source: Path) -> str:
        return staged.get(source, str(source))

    # --unshare-all alone goes on without a user namespace where there is none; the second flag insists.
    line = [program, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    line += ["--share-net"] if box.network else []
    line += ["--disable-userns"] if disable_userns else []
    line += ["--uid", str(SANDBOX_UID_INSIDE), "--gid", str(SANDBOX_UID_INSIDE), "--hostname", "sandbox"]
    line += ["--cap-drop", "ALL", "--clearenv"]
    for name, value in environment_of(box, tools).items():
        line += ["--setenv", name, value]
    for tree in tools.trees:
        line += ["--ro-bind", at(tree), str(tree)]
    for path, target in tools.links:
        line += ["--symlink", target, path]
    line += ["--dir", "/etc"]
    for path, fd in etc_fds.items():
        if not (box.network and path in _NETWORK_FILES):
            line += ["--perms", "0644", "--file", str(fd), path]
    for path in (*_ETC_TREES, *(_NETWORK_FILES if box.network else ())):
        line += ["--ro-bind-try", path, path]
    line += ["--proc", "/proc"] if own_proc else ["--ro-bind", "/proc", "/proc"]
    if own_proc:
        # They tell the host's own arguments and key names.
        line += ["--ro-bind", "/dev/null", "/proc/cmdline", "--ro-bind", "/dev/null", "/proc/keys"]
    # bubblewrap's own tmpfs would take half of the memory each, the root included.
    line += ["--dev", "/dev", "--size", str(HOME_BYTES_MAX), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    line += ["--perms", "1777", "--size", str(limits.tmp_bytes_max), "--tmpfs", "/tmp"]  # noqa: S108
    line += ["--size", str(HOME_BYTES_MAX), "--tmpfs", HOME]
    line += ["--bind", at(box.directory), box.place]
    for mount in box.mounts:
        line += ["--ro-bind", at(mount.source), mount.target]
    line += ["--remount-ro", "/", "--chdir", box.place]
    line += ["--seccomp", str(filter_fd)] if filter_fd is not None else []
    return [*line, "--", *_limited(argv, limits)]


def _limited(argv: Sequence[str], limits: Limits) -> list[str]:
    """Set inside: the number of processes is then counted for this sandbox alone."""
    cpu = f"{limits.cpu_seconds_max}:{limits.cpu_seconds_max + CPU_GRACE_SECONDS}"
    return [
        "prlimit", f"--nproc={limits.processes_max}", f"--nofile={limits.open_files_max}",
        f"--fsize={limits.file_bytes_max}", f"--data={limits.memory_bytes_max}", f"--cpu={cpu}",
        "--core=0", "--memlock=65536", "--msgqueue=0", "--", *argv,
    ]  # fmt: skip
