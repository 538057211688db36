"""Pure: the system calls that sandboxed code may not make, as a classic BPF program. No libseccomp needed."""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

# BPF instruction codes: load a word, jump if equal / greater or equal / any bit set, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in struct seccomp_data; arguments are 64 bits, little endian: their low word is what counts.
_NUMBER, _ARCHITECTURE, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into a terminal
_X32_BIT = 0x40000000
SHARED_SEGMENT_BYTES_MAX = 65_536

# These answer ENOSYS, not EPERM: glibc then falls back to clone, whose flags can be looked at, and
# libraries fall back from io_uring, which would go round the rule about sockets.
# Memory that is no process's own (memfd) would be counted by nobody.
_ABSENT = {
    "memfd_secret": 447,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,
}
_REFUSED_EVERYWHERE = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    clone: int
    socket: int
    socketpair: int
    ioctl: int
    memfd_create: int
    shmget: int
    own: tuple[int, int]  # prlimit64, sched_setaffinity: their first argument names a process, 0 the caller
    setpriority: int
    refused: dict[str, int]


_X86_64 = _Machine(
    architecture=0xC000003E, clone=56, socket=41, socketpair=53, ioctl=16, memfd_create=319, shmget=29,
    own=(302, 203), setpriority=141,
    refused={
        "ptrace": 101, "syslog": 103, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "_sysctl": 156,
        "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
        "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
        "ioperm": 173, "create_module": 174, "init_module": 175, "delete_module": 176, "quotactl": 179,
        "nfsservctl": 180, "lookup_dcookie": 212, "clock_settime": 227, "mbind": 237, "set_mempolicy": 238,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256,
        "unshare": 272, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300,
        "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
        "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "uselib": 134,
    },
)  # fmt: skip
_AARCH64 = _Machine(
    architecture=0xC00000B7, clone=220, socket=198, socketpair=199, ioctl=29, memfd_create=279, shmget=194,
    own=(261, 122), setpriority=140,
    refused={
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
        "vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105,
        "delete_module": 106, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161,
        "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218,
        "keyctl": 219, "swapon": 224, "swapoff": 225, "mbind": 235, "set_mempolicy": 237,
        "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
        "userfaultfd": 282, "kexec_file_load": 294,
    },
)  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "amd64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}


def filter_program(*, sockets: bool, machine: str = "") -> bytes | None:
    """The program for this machine, or None where there is no table for it.

    `sockets` allows AF_UNIX and AF_INET, which a network namespace of its own makes harmless.
    Without one (tier C) no socket is made at all. AF_VSOCK, which no namespace covers, is never allowed.
    """
    known = _MACHINES.get((machine or platform.machine()).lower())
    return b"".join(_program(known, sockets=sockets)) if known is not None else None


def _program(machine: _Machine, *, sockets: bool) -> list[bytes]:
    out = [
        _op(_LOAD, 0, 0, _ARCHITECTURE),
        _op(_EQUAL, 1, 0, machine.architecture),
        _op(_RETURN, 0, 0, _KILL_PROCESS),  # another architecture's numbers mean other calls
        _op(_LOAD, 0, 0, _NUMBER),
    ]
    if machine is _X86_64:
        out += [_op(_AT_LEAST, 0, 1, _X32_BIT), _op(_RETURN, 0, 0, _KILL_PROCESS)]
    for number in (*_ABSENT.values(), machine.memfd_create):
        out += [_op(_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    for number in (machine.refused | _REFUSED_EVERYWHERE).values():
        out += [_op(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    out += _when(
        machine.clone,
        [_op(_LOAD, 0, 0, _ARG0), _op(_ANY_BIT, 0, 1, _NEW_NAMESPACES), _refuse(errno.EPERM), _allow()],
    )
    # A segment of shared memory stays when nobody is attached to it: only small ones, as databases begin with.
    out += _when(
        machine.shmget,
        [
            _op(_LOAD, 0, 0, _ARG1 + 4),
            _op(_EQUAL, 0, 2, 0),
            _op(_LOAD, 0, 0, _ARG1),
            _op(_AT_LEAST, 0, 1, SHARED_SEGMENT_BYTES_MAX + 1),
            _refuse(errno.EPERM),
            _allow(),
        ],
    )
    if not sockets:
        out += _own_process_only(machine)
    out += _when(machine.socket, _socket_rules() if sockets else [_refuse(errno.EAFNOSUPPORT)])
    out += _when(
        machine.socketpair,
        [_op(_LOAD, 0, 0, _ARG0), _op(_EQUAL, 0, 1, _AF_UNIX), _allow(), _refuse(errno.EAFNOSUPPORT)],
    )
    out += _when(
        machine.ioctl,
        [
            _op(_LOAD, 0, 0, _ARG1),
            _op(_EQUAL, 1, 0, _TIOCSTI),
            _op(_EQUAL, 0, 1, _TIOCLINUX),
            _refuse(errno.EPERM),
            _allow(),
        ],
    )
    return [*out, _allow()]


def _own_process_only(machine: _Machine) -> list[bytes]:
    """Without a process namespace (tier C) the worker, where it is of the same user, could be starved or slowed."""
    out = []
    for number in machine.own:
        out += _when(number, [_op(_LOAD, 0, 0, _ARG0), _op(_EQUAL, 0, 1, 0), _allow(), _refuse(errno.EPERM)])
    both_zero = [
        _op(_LOAD, 0, 0, _ARG0), _op(_EQUAL, 0, 3, 0),  # PRIO_PROCESS
        _op(_LOAD, 0, 0, _ARG1), _op(_EQUAL, 0, 1, 0), _allow(),
        _refuse(errno.EPERM),
    ]  # fmt: skip
    return out + _when(machine.setpriority, both_zero)


def _socket_rules() -> list[bytes]:
    rules = [_op(_LOAD, 0, 0, _ARG0)]
    for family in (_AF_UNIX, _AF_INET, _AF_INET6):
        rules += [_op(_EQUAL, 0, 1, family), _allow()]
    # Of netlink only NETLINK_ROUTE, which getaddrinfo asks.
    rules += [_op(_EQUAL, 0, 3, _AF_NETLINK), _op(_LOAD, 0, 0, _ARG2), _op(_EQUAL, 0, 1, 0), _allow()]
    return [*rules, _refuse(errno.EAFNOSUPPORT)]


def _when(number: int, body: list[bytes]) -> list[bytes]:
    """`body` for one system call; it ends in a return."""
    return [_op(_EQUAL, 0, len(body), number), *body]


def _allow() -> bytes:
    return _op(_RETURN, 0, 0, _ALLOW)


def _refuse(code: int) -> bytes:
    return _op(_RETURN, 0, 0, _ERRNO | code)


def _op(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
