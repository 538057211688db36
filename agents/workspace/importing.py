"""Brings a project's repository in: a local path, a bundle, or a URL by https or ssh."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agents.errors import GitError
from agents.workspace.edits import LFS_POINTER
from agents.workspace.names import clashes, is_git_name, leaves, name_bytes, name_text
from agents.workspace.refusals import refusal_of
from agents.workspace.remote import Access, Asked, Bounds, Watch
from agents.workspace.sources import Source, Way, read_source
from tenants.errors import InvalidInput

if TYPE_CHECKING:
    from agents.workspace.git import Store, TreeFile

LFS_POINTER_BYTES_MAX = 200
WARNING_PATHS_MAX = 10
POINTERS_LOOKED_AT_MAX = 2_000
LINKS_LOOKED_AT_MAX = 20_000
LINK_BYTES_MAX = 4_096  # a longer one leads nowhere on any system
# A few small trees that name each other ten times make more files than any machine can list.
TREE_FILES_MAX = 1_000_000
TREE_BYTES_MAX = 256 * 1024 * 1024  # of all their names

BUNDLE_LINES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
BUNDLE_LINE_BYTES_MAX = 32

ABANDONED_SECONDS = 24 * 3_600  # after which a folder of an import that was killed is removed
NOBODY = Access()
USUAL = Bounds()

# What old, real histories hold and what harms nobody; everything else that fsck finds stays an error.
_OLD_SINS = (
    "badTimezone", "missingSpaceBeforeDate", "zeroPaddedFilemode", "badEmail", "missingEmail",
    "missingNameBeforeEmail", "missingSpaceBeforeEmail", "zeroPaddedDate", "badFilemode",
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


def import_into(
    store: Store,
    source: str | Path | Source,
    *,
    field: str = "from",
    access: Access = NOBODY,
    bounds: Bounds = USUAL,
    watch: Watch = lambda _step, _bytes: None,
) -> Imported:
    """Fetches the default branch into main of an empty store. A `Source` is taken as it was read.

    Raises `InvalidInput` for a source that is none, that is empty (fault C68), that may not be asked or
    that gives nothing; and when the store holds commits already.
    """
    place = source if isinstance(source, Source) else _checked_source(str(source), field)
    store.init()
    if store.commit_of_main() is not None:
        raise InvalidInput(
            field, "this project has its repository already", "make another project", code="already_imported"
        )
    # Inside the store, so that what a killed worker leaves goes with it.
    with tempfile.TemporaryDirectory(prefix="remit-import-", dir=store.directory) as scratch:
        asked = Asked(
            store.directory, place, Path(scratch), access=access, bounds=bounds, field=field, watch=watch
        )
        try:
            branch = _fetch(asked)
            if branch is not None:
                _must_be_listable(asked, field)
                # With it a merge base is found without walking all history, whatever the dates of the commits.
                asked.look("reading the history", ["commit-graph", "write", "--reachable"])
        except GitError as error:
            refusal = refusal_of(str(error), place)
            raise InvalidInput(field, refusal.problem, refusal.remedy, code=refusal.code) from None
    if branch is None:
        raise InvalidInput(
            field, "the repository has no commits", "push a first commit there, then import it",
            code="empty_repository",
        )  # fmt: skip
    commit = store.rev("refs/heads/main")
    watch("looking at the files", 0)
    files = store.tree_files(commit)
    return Imported(commit, branch, len(files), sum(file.size for file in files), warnings_of(store, commit))


def bundle_at(path: Path, field: str) -> Source:
    """A file that is a bundle by its first line. Raises `InvalidInput` for any other.

    git takes a file without that line for a pointer to a repository, which may be anybody's.
    """
    try:
        with path.open("rb") as file:
            first = file.readline(BUNDLE_LINE_BYTES_MAX)
    except OSError:
        first = b""
    if first not in BUNDLE_LINES:
        raise InvalidInput(
            field, "this is no git bundle", "make one with: git bundle create app.bundle --all",
            code="not_a_bundle",
        )  # fmt: skip
    return Source(Way.LOCAL, str(path.absolute()))


@contextmanager
def incoming_directory(root: Path, mark: str = "") -> Iterator[Path]:
    """A folder for a store beside the projects' own, until it is taken in or else removed again.

    What an earlier try with the same mark has left goes first.
    """
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob(f"incoming-{mark}-*") if mark else ():
        shutil.rmtree(left, ignore_errors=True)
    for left in root.glob("incoming-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    place = Path(tempfile.mkdtemp(prefix=f"incoming-{mark}-" if mark else "incoming-", dir=root))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def take_in(incoming: Store, store: Store) -> None:
    """The incoming repository becomes a project's, in one step; what a killed import left there goes."""
    shutil.rmtree(store.directory, ignore_errors=True)
    incoming.directory.rename(store.directory)


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


def _checked_source(text: str, field: str) -> Source:
    source = read_source(text, field)
    if source.way is Way.SSH and "://" not in text and _place(text) is not None:
        return Source(Way.LOCAL, str(_place(text)))  # a file whose name looks like host:path
    if source.is_remote:
        return source
    place = _place(source.address)
    if place is None:
        raise InvalidInput(
            field, f"there is nothing at {source.address[:200]}", "check the path", code="not_found"
        )
    return Source(Way.LOCAL, str(place))


def _place(path: str) -> Path | None:
    try:
        place = Path(path).expanduser().absolute()
        return place if place.exists() else None
    except (OSError, RuntimeError):  # too long for a name, a folder that may not be read, an unknown ~user
        return None


def _fetch(asked: Asked) -> str | None:
    """The name of the branch that became main, or None when the source has no commits."""
    heads, default = _read_heads(asked.listing())
    ref = default or next(
        (name for name in ("refs/heads/main", "refs/heads/master", *sorted(heads)) if name in heads), None
    )
    if ref is None or ref not in heads:
        return None
    asked.fetch(ref, "refs/heads/main", config={f"fetch.fsck.{name}": "ignore" for name in _OLD_SINS})
    return ref.removeprefix("refs/heads/")


def _must_be_listable(asked: Asked, field: str) -> None:
    """Counted by a process of bounded output, before anything here holds the list."""
    try:
        names = asked.look(
            "counting the files", ["ls-tree", "-r", "-z", "--name-only", "--full-tree", "refs/heads/main"],
            bytes_max=TREE_BYTES_MAX,
        )  # fmt: skip
    except GitError as error:
        if not str(error).startswith("larger than"):
            raise
    else:
        if names.count(b"\0") <= TREE_FILES_MAX:
            return
    raise InvalidInput(
        field,
        f"its newest commit has more than {TREE_FILES_MAX:,} files",
        "import a part of it",
        code="too_many_files",
    )


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
    all_links = [f for f in files if f.mode == "120000"]
    endless = [f.path for f in all_links if f.size > LINK_BYTES_MAX]
    links = [f.path for f in all_links if f.size <= LINK_BYTES_MAX][:LINKS_LOOKED_AT_MAX]
    targets = store.blobs([(commit, path) for path in links]) if links else []
    return endless + [
        path
        for path, target in zip(links, targets, strict=True)
        if target is not None and leaves(name_bytes(path), target)
    ]


def _warning(kind: str, text: str, paths: list[str]) -> ImportWarning | None:
    if not paths:
        return None
    return ImportWarning(kind, text, tuple(paths[:WARNING_PATHS_MAX]), len(paths))
