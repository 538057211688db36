"""The wall. Each case is one attempt to get out, to see what is not there, or to take too much."""

# ruff: noqa: E501  # tables of attacks

from __future__ import annotations

import functools
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.errors import NoSandbox, StopRun
from agents.tier import SandboxTier
from agents.workspace.bubblewrap import Box, Mount
from agents.workspace.launcher import LANDLOCK_VERSION_MIN, landlock_version
from agents.workspace.limits import MEBIBYTE, Limits
from agents.workspace.output import Spool, clean
from agents.workspace.sandbox import give, probe, probe_in_full, run
from agents.workspace.seccomp import filter_program
from agents.workspace.starting import sandbox_owner
from routing.words import EndReason

A, B, C, D = SandboxTier
pytestmark = pytest.mark.bwrap
SECRET = "the-secret-of-the-host"
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="system call numbers of x86-64")


@pytest.fixture(autouse=True)
def only_what_this_host_can(request: pytest.FixtureRequest) -> None:
    """Better tiers than the probed one do not work here; without namespaces only tier C's own cases run."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    wanted = parameters.get("tier", A)
    if wanted is C and landlock_version() < LANDLOCK_VERSION_MIN:
        pytest.skip("this kernel has no Landlock that is new enough")
    if wanted in (A, B) and "place" in request.fixturenames and wanted < probe():
        pytest.skip(f"this host has only tier {probe()}: {'; '.join(probe_in_full().reasons)}")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that any user can walk to, as a deployment has it."""
    with tempfile.TemporaryDirectory(prefix="remit-box-") as name:
        top = Path(name)
        top.chmod(0o755)
        tree = top / "tree"
        tree.mkdir()
        give(tree)
        yield tree


@pytest.fixture(scope="module")
def host() -> Iterator[dict[str, str]]:
    """What lies outside: a secret file, a TCP server, an abstract socket, a process of the same user."""
    owner = sandbox_owner()
    with tempfile.TemporaryDirectory(prefix="remit-host-") as name, socket.socket() as tcp:
        Path(name).chmod(0o755)
        secret = Path(name) / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o666)
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(f"{name}/socket")
        Path(f"{name}/socket").chmod(0o777)
        unix.listen()
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0remit-{os.getpid()}")
        abstract.listen()
        victim = subprocess.Popen(
            ["sleep", "600"],
            env={"SECRET": SECRET, "PATH": os.environ["PATH"]},
            user=owner[0] if owner else None,
        )
        yield {
            "secret": str(secret),
            "port": str(tcp.getsockname()[1]),
            "socket": f"{name}/socket",
            "abstract": f"remit-{os.getpid()}",
            "victim": str(victim.pid),
            "worker": str(os.getpid()),
        }
        assert victim.poll() is None, "somebody ended a process outside"
        assert secret.read_text() == SECRET, "somebody wrote a file outside"
        victim.kill()
        victim.wait()
        unix.close()
        abstract.close()


