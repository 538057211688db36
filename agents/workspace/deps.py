"""Prepared dependencies: installed once per lock file in a networked step of its own, then mounted read-only."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from agents.errors import NoSandbox
from agents.tier import SandboxTier
from agents.workspace.bubblewrap import WORKSPACE, Box, Mount
from agents.workspace.git import Store
from agents.workspace.limits import MEBIBYTE, Limits
from agents.workspace.lockfiles import LOCK_BYTES_MAX, NODE, PYTHON, Wanted, is_lock_name, wanted_of
from agents.workspace.sandbox import CommandOutput, give, probe, run
from agents.workspace.toolchain import toolchain
from agents.workspace.worktree import remove_tree

PREPARE_SECONDS_MAX = 900
PREPARE_OUTPUT_CHARACTERS_MAX = 12_000
PREPARE_DISK_BYTES_MAX = 8_192 * MEBIBYTE
PREPARE_TMP_BYTES_MAX = 2_048 * MEBIBYTE
PREPARE_FILE_BYTES_MAX = 2_048 * MEBIBYTE
DEPS = "/deps"  # a Python environment is built where it is later seen: its scripts name their interpreter
NODE_MODULES = "/node_modules"  # the parent of /workspace: require, import and npm's own PATH find it
# The project itself, as an installation in place would make it: importable from /workspace, last on the
# path so that no file of it stands for one of the library, and with its metadata.
PROJECT = "the-project"
_LOCKS = "/locks"
_PIP = "/opt/pip"
_CERTIFICATES = "/opt/certificates.pem"
# Whom this host trusts; a setting may name another file.
_TRUSTED = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
REGISTRY_SECONDS_MAX = 60  # for one answer
WAIT_SECONDS = 0.5  # between two looks at a step that another worker builds


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyState:
    """One language's dependencies at one lock file. `state` is ready, failed or missing."""

    kind: str
    state: str
    names: str  # of the files that decide
    key: str
    text: str = ""  # the end of what the step wrote, when it failed


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a sandbox gets of the prepared steps."""

    states: tuple[DependencyState, ...] = ()

    @property
    def ready(self) -> tuple[DependencyState, ...]:
        return tuple(each for each in self.states if each.state == "ready")

    @property
    def mounts(self) -> tuple[Mount, ...]:
        out = []
        for each in self.ready:
            place = deps_directory() / each.key
            out.append(
                Mount(place, DEPS) if each.kind == PYTHON else Mount(place / "node_modules", NODE_MODULES)
            )
        return tuple(out)

    @property
    def path(self) -> tuple[str, ...]:
        where = {PYTHON: f"{DEPS}/bin", NODE: f"{NODE_MODULES}/.bin"}
        return tuple(where[each.kind] for each in self.ready)

    @property
    def environment(self) -> Mapping[str, str]:
        """Offline, and with every cache where it is thrown away."""
        return {
            "PIP_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "UV_NO_SYNC": "1",
            "RUFF_NO_CACHE": "true",
            "MYPY_CACHE_DIR": "/tmp/mypy",  # noqa: S108  # inside the sandbox
            "UV_CACHE_DIR": "/tmp/uv",  # noqa: S108
            "npm_config_cache": "/tmp/npm",  # noqa: S108
            "npm_config_offline": "true",
            "GOCACHE": "/tmp/go",  # noqa: S108
            # No -mod here: Go itself takes a vendor folder where there is one, and changes go.mod never.
            "GOPROXY": "off",
            "GOTOOLCHAIN": "local",
            "CARGO_TARGET_DIR": "/tmp/cargo",  # noqa: S108
            "CARGO_NET_OFFLINE": "true",
            **({"VIRTUAL_ENV": DEPS} if any(each.kind == PYTHON for each in self.ready) else {}),
        }

    def answer(self, kind: str, now: Prepared) -> tuple[str, int]:
        """What an agent is told that asked to install; `now` is what its own lock files ask for."""
        mine = next((each for each in now.states if each.kind == kind), None)
        if mine is None:
            return f"nothing to install: no lock file for {kind} at the top of the repository", 0
        if mine.state == "ready":
            return f"already installed from {mine.names}; dependencies are prepared once and read-only", 0
        if mine.state == "failed":
            return f"preparing {mine.names} failed:\n{mine.text}", 1
        then = next((each for each in self.states if each.kind == kind), None)
        if then is not None and then.key != mine.key:
            return (
                f"{mine.names} changed in this workspace; Remit installs what it names after the change is "
                "promoted. Until then only what was locked before is here.",
                1,
            )
        return f"the dependencies in {mine.names} are not prepared yet; an owner prepares them", 1


def deps_directory() -> Path:
    place: Path = settings.PLANE.data_dir / "deps"
    return place


def prepared_at(store: Store, commit: str) -> Prepared:
    """What is prepared for the lock files of a commit. Builds nothing."""
    return prepared_for(lock_files_at(store, commit))


def prepared_for(files: Mapping[str, bytes]) -> Prepared:
    return Prepared(tuple(_state_of(wanted) for wanted in wanted_of(files, salt=_salt())))


def mark_used(prepared: Prepared) -> None:
    """Remembers that a sandbox mounted these, so that nobody removes them soon."""
    for each in prepared.ready:
        (deps_directory() / f"{each.key}.used").touch()


def used_at(place: Path) -> float:
    """When prepared dependencies were last mounted, or made. Seconds since the epoch."""
    with suppress(FileNotFoundError):
        return place.with_name(f"{place.name}.used").stat().st_mtime
    return place.stat().st_mtime


def lock_files_at(store: Store, commit: str) -> dict[str, bytes]:
    """The dependency files at the top of a commit."""
    names = [
        file.path
        for file in store.top_files(commit)
        if is_lock_name(file.path) and file.mode.startswith("100") and file.size <= LOCK_BYTES_MAX
    ]
    contents = store.blobs([(commit, name) for name in names]) if names else []
    return {name: data for name, data in zip(names, contents, strict=True) if data is not None}


def prepare(store: Store, commit: str, *, beat: Callable[[], None] | None = None) -> Prepared:
    """Builds what the lock files of a commit ask for and is not there yet. Needs the network.

    A step that failed is tried again. Raises `NoSandbox` where there are no namespaces: an installer
    of foreign packages never runs bare.
    """
    for wanted in wanted_of(lock_files_at(store, commit), salt=_salt()):
        if _state_of(wanted).state != "ready":
            _build(wanted, beat)
    return prepared_at(store, commit)


def _build(wanted: Wanted, beat: Callable[[], None] | None) -> None:
    if probe() not in (SandboxTier.A, SandboxTier.B):
        raise NoSandbox("dependencies are prepared in a sandbox with namespaces, which this host has not")
    root = deps_directory()
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root / f"{wanted.key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for(lock, beat)  # another worker may be at it: then its result is ours
        if (root / wanted.key).is_dir():
            return
        place, locks = root / f"{wanted.key}.building", root / f"{wanted.key}.locks"
        for leftover in (place, locks):
            remove_tree(leftover)
        place.mkdir()
        locks.mkdir()
        place.chmod(0o755)
        locks.chmod(0o755)
        output = _install(wanted, place, locks, beat)
        facts = {"kind": wanted.kind, "files": wanted.names, "seconds": round(output.seconds, 1)}
        if output.passed:
            place.rename(root / wanted.key)
            (root / f"{wanted.key}.used").touch()
            _note(wanted, {**facts, "state": "ready"})
        else:
            text = without_secrets(output.text[-PREPARE_OUTPUT_CHARACTERS_MAX:])
            _note(wanted, {**facts, "state": "failed", "reason": output.reason, "text": text})
            remove_tree(place)
        remove_tree(locks)
    finally:
        os.close(lock)


def _wait_for(lock: int, beat: Callable[[], None] | None) -> None:
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if beat is not None:
            beat()
        time.sleep(WAIT_SECONDS)


def _install(wanted: Wanted, place: Path, locks: Path, beat: Callable[[], None] | None) -> CommandOutput:
    for name, data in wanted.files:
        (locks / name).write_bytes(data)
        (locks / name).chmod(0o644)
    if wanted.constraints:
        (locks / "constraints.lock").write_text("\n".join(wanted.constraints) + "\n")
    if wanted.kind == PYTHON:
        mine = locks / PROJECT
        mine.mkdir()
        (mine / "remit_project.pth").write_text(f"{WORKSPACE}/src\n{WORKSPACE}\n")
        for name, text in wanted.metadata:
            (mine / name).parent.mkdir(exist_ok=True)
            (mine / name).write_text(text)
    if wanted.kind == NODE:
        for name, data in wanted.files:
            (place / name).write_bytes(data)
    give(place)
    mounts = [Mount(locks, _LOCKS)]
    pip = importlib.util.find_spec("pip")
    if wanted.kind == PYTHON and pip is not None and pip.origin:
        mounts.append(Mount(Path(pip.origin).parent, f"{_PIP}/pip"))
    trusted = _trusted()
    if trusted is not None:
        mounts.append(Mount(trusted, _CERTIFICATES))
    environment = registries(trusts=trusted is not None)
    box = Box(directory=place, place=DEPS, mounts=tuple(mounts), network=True, environment=environment)
    limits = Limits(
        seconds_max=PREPARE_SECONDS_MAX,
        cpu_seconds_max=PREPARE_SECONDS_MAX,
        disk_bytes_max=PREPARE_DISK_BYTES_MAX,
        tmp_bytes_max=PREPARE_TMP_BYTES_MAX,
        file_bytes_max=PREPARE_FILE_BYTES_MAX,
        output_characters_max=PREPARE_OUTPUT_CHARACTERS_MAX,
    )
    script = _python_script(wanted) if wanted.kind == PYTHON else _node_script(wanted)
    return run(box, ["sh", "-euc", script, "sh", *wanted.requirements], limits=limits, beat=beat)


def _python_script(wanted: Wanted) -> str:
    """`--only-binary`: no set-up script of a package runs. pip is the worker's own, read-only."""
    pip = f"PYTHONPATH={_PIP} PYTHONNOUSERSITE=1 {DEPS}/bin/python3 -m pip"
    constraints = f" -c {_LOCKS}/constraints.lock" if wanted.constraints else ""
    install = (
        f"{pip} install --quiet --no-input --disable-pip-version-check --no-cache-dir --only-binary :all:"
    )
    # With one hash in it, pip wants hashes for all that a command installs: such lists go first, alone.
    hashed = {name for name, data in wanted.files if b"--hash=" in data}
    first = "".join(f" -r {_LOCKS}/{name}" for name in wanted.requirement_files if name in hashed)
    rest = "".join(f" -r {_LOCKS}/{name}" for name in wanted.requirement_files if name not in hashed)
    # A package may pull in a released copy of the project itself (pytest wants Pygments): its tests would
    # then prove the release. In place, as here, the project's own files are the ones that count.
    without = f"{pip} uninstall --quiet --yes {wanted.project}\n" if wanted.project else ""
    return (
        f"{toolchain().python} -m venv --without-pip {DEPS}\n"
        f"cd {_LOCKS}\n"  # relative names inside requirement files
        + (f"{install}{first}\n" if first else "")
        + f'{install}{constraints}{rest} "$@"\n'
        f"{without}"
        f"cp -r {_LOCKS}/{PROJECT}/. {DEPS}/lib/python3*/site-packages/\n"
    )


