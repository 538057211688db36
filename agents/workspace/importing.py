"""Brings a project's repository in: a local path, a bundle, or a URL by https or ssh."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agents.errors import GitError
from agents.workspace.edits import LFS_POINTER
from agents.workspace.names import clashes, is_git_name, name_bytes, name_text
from tenants.errors import InvalidInput

if TYPE_CHECKING:
    from agents.workspace.git import Store, TreeFile

IMPORT_SECONDS_MAX = 1_800
LFS_POINTER_BYTES_MAX = 200
WARNING_PATHS_MAX = 10
POINTERS_LOOKED_AT_MAX = 2_000

_SCP_LIKE = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!/)[^\s]+")
# What old, real histories hold and what harms nobody; everything else that fsck finds stays an error.
_OLD_SINS = (
    "badTimezone", "missingSpaceBeforeDate", "zeroPaddedFilemode", "badEmail", "missingEmail",
    "missingNameBeforeEmail", "missingSpaceBeforeEmail", "zeroPaddedDate", "badFilemode",
)  # fmt: skip
_NETWORK_VARIABLES = (
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
    "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImportWarning:
    """Something that agents will meet. `paths` shows the first few; `count` is all of them."""

    kind: str  # submodules, lfs, clashing_names, outside_links, git_names, shallow
    text: str
    paths: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Imported:
    commit: str
    branch: str  # the name it had at its source
    files: int
    bytes: int
    warnings: tuple[ImportWarning, ...]


def import_into(store: Store, source: str | Path, *, field: str = "from") -> Imported:
    """Fetches the default branch into main of an empty store.

    Raises `InvalidInput` for a source that is none, that is empty (fault C68), or that cannot be
    read; and when the store holds commits already.
    """
    place = _checked_source(str(source), field)
    store.init()
    if store.commit_of_main() is not None:
        raise InvalidInput(
            field, "this project has its repository already", "make another project", code="already_imported"
        )
    with tempfile.TemporaryDirectory(prefix="remit-import-") as scratch:
        # git drops GIT_CONFIG_COUNT for the process that serves a local path, but not this file.
        config = Path(scratch) / "gitconfig"
        config.write_text("[safe]\n\tdirectory = *\n")
        try:
            branch = _fetch(store, place, config)
        except GitError as error:
            raise InvalidInput(
                field,
                f"git cannot read it: {error}",
                "check the address and access",
                code="unreadable_source",
            ) from error
    if branch is None:
        raise InvalidInput(
            field, "the repository has no commits", "push a first commit there, then import it",
            code="empty_repository",
        )  # fmt: skip
    commit = store.rev("refs/heads/main")
    # With it a merge base is found without walking all history, whatever the dates of the commits.
    store.git("commit-graph", "write", "--reachable", seconds_max=IMPORT_SECONDS_MAX)
    files = store.tree_files(commit)
    return Imported(commit, branch, len(files), sum(file.size for file in files), warnings_of(store, commit))


def warnings_of(store: Store, commit: str) -> tuple[ImportWarning, ...]:
    """What a person should know about a tree before agents work on it (faults C23, C75, C76)."""
    files = store.tree_files(commit)
    found = [
        _warning(
            "submodules", "submodules stay empty in workspaces", [f.path for f in files if f.mode == "160000"]
        ),
        _warning("lfs", "Git LFS files stay pointers in workspaces", _pointers(store, commit, files)),
        _warning(
            "clashing_names", "names differ only by case or Unicode form",
            [name_text(path) for group in clashes(name_bytes(f.path) for f in files) for path in group],
        ),
        _warning("outside_links", "links lead out of the repository", _outside_links(store, commit, files)),
        _warning(
            "git_names", "names that look like .git are not accessible to agents",
            [f.path for f in files if any(map(is_git_name, name_bytes(f.path).split(b"/")))],
        ),
    ]  # fmt: skip
    if (store.directory / "shallow").exists():
        found.append(ImportWarning("shallow", "the history is cut: the source is a shallow clone"))
    return tuple(warning for warning in found if warning is not None)


def _checked_source(source: str, field: str) -> str:
    """Only these ways in: never `ext::` or another helper, never an option (fault C33)."""
    wrong = InvalidInput(
        field,
        "not a path, a bundle or an https or ssh address",
        "give a folder, a .bundle file, https://… or ssh://…",
        code="bad_source",
    )
    if not source.strip() or source.startswith("-") or any(ord(character) < 32 for character in source):
        raise wrong
    if "::" in source.split("/", maxsplit=1)[0]:
        raise wrong
    if "://" in source:
        try:
            parts = urlsplit(source)
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("https", "ssh", "file") or (parts.scheme != "file" and not parts.hostname):
            raise wrong
        if (parts.hostname or "").startswith("-") or (parts.username or "").startswith("-"):
            raise wrong
        return source if parts.scheme != "file" else _existing(parts.path, field)
    if _SCP_LIKE.fullmatch(source) and _place(source) is None:
        return source
    return _existing(source, field)


def _existing(path: str, field: str) -> str:
    place = _place(path)
    if place is None:
        raise InvalidInput(field, f"there is nothing at {path[:200]}", "check the path", code="not_found")
    return str(place)


def _place(path: str) -> Path | None:
    try:
        place = Path(path).expanduser().absolute()
        return place if place.exists() else None
    except (OSError, RuntimeError):  # too long for a name, a folder that may not be read, an unknown ~user
        return None


def _fetch(store: Store, place: str, config: Path) -> str | None:
    """The name of the branch that became main, or None when the source has no commits."""
    more = {name: os.environ[name] for name in _NETWORK_VARIABLES if name in os.environ}
    more |= {
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new",
        "GIT_ALLOW_PROTOCOL": "file:https:ssh",
    }
    allowed = {f"protocol.{name}.allow": "always" for name in ("file", "https", "ssh")}
    sins = {f"fetch.fsck.{name}": "ignore" for name in _OLD_SINS}
    listed = store.git("ls-remote", "--symref", "--", place, config=allowed, more=more).out
    heads, default = _read_heads(listed.decode("utf-8", "surrogateescape"))
    ref = default or next(
        (name for name in ("refs/heads/main", "refs/heads/master", *sorted(heads)) if name in heads), None
    )
    if ref is None or ref not in heads:
        return None
    store.git(
        "fetch", "--quiet", "--no-tags", "--no-auto-maintenance", "--update-shallow", "--no-write-fetch-head",
        "--", place, f"{ref}:refs/heads/main",
        config=allowed | sins, more=more, seconds_max=IMPORT_SECONDS_MAX,
    )  # fmt: skip
    return ref.removeprefix("refs/heads/")


def _read_heads(listed: str) -> tuple[dict[str, str], str | None]:
    """The branches of a source, and the ref its HEAD names (or HEAD itself, when it is detached)."""
    heads, default, detached = {}, None, ""
    for line in listed.splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: ") and name == "HEAD":
            default = value.removeprefix("ref: ")
        elif name == "HEAD":
            detached = value
        elif name.startswith("refs/heads/"):
            heads[name] = value
    if default in heads:
        return heads, default
    if detached:  # a bundle or a detached HEAD: prefer the branch of the same commit
        same = next((name for name, value in sorted(heads.items()) if value == detached), None)
        return (heads, same) if same else ({**heads, "HEAD": detached}, "HEAD")
    return heads, None


def _pointers(store: Store, commit: str, files: list[TreeFile]) -> list[str]:
    small = [f.path for f in files if f.mode.startswith("100") and 0 < f.size <= LFS_POINTER_BYTES_MAX]
    small = small[:POINTERS_LOOKED_AT_MAX]
    contents = store.blobs([(commit, path) for path in small]) if small else []
    return [path for path, data in zip(small, contents, strict=True) if data and data.startswith(LFS_POINTER)]


def _outside_links(store: Store, commit: str, files: list[TreeFile]) -> list[str]:
    links = [f.path for f in files if f.mode == "120000"]
    targets = store.blobs([(commit, path) for path in links]) if links else []
    return [
        path
        for path, target in zip(links, targets, strict=True)
        if target is not None and leaves(name_bytes(path), target)
    ]


def leaves(link: bytes, target: bytes) -> bool:
    """Whether a link's target lies outside the repository, as written."""
    if target.startswith(b"/"):
        return True
    normal = os.path.normpath(os.path.join(os.path.dirname(link), target))  # noqa: PTH118, PTH120  # bytes
    return normal == b".." or normal.startswith(b"../")


def _warning(kind: str, text: str, paths: list[str]) -> ImportWarning | None:
    if not paths:
        return None
    return ImportWarning(kind, text, tuple(paths[:WARNING_PATHS_MAX]), len(paths))