PRELUDE = """
import ctypes, fcntl, glob, os, resource, signal, socket, stat
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
def read(path):
    text = open(path, 'rb').read(100_000).decode('latin-1')
    if SECRET not in text: raise OSError(f'{path} holds no secret')
    return text
def write(path, text='owned'):
    with open(path, 'w') as file: file.write(text)
def target(number):
    try: return os.readlink(f'/proc/self/fd/{number}')
    except OSError: return 'pipe'
def no(): raise OSError('not there')
def safe(path):
    try: return open(path, 'rb').read()
    except OSError: return b''
"""
# Each attack in a process of its own: some of them end it.
TAIL = """
for name, attack in ATTACKS.items():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(5)
        try:
            os.write(writer, f'ESCAPED {attack()!r}'[:500].encode())
        except (OSError, ValueError, OverflowError, MemoryError, RuntimeError, StopIteration) as error:
            os.write(writer, f'held: {type(error).__name__} {error}'.encode())
        os._exit(0)
    os.close(writer)
    said = b''
    while piece := os.read(reader, 1000): said += piece
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status): said = b'held: the process was ended by signal %d' % os.WTERMSIG(status)
    print(name, said.decode(), sep='\\t', flush=True)
"""
# name: Python expression or function body (ends in `return`); HOST is the dictionary above.
FILES = {
    "read the host's secret by its path": "return read(HOST['secret'])",
    "write the host's file": "return write(HOST['secret'])",
    "read /etc/shadow": "return open('/etc/shadow').read()",
    "read root's home": "return os.listdir('/root')",
    "list other homes": "return [n for n in os.listdir('/home') if n != 'agent'][0:1][0] if len(os.listdir('/home')) > 1 else no()",
    "list /var": "return os.listdir('/var')",
    "follow a link that leads out": "os.symlink(HOST['secret'], 'link'); return read('link')",
    "hard-link a file from outside": "os.link(HOST['secret'], 'hard'); return read('hard')",
    "climb with ..": "return read('../' * 20 + HOST['secret'].lstrip('/'))",
    "go through /proc/1/root": "return read('/proc/1/root' + HOST['secret'])",
    "go through /proc/<worker>/root": "return read(f'/proc/{HOST[\"worker\"]}/root' + HOST['secret'])",
    "go through /proc/<worker>/cwd": "return os.listdir(f'/proc/{HOST[\"worker\"]}/cwd')",
    "read the environment of every process": "return read(next(p for p in glob.glob('/proc/[0-9]*/environ') if SECRET.encode() in safe(p)))",
    "read the memory of the worker": "return open(f'/proc/{HOST[\"worker\"]}/mem', 'rb').read(1)",
    "read the open files of the worker": "return os.listdir(f'/proc/{HOST[\"worker\"]}/fd')",
    "use a descriptor that was left open": "return [read(f'/proc/self/fd/{n}') for n in range(3, 64) if 'pipe' not in target(n)] or no()",
    "write a system directory": "return write('/usr/bin/owned')",
    "write /etc/passwd": "return write('/etc/passwd')",
    "write the root": "return write('/owned')",
    "write a device directory": "return write('/dev/owned')",
    "open a disk": "return open(next(iter(glob.glob('/dev/[svn][dv]*') or ['/dev/sda'])), 'rb').read(1)",
    "open the kernel's memory": "return open('/dev/mem', 'rb').read(1)",
    "open kmsg": "return open('/dev/kmsg', 'rb').read(1)",
    "make a device": "os.mknod('disk', stat.S_IFBLK | 0o666, os.makedev(8, 0)); return open('disk', 'rb').read(1)",
    "set the core pattern": "return write('/proc/sys/kernel/core_pattern', '|/workspace/x')",
    "set another sysctl": "return write('/proc/sys/kernel/hostname', 'owned')",
    "press sysrq": "return write('/proc/sysrq-trigger', 'h')",
    "write a cgroup": "return write('/sys/fs/cgroup/cgroup.procs', '0')",
    "overwrite the launcher through /proc": "return open('/proc/1/exe', 'r+b').write(b'x')",
    "be spared by the OOM killer": "return write('/proc/self/oom_score_adj', '-1000')",
    "keep a set-uid file": "write('s'); os.chmod('s', 0o4755); os.chown('s', 0, 0); return 'root-owned'",
    "be root": "os.setuid(0); return os.getuid()",
    "open a file by its handle": "return call(304, -100, ctypes.create_string_buffer(24), 0)",
    "read the kernel's core": "return open('/proc/kcore', 'rb').read(1)",
    "learn the kernel's addresses": "return next(l for l in open('/proc/kallsyms') if not l.startswith('0000000000000000'))",
    "preload a library everywhere": "return write('/etc/ld.so.preload', '/workspace/x.so')",
    "read the firmware": "return os.listdir('/sys/firmware')",
    "read the kernel's debug files": "return os.listdir('/sys/kernel/debug')",
    "open the virtual machine device": "return os.open('/dev/kvm', os.O_RDWR)",
    "open the file system device": "return os.open('/dev/fuse', os.O_RDWR)",
    "open a loop device": "return os.open('/dev/loop-control', os.O_RDWR)",
    "change the limits of the worker": "return resource.prlimit(int(HOST['worker']), resource.RLIMIT_NOFILE, (1, 1))",
    "slow the worker down": "os.setpriority(os.PRIO_PROCESS, int(HOST['worker']), 19); return os.getpriority(os.PRIO_PROCESS, int(HOST['worker']))",
    "pin the worker": "os.sched_setaffinity(int(HOST['worker']), [0]); return 'pinned'",
    "see the host's sockets": "return next(l for l in open('/proc/net/unix') if 'remit-' in l)",
    "see the host's ports": "return next(l for l in open('/proc/net/tcp') if ':%04X ' % int(HOST['port']) in l)",
    "become another group": "os.setgid(0); return os.getgid()",
    "join more groups": "os.setgroups([0, 4, 6]); return os.getgroups()",
    "run a set-uid program": "import subprocess; said = subprocess.run(['su', '-c', 'id -u'], stdin=subprocess.DEVNULL, capture_output=True, timeout=4).stdout; return said if said.strip() == b'0' else no()",
    "leave by a descriptor of the old root": "d = os.open('/', os.O_RDONLY); os.chroot('/tmp'); os.fchdir(d); return os.listdir('.')",
    "reach the container's socket": "return os.stat('/var/run/docker.sock')",
}
KERNEL = {
    "unshare a user namespace": "return call(272, 0x10000000)",
    "unshare a mount namespace": "return call(272, 0x00020000)",
    "clone into a user namespace": "return call(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": "return call(435, ctypes.create_string_buffer(88), ctypes.c_size_t(88))",
    "join a namespace": "return call(308, os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
    "mount proc": "return call(165, b'proc', b'/workspace', b'proc', 0, 0)",
    "mount a tmpfs": "return call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
    "remount the root writable": "return call(165, b'none', b'/', None, 32 | 4096, 0)",
    "unmount": "return call(166, b'/workspace', 2)",
    "the new mount interface": "return call(430, b'tmpfs', 0)",
    "open a tree of mounts": "return call(428, -100, b'/', 1)",
    "chroot": "return call(161, b'/')",
    "pivot the root": "return call(155, b'/', b'/')",
    "trace another process": "return call(101, 16, int(HOST['victim']), 0, 0)",
    "trace the parent": "return call(101, 16, os.getppid(), 0, 0)",
    "read another process's memory": "return call(310, int(HOST['victim']), 0, 0, 0, 0, 0)",
    "steal a descriptor": "return call(438, 3, 0, 0)",
    "io_uring": "return call(425, 8, ctypes.create_string_buffer(120))",
    "load eBPF": "return call(321, 0, ctypes.create_string_buffer(120), 72)",
    "watch the processor": "return call(298, ctypes.create_string_buffer(120), 0, -1, -1, 0)",
    "userfaultfd": "return call(323, 0)",
    "the kernel's keys": "return call(250, 0, -3, 0)",
    "load a module": "return call(175, b'x', 1, b'')",
    "replace the kernel": "return call(246, 0, 0, 0, 0)",
    "reboot": "return call(169, 0xfee1dead, 672274793, 0, 0)",
    "set the clock": "return call(227, 0, ctypes.create_string_buffer(16))",
    "set the host name": "return call(170, b'owned', 5)",
    "swap": "return call(168, b'/dev/zero')",
    "watch files": "return call(300, 0, 0)",
    "32-bit numbers": "return call(0x40000000 + 39)",
    "move pages": "return call(279, 0, 0, 0, 0, 0, 0)",
    "quota": "return call(179, 0, 0, 0, 0)",
    "the kernel's log": "return call(103, 3, ctypes.create_string_buffer(100), 100)",
    "type into the terminal": "return fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')",
    "run in real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)); return 'FIFO'",
    "raise its limits": "resource.setrlimit(resource.RLIMIT_NPROC, (10**5, 10**5)); return resource.getrlimit(resource.RLIMIT_NPROC)",
    "have a capability": "status = open('/proc/self/status').read(); return 'CapEff' if 'CapEff:\\t0000000000000000' not in status else no()",
    "gain privileges later": "return 'no_new_privs off' if 'NoNewPrivs:\\t0' in open('/proc/self/status').read() else no()",
    "signal by a descriptor": "return call(424, call(434, int(HOST['victim']), 0), 9, 0, 0)",
    "write another process's memory": "return call(311, int(HOST['victim']), 0, 0, 0, 0, 0)",
    "advise another process's memory": "return call(440, call(434, int(HOST['worker']), 0), 0, 0, 0, 0)",
    "compare with the worker": "return call(312, os.getpid(), int(HOST['worker']), 0, 0, 0)",
    "seize another process": "return call(101, 0x4206, int(HOST['victim']), 0, 0)",
    "open ports of the machine": "return call(172, 3)",
    "one port of the machine": "return call(173, 0x70, 1, 1)",
    "replace the kernel from a file": "return call(320, -1, -1, 0, 0, 0)",
    "load a module from a file": "return call(313, -1, b'', 0)",
    "unload a module": "return call(176, b'x', 0)",
    "account for processes": "return call(163, b'/workspace/acct')",
    "set the time of day": "return call(164, ctypes.create_string_buffer(16), 0)",
    "adjust the clock": "b = ctypes.create_string_buffer(208); b[0] = 1; return call(159, b)",
    "set the domain's name": "return call(171, b'owned', 5)",
    "hang up the terminal": "return call(153)",
    "add a key": "return call(248, b'user', b'x', b'y', 1, -3)",
    "ask for a key": "return call(249, b'user', b'x', 0, -3)",
    "change a mount": "return call(442, -100, b'/', 0, ctypes.create_string_buffer(32), 32)",
    "move a mount": "return call(429, -100, b'/tmp', -100, b'/workspace', 0)",
    "name a file by its handle": "return call(303, -100, b'/', ctypes.create_string_buffer(8), ctypes.create_string_buffer(4), 0)",
    "memory that only it sees": "return call(447, 0)",
    "a file in memory": "return call(319, b'x', 0)",
    "bind memory to a node": "return call(237, 0, 0, 0, 0, 0, 0)",
    "migrate pages of the worker": "return call(256, int(HOST['worker']), 0, 0, 0)",
    "x32 numbers": "return call(0x40000000 + 101, 16, int(HOST['victim']), 0, 0)",
    "quota by a descriptor": "return call(443, 0, 0, 0, 0)",
    "kill a process outside": "os.kill(int(HOST['victim']), 9); return 'sent'",
    "kill the worker": "os.kill(int(HOST['worker']), 9); return 'sent'",
}
NETWORK = {
    "connect to a service on the host": "return socket.create_connection(('127.0.0.1', int(HOST['port'])), 1)",
    "connect over IPv6": "return socket.create_connection(('::1', int(HOST['port'])), 1)",
    "ask the cloud for credentials": "return socket.create_connection(('169.254.169.254', 80), 1)",
    "connect to the world": "return socket.create_connection(('192.0.2.1', 443), 1)",
    "resolve a name": "return socket.getaddrinfo('example.org', 443)",
    "send a datagram": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 53)); return s.send(b'x')",
    "a socket file of the host": "s = socket.socket(socket.AF_UNIX); s.connect(HOST['socket']); return 'connected'",
    "an abstract socket of the host": "s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + HOST['abstract']); return 'connected'",
    "talk to the hypervisor": "return socket.socket(40, socket.SOCK_STREAM)",
    "tunnel": "return os.open('/dev/net/tun', os.O_RDWR)",
    "XDP": "return socket.socket(44, socket.SOCK_RAW)",
    "the CAN bus": "return socket.socket(29, socket.SOCK_RAW, 1)",
    "infiniband": "return socket.socket(21, socket.SOCK_SEQPACKET)",
    "the phone": "return socket.socket(35, socket.SOCK_DGRAM)",
    "netlink generic": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)",
    "broadcast": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); return s.sendto(b'x', ('255.255.255.255', 9))",
    "multicast": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); return s.sendto(b'x', ('224.0.0.1', 9))",
    "bring an interface up": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); return fcntl.ioctl(s, 0x8914, b'lo' + bytes(14) + bytes([0x43, 0x10]) + bytes(22))",
    "raw packets": "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "raw IP": "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "the kernel's ciphers": "return socket.socket(38, socket.SOCK_SEQPACKET)",
    "bluetooth": "return socket.socket(31, socket.SOCK_RAW, 1)",
    "netlink audit": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)",
    "netlink netfilter": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
}
ATTACKS = {**FILES, **KERNEL, **NETWORK}
# Without a network namespace the names are seen; no socket can be made to use them (docs/sandbox.md).
SEEN_ON_C = {"see the host's sockets", "see the host's ports"}