def _node_script(wanted: Wanted) -> str:
    """No life-cycle script of a package runs."""
    commands = {
        "npm": "npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier",
        "bun": "bun install --frozen-lockfile --ignore-scripts",
        "pnpm": "pnpm install --frozen-lockfile --ignore-scripts",
        "yarn": "yarn install --frozen-lockfile --ignore-scripts",
    }
    return f"cd {DEPS}\n{commands[wanted.installer]}\nmkdir -p node_modules\n"


def registries(*, trusts: bool) -> dict[str, str]:
    """How the step reaches registries: what the settings name, and nothing of the worker's own environment.

    Only this step gets it, and no code of a repository runs in it: an address may hold a password.
    """
    plane = settings.PLANE
    found = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DEFAULT_TIMEOUT": str(REGISTRY_SECONDS_MAX),
        "NPM_CONFIG_USERCONFIG": "/tmp/no-user-npmrc",  # noqa: S108  # npm takes no file twice, not even /dev/null
        "NPM_CONFIG_GLOBALCONFIG": "/tmp/no-global-npmrc",  # noqa: S108
        "npm_config_cache": "/tmp/npm",  # noqa: S108  # inside the sandbox
        "BUN_INSTALL_CACHE_DIR": "/tmp/bun",  # noqa: S108
        "PYTHONDONTWRITEBYTECODE": "",
    }
    if plane.python_index:
        found["PIP_INDEX_URL"] = plane.python_index
    if plane.node_registry:
        found["NPM_CONFIG_REGISTRY"] = plane.node_registry
    if plane.dependencies_proxy:
        found |= dict.fromkeys(
            ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), plane.dependencies_proxy
        )
    if trusts:
        found |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), _CERTIFICATES)
    return found


