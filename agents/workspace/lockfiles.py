"""Pure: which files say what a project depends on, and what has to be installed for them."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PYTHON, NODE = "python", "node"
LOCK_BYTES_MAX = 8 << 20
# What the demo of a fresh project needs beside its own list: a test runner.
ALWAYS_IN_PYTHON = ("pytest",)
_REQUIREMENTS = re.compile(r"requirements[A-Za-z0-9_.-]{0,40}\.txt")
_PYTHON_FILES = frozenset({"pyproject.toml", "uv.lock"})
_VENDORED = frozenset({"go.mod", "Cargo.lock"})  # of languages whose packages are vendored, not installed
_NODE_LOCKS = ("package-lock.json", "npm-shrinkwrap.json", "bun.lock", "pnpm-lock.yaml", "yarn.lock")
_TEST_GROUPS = frozenset({"test", "tests", "testing", "dev"})
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[A-Za-z0-9_,. -]*\])?\s*[^\n@]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,100}")
_VERSION = "4"  # of the way they are prepared: part of the key


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one language's step installs. `key` names the result; files and arguments are exact."""

    kind: str
    key: str
    files: tuple[tuple[str, bytes], ...]  # what the step may read, by name
    requirement_files: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    installer: str = ""  # npm, bun, pnpm, yarn
    metadata: tuple[tuple[str, str], ...] = ()  # of the project itself, as if it were installed in place
    project: str = ""  # its own name: a released copy that some package pulls in must not stand for it

    @property
    def names(self) -> str:
        return ", ".join(name for name, _ in self.files)


def is_lock_name(name: str) -> bool:
    """Whether a file at the top of the repository says anything about dependencies."""
    return (
        name in _PYTHON_FILES
        or name in _NODE_LOCKS
        or name == "package.json"
        or name in _VENDORED
        or _REQUIREMENTS.fullmatch(name) is not None
    )


def why_not_prepared(files: Mapping[str, bytes], tops: Container[str]) -> list[str]:
    """What a project asks for and no step installs, in plain words. `tops` are the names at its top.

    Go and Cargo have no step: what is vendored works offline, and nothing else does.
    """
    found = []
    if "package.json" in files and not any(name in files for name in _NODE_LOCKS):
        wanted = _json(files["package.json"])
        if wanted.get("dependencies") or wanted.get("devDependencies"):
            locks = ", ".join(_NODE_LOCKS)
            found.append(
                f"package.json names packages and has no lock file (one of {locks}): none is installed"
            )
    if re.search(rb"^require\b", files.get("go.mod", b""), re.MULTILINE) and "vendor" not in tops:
        found.append("go.mod requires modules that are not here: commit what `go mod vendor` writes")
    if b"registry+" in files.get("Cargo.lock", b"") and "vendor" not in tops:
        found.append(
            "Cargo.lock names crates that are not here: commit what `cargo vendor` writes, and the "
            ".cargo/config.toml that it prints"
        )
    return found


def wanted_of(files: Mapping[str, bytes], *, salt: str) -> tuple[Wanted, ...]:
    """The steps that these top-level files ask for. `salt` is what else decides: interpreter and system."""
    found = (_python(files, salt), _node(files, salt))
    return tuple(each for each in found if each is not None)


def _python(files: Mapping[str, bytes], salt: str) -> Wanted | None:
    lists = tuple(sorted(name for name in files if _REQUIREMENTS.fullmatch(name)))
    project = _toml(files.get("pyproject.toml", b""))
    requirements = _requirements_of(project)
    if not lists and not requirements:
        return None
    used = {name: files[name] for name in (*lists, *sorted(_PYTHON_FILES & files.keys()))}
    return Wanted(
        kind=PYTHON,
        key=_key(PYTHON, used, salt),
        files=tuple(used.items()),
        requirement_files=lists,
        requirements=(*requirements, *ALWAYS_IN_PYTHON),
        constraints=_constraints_of(_toml(files.get("uv.lock", b""))),
        metadata=_metadata_of(project),
        project=_name_of(project),
    )


def _node(files: Mapping[str, bytes], salt: str) -> Wanted | None:
    lock = next((name for name in _NODE_LOCKS if name in files), None)
    if lock is None or "package.json" not in files:
        return None
    used = {"package.json": files["package.json"], lock: files[lock]}
    installer = {"bun.lock": "bun", "pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn"}.get(lock, "npm")
    return Wanted(kind=NODE, key=_key(NODE, used, salt), files=tuple(used.items()), installer=installer)


def _key(kind: str, files: Mapping[str, bytes], salt: str) -> str:
    digest = hashlib.sha256(f"{_VERSION}\n{kind}\n{salt}\n".encode())
    for name, data in sorted(files.items()):
        digest.update(f"{name}\n{hashlib.sha256(data).hexdigest()}\n".encode())
    return digest.hexdigest()[:40]


def _requirements_of(project: Mapping[str, Any]) -> tuple[str, ...]:
    table = project.get("project")
    table = table if isinstance(table, dict) else {}
    found = [*_texts(table.get("dependencies"))]
    for groups in (table.get("optional-dependencies"), project.get("dependency-groups")):
        if isinstance(groups, dict):
            for name, group in groups.items():
                if name.lower() in _TEST_GROUPS:
                    found += _texts(group)
    # A direct reference (name @ url) is no locked package of a registry.
    return tuple(dict.fromkeys(each for each in found if _REQUIREMENT.fullmatch(each)))


def _metadata_of(project: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The files of a dist-info: tests ask for their own version, and plugins are found by entry points."""
    table = project.get("project")
    table = table if isinstance(table, dict) else {}
    name, version = _name_of(project), table.get("version", "0")
    if not name or not _NAME.fullmatch(str(version)):
        return ()
    groups = {"console_scripts": table.get("scripts"), **_tables(table.get("entry-points"))}
    lines = []
    for group, entries in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{key} = {value}" for key, value in _tables({group: entries}).get(group, {}).items()]
    if any("\n" in line or "\r" in line for line in lines):
        return ()
    place = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}.dist-info"
    return (
        (f"{place}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        (f"{place}/entry_points.txt", "\n".join(lines) + "\n"),
        (f"{place}/INSTALLER", "remit\n"),
    )


def _name_of(project: Mapping[str, Any]) -> str:
    table = project.get("project")
    name = table.get("name") if isinstance(table, dict) else None
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def _tables(value: object) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, dict):
        return {}
    return {str(key): each for key, each in value.items() if isinstance(each, dict)}


def _constraints_of(lock: Mapping[str, Any]) -> tuple[str, ...]:
    packages = lock.get("package")
    out = []
    for package in packages if isinstance(packages, list) else []:
        source = package.get("source", {}) if isinstance(package, dict) else {}
        if isinstance(source, dict) and "registry" in source:
            line = f"{package.get('name')}=={package.get('version')}"
            if re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line):
                out.append(line)
    # One name in two versions (for two Pythons) cannot be constrained to both.
    counts: dict[str, int] = {}
    for line in out:
        name = line.partition("==")[0]
        counts[name] = counts.get(name, 0) + 1
    return tuple(line for line in out if counts[line.partition("==")[0]] == 1)


def _texts(value: object) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _toml(data: bytes) -> Mapping[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
