"""Runs one command where there are no namespaces: Landlock, seccomp, limits, and nothing left behind.

A program of its own (`python3 -I -S launcher.py '<json>'`), standard library only. It stays as the
command's parent: daemonised grandchildren come back to it, and it kills every descendant when the
command ends or when the worker dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from typing import Any, NoReturn

NOT_STARTED = 126  # the exit code when the command could not be confined
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_SECCOMP = {"x86_64": 317, "aarch64": 277}
# Before version 3 a file outside could still be truncated.
LANDLOCK_VERSION_MIN = 3
_EXECUTE, _WRITE, _READ, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_KILL_ROUNDS_MAX = 200

_libc = ctypes.CDLL(None, use_errno=True)


def main(order: dict[str, Any]) -> NoReturn:
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != order["parent"]:  # the worker died before the line above
        os._exit(NOT_STARTED)
    child = os.fork()
    if child == 0:
        _become(order)
    while True:
        with contextlib.suppress(InterruptedError):
            ended, status = os.waitpid(-1, 0)
            if ended == child:
                break
    _kill_all()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _become(order: dict[str, Any]) -> NoReturn:
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123
            score.write("1000")  # before the worker, should memory run out
        rules = _landlock_rules(order["read"], order["write"], order["devices"]) if order["confine"] else -1
        os.chdir(order["directory"])
        _limit(order["limits"])
        if order["uid"] is not None:
            os.setgroups([])
            os.setgid(order["uid"])
            os.setuid(order["uid"])
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # changing user cleared it
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if order["confine"]:
            _call(_LANDLOCK_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
            os.close(rules)
            _seccomp(bytes.fromhex(order["filter"]))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    except OSError as error:
        _say(f"the command could not be confined: {error}")
        os._exit(NOT_STARTED)
    try:
        os.execvpe(order["argv"][0], order["argv"], order["environment"])  # noqa: S606  # no shell: that is the point
    except OSError as error:
        _say(f"{order['argv'][0]}: {error.strerror}")
        os._exit(127)


def landlock_version() -> int:
    """0 where the kernel has none."""
    try:
        return _call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def _landlock_rules(read: list[str], write: list[str], devices: list[str]) -> int:
    version = landlock_version()
    if version < LANDLOCK_VERSION_MIN:
        raise OSError(f"Landlock version {version} is too old")
    all_access = (1 << 15) - 1 | (_IOCTL if version >= 5 else 0)
    network = 3 if version >= 4 else 0  # bind and connect over TCP
    scoped = 3 if version >= 6 else 0  # abstract sockets and signals
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("QQQ", all_access, network, scoped)[:size]
    rules = _call(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    for path in read:
        directory = _READ_DIRECTORY if os.path.isdir(path) else 0  # noqa: PTH112  # no pathlib: it is slow to import
        _allow(rules, path, _EXECUTE | _READ | directory)
    for path in write:
        _allow(rules, path, all_access & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL))
    for path in devices:
        _allow(rules, path, _EXECUTE | _WRITE | _READ | _TRUNCATE)
    return rules


def _allow(rules: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    rule = struct.pack("<Qi", access, fd)
    _call(_LANDLOCK_ADD, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    os.close(fd)


def _seccomp(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    _call(_SECCOMP[os.uname().machine], ctypes.c_uint(1), ctypes.c_uint(0), described)


def _limit(limits: dict[str, list[int]]) -> None:
    for name, (soft, hard) in limits.items():
        which = getattr(resource, name)
        if name == "RLIMIT_NPROC":  # counts every process of the user, not only ours
            others = _processes_of(os.getuid())
            soft, hard = soft + others, hard + others  # noqa: PLW2901
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)  # noqa: PLW2901
        resource.setrlimit(which, (soft, hard))


def _processes_of(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                count += os.stat(f"/proc/{name}").st_uid == uid  # noqa: PTH116
    return count


def _end(*_: object) -> None:
    _kill_all()
    os._exit(128 + signal.SIGTERM)


def _kill_all() -> None:
    for _ in range(_KILL_ROUNDS_MAX):
        found = _descendants(os.getpid())
        for kind in (signal.SIGSTOP, signal.SIGKILL):  # stop first, so that a fork bomb cannot outrun us
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, kind)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not found:
            return
        time.sleep(0.005)


def _descendants(top: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            status = file.read()
            children.setdefault(int(status[status.rindex(b")") + 2 :].split()[1]), []).append(int(name))
    found, left = [], [top]
    while left:
        for child in children.get(left.pop(), []):
            found.append(child)
            left.append(child)
    return found


def _call(number: int, *arguments: Any) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"system call {number}")
    return result


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