def without_secrets(said: str) -> str:
    """What an installer wrote, without the passwords of the addresses that it was given: people read it, and agents."""
    plane = settings.PLANE
    for address in (plane.python_index, plane.node_registry, plane.dependencies_proxy):
        parts = urlsplit(address)
        if "@" in parts.netloc:
            for secret in (parts.netloc.rpartition("@")[0], parts.password or ""):
                said = said.replace(secret, "***") if secret else said
    return said


def _trusted() -> Path | None:
    named = settings.PLANE.dependencies_certificates
    candidates = [named] if named is not None else _TRUSTED
    return next((path for path in candidates if path.is_file()), None)


def _salt() -> str:
    """What a built environment is bound to besides its lock file."""
    return f"{toolchain().python} {platform.machine()} {platform.libc_ver()[0]} {sys.platform}"


def _state_of(wanted: Wanted) -> DependencyState:
    root = deps_directory()
    if (root / wanted.key).is_dir():
        return DependencyState(kind=wanted.kind, state="ready", names=wanted.names, key=wanted.key)
    noted: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        noted = json.loads((root / f"{wanted.key}.json").read_text())
    state = "failed" if noted.get("state") == "failed" else "missing"
    text = str(noted.get("text", ""))
    return DependencyState(kind=wanted.kind, state=state, names=wanted.names, key=wanted.key, text=text)


def _note(wanted: Wanted, facts: Mapping[str, Any]) -> None:
    place = deps_directory() / f"{wanted.key}.json"
    place.with_suffix(".new").write_text(json.dumps(facts))
    place.with_suffix(".new").replace(place)
