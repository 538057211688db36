"""One git process: an environment built from nothing, a pinned configuration, bounded time and words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.errors import GitError

GIT_SECONDS_MAX = 300
GIT_ERROR_CHARACTERS_MAX = 500
LOCK_WAIT_MILLISECONDS = 200  # writers hold the project's flock, so a longer wait only meets stale locks

# Merges must give the same commit on every machine, and no file of a tenant may start a program on
# the host: every key that could change either is pinned here, above any configuration file.
PINNED_CONFIG: dict[str, str] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.symlinks": "true",
    "core.fileMode": "true",
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    # Files may be given to the sandbox's user after the checkout; that must not make them look changed.
    "core.trustctime": "false",
    "core.fsync": "committed,reference",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.packedRefsTimeout": str(LOCK_WAIT_MILLISECONDS),
    "core.filesRefLockTimeout": str(LOCK_WAIT_MILLISECONDS),
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "diff.ignoreSubmodules": "all",
    "diff.external": "",
    "diff.algorithm": "myers",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "safe.bareRepository": "explicit",
    "safe.directory": "*",
    "merge.renames": "true",
    "merge.directoryRenames": "false",
    "merge.renameLimit": "5000",
    "diff.renameLimit": "5000",
    "merge.conflictStyle": "merge",
    "i18n.commitEncoding": "UTF-8",
    "commit.gpgSign": "false",
    "transfer.fsckObjects": "true",
    "filter.lfs.required": "false",
    "pack.threads": "2",
    "advice.addEmbeddedRepo": "false",
}
_CREDENTIALS = re.compile(r"(\w+://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class GitAnswer:
    code: int
    out: bytes


def git_environment(
    git_dir: Path, *, config: Mapping[str, str] | None = None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Nothing of the worker's own environment but where programs are (faults C29, C33, C77)."""
    settings = {**PINNED_CONFIG, **(config or {})}
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "GIT_DIR": str(git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for number, (key, value) in enumerate(settings.items()):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return {**environment, **(more or {})}


def run_git(
    arguments: Sequence[str | bytes],
    *,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    codes: Sequence[int] = (0,),
    directory: str = "/",
    keep_open: Sequence[int] = (),
    seconds_max: float = GIT_SECONDS_MAX,
) -> GitAnswer:
    """Raises `GitError` when git ends with another code than `codes`, or not in time."""
    program = shutil.which("git", path=environment["PATH"])
    if program is None:
        raise GitError("git is not installed")
    name = os.fsdecode(next((part for part in arguments if not os.fsdecode(part).startswith("-")), "git"))
    try:
        done = subprocess.run(
            [program, *arguments],
            env=dict(environment),
            input=stdin,
            capture_output=True,
            timeout=seconds_max,
            cwd=directory,
            pass_fds=tuple(keep_open),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitError(f"git {name}: not finished after {seconds_max:.0f} seconds") from None
    if done.returncode not in codes:
        raise GitError(f"git {name}: {words_of(done.stderr) or f'exit code {done.returncode}'}")
    return GitAnswer(done.returncode, done.stdout)


def words_of(stderr: bytes) -> str:
    """What git, or a server behind it, said: one bounded line of plain characters, without a URL's credentials."""
    text = " ".join(stderr.decode("utf-8", "replace").split())
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return _CREDENTIALS.sub(r"\1***@", plain)[:GIT_ERROR_CHARACTERS_MAX]