@functools.cache
def tried(tier: SandboxTier, facts: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Every attack, one after the other in one sandbox, and what each of them said."""
    source = f"SECRET = {SECRET!r}\nHOST = {dict(facts)!r}\nATTACKS = {{}}\n{PRELUDE}"
    for name, body in ATTACKS.items():
        source += f"def attack():\n{textwrap.indent(body.replace('; ', chr(10)), '    ')}\nATTACKS[{name!r}] = attack\n"
    with tempfile.TemporaryDirectory(prefix="remit-box-") as top:
        Path(top).chmod(0o755)
        tree = Path(top) / "tree"
        tree.mkdir()
        (tree / "attack.py").write_text(source + TAIL)
        give(tree)
        limits = Limits(output_characters_max=100_000, seconds_max=40)
        output = run(Box(directory=tree), ["python3", "attack.py"], tier=tier, limits=limits)
    said = dict(line.split("\t", 1) for line in output.text.splitlines() if "\t" in line)
    return {name: said.get(name, f"no answer: {output.text[-500:]}") for name in ATTACKS}


@needs_x86
@pytest.mark.parametrize("tier", [A, B, C])
@pytest.mark.parametrize("what", ATTACKS)
def test_an_attempt_to_get_out_is_held(
    place: Path, host: dict[str, str], what: str, tier: SandboxTier
) -> None:
    if tier is C and what.startswith("kill ") and landlock_version() < 6:
        pytest.skip("Landlock keeps signals in from version 6 on")
    said = tried(tier, tuple(host.items()))[what]
    sys.stdout.write(f"tier {tier}: {what}: {said}\n")  # shown by `pytest -rA`
    assert said.startswith("held: ") or (tier is C and what in SEEN_ON_C), said


def test_a_sandbox_has_exactly_its_own_environment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C29, C77."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("NODE_OPTIONS", "--require=/x")
    output = run(Box(directory=place, environment={"MINE": "1"}), ["env"])
    names = {line.partition("=")[0] for line in output.text.splitlines()}
    assert "MINE" in names
    assert not names & {"ANTHROPIC_API_KEY", "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "DATABASE_URL"}
    assert SECRET not in output.text


def test_loopback_inside_works_for_live_server_tests(place: Path) -> None:
    script = (
        "import socket, threading\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
        "threading.Thread(target=lambda: s.accept()[0].send(b'hi')).start()\n"
        "print(socket.create_connection(s.getsockname()).recv(2))\n"
    )
    assert "b'hi'" in run(Box(directory=place), ["python3", "-c", script]).text


@pytest.mark.parametrize("tier", [A, B, C])
def test_an_ordinary_program_just_works(place: Path, tier: SandboxTier) -> None:
    script = "echo out; echo err >&2; echo hi > file; cat file; python3 -c 'import json, subprocess; subprocess.run([\"true\"])'; exit 7"
    output = run(Box(directory=place), ["sh", "-c", script], tier=tier)
    assert (output.exit_code, output.text) == (7, "out\nerr\nhi\n")
    assert (place / "file").read_text() == "hi\n"


@pytest.mark.parametrize("tier", [A, B, C])
def test_a_program_that_is_not_there_is_127(place: Path, tier: SandboxTier) -> None:
    assert run(Box(directory=place), ["no-such-program"], tier=tier).exit_code == 127


@pytest.mark.parametrize("tier", [A, C])
def test_mounts_are_read_only(place: Path, tier: SandboxTier) -> None:
    extra = place.parent / "extra"
    extra.mkdir()
    (extra / "f").write_text("given\n")
    box = Box(
        directory=place, mounts=(Mount(extra, "/deps"),), path=("/deps/bin",), environment={"WHERE": "/deps"}
    )
    output = run(box, ["sh", "-c", 'cat "$WHERE/f"; echo x > "$WHERE/f"; touch "$WHERE/new"'], tier=tier)
    assert output.text.startswith("given\n")
    assert (extra / "f").read_text() == "given\n"
    assert not (extra / "new").exists()


def test_a_place_that_only_root_reaches_can_still_be_mounted(tmp_path: Path) -> None:
    """The worker is root, and the data directory is private: the sandbox's user gets the one tree."""
    hidden = tmp_path / "private"
    hidden.mkdir(mode=0o700)
    (hidden / "tree").mkdir()
    give(hidden / "tree")
    output = run(Box(directory=hidden / "tree"), ["sh", "-c", "echo 1 > f; ls /workspace"])
    assert output.text == "f\n"


def left(place: Path, mark: str) -> list[str]:
    """Processes that still carry a mark in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line and entry.name != str(os.getpid()):
                found.append(line.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def new_mark() -> str:
    """Seconds to sleep that stand in no other command line of this machine: five digits alone once did."""
    return f"{10_000 + secrets.randbelow(80_000)}.{secrets.randbelow(10**9):09d}"


def gone(mark: str, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not left(Path(), mark):
            return True
        time.sleep(0.02)
    return False


TREES = {
    "sleeps": "sleep {n}",
    "ignores TERM": "trap '' TERM INT HUP; sleep {n}; sleep {n}",
    "is a session of its own": "setsid sh -c 'sleep {n}' & wait",
    "forked twice": "(setsid sh -c 'sleep {n} & sleep {n}' &) ; sleep {n}",
    "closed its output": "exec >&- 2>&-; sleep {n}",
    "many of them": "for i in 1 2 3 4 5 6 7 8; do sleep {n} & done; wait",
    "stopped": "sh -c 'kill -STOP $$' & sleep {n}",
}


@pytest.mark.parametrize("tier", [A, C])
@pytest.mark.parametrize("what", TREES)
def test_the_whole_tree_dies_at_the_time_limit(place: Path, what: str, tier: SandboxTier) -> None:
    """Row 55."""
    mark = new_mark()
    output = run(
        Box(directory=place),
        ["sh", "-c", TREES[what].format(n=mark)],
        limits=Limits(seconds_max=0.5),
        tier=tier,
    )
    assert output.reason == "timeout"
    assert output.exit_code is None
    assert "not finished after 0.5 seconds" in output.text
    assert output.seconds < 6
    assert gone(mark), left(place, mark)


@pytest.mark.parametrize("tier", [A, C])
def test_a_child_in_the_background_does_not_hold_the_command(place: Path, tier: SandboxTier) -> None:
    mark = new_mark()
    output = run(Box(directory=place), ["sh", "-c", f"sleep {mark} & echo done"], tier=tier)
    assert output.exit_code == 0
    assert output.seconds < 5
    assert gone(mark)


@pytest.mark.parametrize("tier", [A, C])
def test_a_cancelled_run_kills_the_tree_and_then_raises(place: Path, tier: SandboxTier) -> None:
    mark = new_mark()

    def beat() -> None:
        raise StopRun(EndReason.CANCELLED)

    with pytest.raises(StopRun):
        run(Box(directory=place), ["sleep", mark], beat=beat, tier=tier)
    assert gone(mark)


@pytest.mark.parametrize("tier", [A, C])
def test_nothing_survives_the_worker(place: Path, tier: SandboxTier) -> None:
    """kill -9 of the worker while a sandbox runs: no process is left."""
    mark = new_mark()
    script = (
        "import sys; from pathlib import Path\n"
        "from agents.workspace.bubblewrap import Box\nfrom agents.workspace.sandbox import SandboxTier, run\n"
        f"run(Box(directory=Path({str(place)!r})), ['sh', '-c', 'setsid sleep {mark} & sleep {mark}'], tier=SandboxTier.{tier})\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": "."})
    until = time.monotonic() + 10
    while len([line for line in left(place, mark) if line.startswith("sleep")]) < 2:
        assert time.monotonic() < until, left(place, mark)
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert gone(mark), left(place, mark)


FLOODS: dict[str, tuple[str, Limits, set[str]]] = {
    "output without an end": ("yes", Limits(output_bytes_max=4 * MEBIBYTE, whole_output_bytes_max=MEBIBYTE), {"output_limit"}),
    "binary output": ("cat /dev/urandom", Limits(output_bytes_max=2 * MEBIBYTE, whole_output_bytes_max=MEBIBYTE), {"output_limit"}),
    "one line without an end": ("tr '\\0' x < /dev/zero", Limits(output_bytes_max=2 * MEBIBYTE, whole_output_bytes_max=MEBIBYTE), {"output_limit"}),
    "a fork bomb": ("python3 -c 'import os\nwhile True: os.fork()'", Limits(seconds_max=1, processes_max=50), {"exit", "timeout"}),
    "threads": ("python3 -c 'import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()'", Limits(seconds_max=1, processes_max=50), {"exit", "timeout"}),
    "one large allocation": ("python3 -c 'x = bytearray(600 << 20)'", Limits(memory_bytes_max=200 * MEBIBYTE), {"exit", "memory"}),
    "many allocations": ("for i in 1 2 3 4; do python3 -c 'import time; x = bytearray(90 << 20); time.sleep(20)' & done; wait", Limits(memory_bytes_max=200 * MEBIBYTE, seconds_max=15), {"memory"}),
    "processor time": ("python3 -c 'while True: pass'", Limits(cpu_seconds_max=1, seconds_max=10), {"cpu"}),
    "one large file": ("head -c 40000000 /dev/zero > big", Limits(file_bytes_max=MEBIBYTE), {"exit"}),
    "a sparse file": ("truncate -s 1T sparse", Limits(file_bytes_max=MEBIBYTE), {"exit"}),
    "many files": ("i=0; while :; do i=$((i+1)); head -c 900000 /dev/urandom > f$i; done", Limits(disk_bytes_max=40 * MEBIBYTE, seconds_max=20), {"disk"}),
    "files without a name": ("python3 -c '\nimport os, time\nfor i in range(9):\n f = open(str(i), \"wb\", 0); os.unlink(str(i)); [f.write(bytes(1 << 20)) for _ in range(20)]; globals()[\"f%d\" % i] = f\ntime.sleep(20)'", Limits(disk_bytes_max=60 * MEBIBYTE, seconds_max=15), {"disk"}),
    "empty files": ("python3 -c '\nimport os, time\nfor i in range(5000): open(str(i), \"w\")\ntime.sleep(20)'", Limits(files_max=2_000, seconds_max=15), {"disk"}),
    "empty files in memory": ("python3 -c '\nimport time\nfor i in range(5000): open(\"/tmp/%d\" % i, \"w\")\ntime.sleep(20)'", Limits(memory_files_max=2_000, seconds_max=15), {"memory"}),
    "files of memory": ("python3 -c '\nimport os\nfds = [os.memfd_create(\"x\") for _ in range(9)]'", Limits(), {"exit"}),
    "shared segments": ("python3 -c '\nimport ctypes, sys\nsys.exit(any(ctypes.CDLL(None).shmget(0, ctypes.c_size_t(n), 0o1600) < 0 for n in (1 << 17, 1 << 32)))'", Limits(), {"exit"}),
    "buffers of sockets": ("python3 -c '\nimport socket, time\npairs = [socket.socketpair() for _ in range(1500)]\nfor a, b in pairs:\n a.setblocking(False)\n try:\n  while True: a.send(bytes(65536))\n except BlockingIOError: pass\ntime.sleep(20)'", Limits(memory_bytes_max=200 * MEBIBYTE, memory_free_bytes_min=1 << 50, seconds_max=20), {"memory"}),
    "open files": ("python3 -c 'x = [open(\"/dev/null\") for _ in range(100_000)]'", Limits(), {"exit"}),
}  # fmt: skip


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_meets_its_limit(place: Path, what: str) -> None:
    script, limits, reasons = FLOODS[what]
    output = run(Box(directory=place), ["sh", "-c", script], limits=limits)
    assert output.reason in reasons, output
    assert not output.passed
    assert len(output.text) <= limits.output_characters_max
    assert len(output.whole) <= limits.whole_output_bytes_max + 200


@pytest.mark.parametrize("where", ["/tmp", "/dev/shm", "/home/agent"])
def test_memory_file_systems_are_small(place: Path, where: str) -> None:
    limits = Limits(tmp_bytes_max=64 * MEBIBYTE, file_bytes_max=512 * MEBIBYTE)
    output = run(
        Box(directory=place), ["sh", "-c", f"head -c 200000000 /dev/zero > {where}/big"], limits=limits
    )
    assert output.exit_code != 0
    assert "No space left" in output.text


def test_one_sandboxs_processes_do_not_count_for_another(place: Path) -> None:
    """The limit on processes is set inside: eight sandboxes of one user do not starve each other."""
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait; echo fine"
    for _ in range(3):
        assert (
            run(Box(directory=place), ["sh", "-c", script], limits=Limits(processes_max=16)).text == "fine\n"
        )


def test_no_sandbox_refuses_and_only_a_trusted_project_runs_bare(place: Path) -> None:
    """Never bare by default."""
    with pytest.raises(NoSandbox):
        run(Box(directory=place), ["true"], tier=D)
    bare = run(Box(directory=place), ["sh", "-c", "echo $HOME; pwd"], tier=D, trusted=True)
    assert bare.passed
    mark = new_mark()
    script = f"setsid sleep {mark} & sleep {mark}"
    limited = run(
        Box(directory=place), ["sh", "-c", script], tier=D, trusted=True, limits=Limits(seconds_max=0.5)
    )
    assert limited.reason == "timeout"
    assert gone(mark)


def test_a_trusted_project_still_gets_the_best_wall_there_is(place: Path) -> None:
    output = run(Box(directory=place), ["cat", "/proc/self/status"], trusted=True)
    assert "Seccomp:\t2" in output.text


def test_the_probe_says_what_is_there() -> None:
    assert probe() in (A, B, C)
    assert all(tier.words for tier in SandboxTier)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("sockets", [True, False])
def test_the_filter_is_a_whole_program(machine: str, sockets: bool) -> None:
    """Every jump lands inside, and it fits the kernel's limit."""
    program = filter_program(sockets=sockets, machine=machine)
    assert program is not None
    count = len(program) // 8
    assert len(program) % 8 == 0
    assert count < 4_096
    for index in range(count):
        code, if_true, if_false = program[index * 8], program[index * 8 + 2], program[index * 8 + 3]
        if code & 0x07 == 0x05:
            assert index + 1 + max(if_true, if_false) < count
    assert program[-8] == 0x06
    assert filter_program(sockets=True, machine="riscv64") is None


def test_output_keeps_head_and_tail_within_the_limit() -> None:
    """Row 55: 12,000 characters, with a note that says how much there was."""
    spool = Spool(characters_max=12_000, whole_bytes_max=50_000)
    for number in range(20_000):
        spool.feed(b"line %d\n" % number)
    text = spool.text()
    assert len(text) == 12_000
    assert text.startswith("line 0\n")
    assert text.endswith("line 19999\n")
    assert "bytes of output in all" in text
    assert spool.whole().startswith(b"line 0\n")
    assert b"cut here" in spool.whole()


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07text\n", "text\n"),
        (b"bell\x07 nul\x00\n", "bell nul\n"),
        (b"\xff\xfe\n", "\ufffd\ufffd\n"),
        ("é".encode()[:1], "\ufffd"),
        (b"tab\tstays\n", "tab\tstays\n"),
    ],
)
def test_shown_output_is_plain(raw: bytes, shown: str) -> None:
    """C91."""
    assert clean(raw) == shown


def test_cleaning_a_long_line_is_no_work_of_its_square() -> None:
    """Hours, if it were; the bound is far from both."""
    started = time.monotonic()
    clean(b"x" * 2_000_000)
    clean(b"\x1b[" * 500_000)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("tier", [A, B, C])
def test_a_sandbox_is_the_first_to_go_when_memory_runs_out(place: Path, tier: SandboxTier) -> None:
    """The kernel would otherwise choose among the worker, the database and the sandbox by size alone."""
    output = run(Box(directory=place), ["cat", "/proc/self/oom_score_adj"], tier=tier)
    assert output.text.strip() == "1000"
