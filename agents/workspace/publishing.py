"""Pure: what may not be published, looked at file by file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from agents.workspace.edits import LFS_POINTER
from agents.workspace.merging import ABSENT, Difference
from agents.workspace.names import leaves, name_text
from tenants.publish_rules import FILE_KIB_DEFAULT, FILES_DEFAULT, Finds, finder

PUBLISHED_FILE_BYTES_MAX = FILE_KIB_DEFAULT * 1024
PUBLISHED_FILES_MAX = FILES_DEFAULT
PROBLEMS_SHOWN_MAX = 20
FINDERS_KEPT = 200

_SECRETS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\r?\n?[A-Za-z0-9+/=\r\n]{40}"),
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)(?!IOSFODNN7)[A-Z0-9]{16}\b"),
    "a GitHub token": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})\b"),
    "an Anthropic key": re.compile(rb"\bsk-ant-[A-Za-z0-9_-]{32,}"),
    "an OpenAI key": re.compile(rb"\bsk-(?!ant-)(?:proj-)?[A-Za-z0-9_-]{40,}\b"),
    "a Google API key": re.compile(rb"\bAIza[A-Za-z0-9_-]{35}\b"),
    "a Slack token": re.compile(rb"\bxox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}"),
    "a Stripe key": re.compile(rb"\b[rs]k_live_[A-Za-z0-9]{20,}\b"),
}
_MARKS = (re.compile(rb"^<{7} ", re.MULTILINE), re.compile(rb"^>{7} ", re.MULTILINE))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRules:
    """Limits of one ChangeSet; a project may have its own."""

    file_bytes_max: int = PUBLISHED_FILE_BYTES_MAX
    files_max: int = PUBLISHED_FILES_MAX
    secret_patterns: tuple[tuple[str, str], ...] = ()  # what it is, and the pattern of a line that holds it
    secret_exceptions: tuple[str, ...] = ()  # globs of paths where nobody looks for secrets


def rules_of(overrides: Mapping[str, Any]) -> PublishRules:
    """What holds for a project whose `publish_rules` column has these overrides."""
    return PublishRules(
        file_bytes_max=overrides.get("file_kib_max", FILE_KIB_DEFAULT) * 1024,
        files_max=overrides.get("files_max", FILES_DEFAULT),
        secret_patterns=tuple(
            (each["name"], each["pattern"]) for each in overrides.get("secret_patterns", ())
        ),
        secret_exceptions=tuple(overrides.get("secret_exceptions", ())),
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """`kind` is secret, large_file, conflict_markers, outside_link, lfs, many_files or git."""

    path: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


@dataclass(frozen=True, slots=True)
class Change:
    """One file that would be published. `read` gives a blob's bytes; sizes come without reading."""

    difference: Difference
    size: int

    @property
    def path(self) -> str:
        return name_text(self.difference.path)


def why_not_published(
    changes: Iterable[Change], read: Callable[[str], bytes], rules: PublishRules
) -> tuple[Problem, ...]:
    """Everything that stands in the way, the first few of it; empty when the work may be published."""
    found: list[Problem] = []
    count = 0
    for change in changes:
        count += 1
        if change.difference.new_mode != "000000":
            found += _problems(change, read, rules)
        if len(found) >= PROBLEMS_SHOWN_MAX:
            break
    if count > rules.files_max:
        found.append(Problem("", "many_files", f"more than {rules.files_max:,} files changed"))
    return tuple(found[:PROBLEMS_SHOWN_MAX])


def _problems(change: Change, read: Callable[[str], bytes], rules: PublishRules) -> list[Problem]:
    difference, path = change.difference, change.path
    if difference.new_mode == "120000":
        if leaves(difference.path, read(difference.new_blob)):
            return [Problem(path, "outside_link", "the link leads out of the repository")]
        return []
    if not difference.new_mode.startswith("100"):
        return []
    if change.size > rules.file_bytes_max:
        text = f"{change.size:,} bytes; at most {rules.file_bytes_max:,} are published"
        return [Problem(path, "large_file", text)]
    if difference.new_blob == difference.old_blob:  # only its mode changed
        return []
    data = read(difference.new_blob)
    old = read(difference.old_blob) if difference.old_blob != ABSENT else b""
    found = []
    if old.startswith(LFS_POINTER) and not data.startswith(LFS_POINTER):
        found.append(Problem(path, "lfs", "a Git LFS pointer was replaced by its content; leave it"))
    if not any(fnmatchcase(path, glob) for glob in rules.secret_exceptions):
        found += _secrets(path, data, old, rules)
    if all(mark.search(data) for mark in _MARKS) and not all(mark.search(old) for mark in _MARKS):
        found.append(Problem(path, "conflict_markers", "it holds conflict markers; resolve them"))
    return found


def _secrets(path: str, data: bytes, old: bytes, rules: PublishRules) -> list[Problem]:
    """New ones only: what the repository held before is not this run's doing."""
    found = [
        what
        for what, pattern in _SECRETS.items()
        if any(match[0] not in old for match in pattern.finditer(data))
    ]
    if rules.secret_patterns:
        known = set(old.split(b"\n"))
        new = "\n".join(line.decode("utf-8", "replace") for line in data.split(b"\n") if line not in known)
        found += [what for what, pattern in rules.secret_patterns if _finder(pattern)(new)]
    return [Problem(path, "secret", f"it seems to hold {what}; secrets are not published") for what in found]


@lru_cache(maxsize=FINDERS_KEPT)
def _finder(pattern: str) -> Finds:
    return finder(f"(?m:{pattern})")
