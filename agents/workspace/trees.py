"""Commits made without a working tree: a first one from files, and one with some paths as they were elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from agents.workspace.git import Store
from agents.workspace.names import name_bytes

REGULAR = "100644"


def commit_files(
    store: Store, files: Mapping[str, bytes], *, message: str, at: int, parents: tuple[str, ...] = ()
) -> str:
    """A commit of exactly these files. The same arguments give the same commit id anywhere."""
    entries = [
        f"{REGULAR} {_blob(store, content)}\t".encode() + name_bytes(path) for path, content in files.items()
    ]
    with tempfile.TemporaryDirectory(prefix="remit-index-") as scratch:
        tree = _tree(store, Path(scratch) / "index", entries)
    return store.commit(tree, parents, message=message, at=at)


def with_paths_of(store: Store, commit: str, other: str, paths: Iterable[str]) -> str:
    """`commit` with these paths as they are at `other`; what is not there at `other` is left out.

    A commit that no branch has, made to run the same checks on other versions of their own files (fault C93).
    """
    wanted = set(paths)
    there = {file.path: file for file in store.tree_files(other) if file.path in wanted}
    with tempfile.TemporaryDirectory(prefix="remit-index-") as scratch:
        index = Path(scratch) / "index"
        store.git("read-tree", commit, more={"GIT_INDEX_FILE": str(index)})
        entries = [
            f"{file.mode} {file.blob}\t".encode() + name_bytes(path)
            if (file := there.get(path)) is not None
            else f"0 {'0' * 40}\t".encode() + name_bytes(path)
            for path in sorted(wanted)
        ]
        tree = _tree(store, index, entries)
    at = store.commit_time(commit) + 1
    return store.commit(tree, (commit, other), message=f"Check {commit} with files of {other}\n", at=at)


def _tree(store: Store, index: Path, entries: list[bytes]) -> str:
    environment = {"GIT_INDEX_FILE": str(index)}
    store.git(
        "update-index",
        "-z",
        "--index-info",
        stdin=b"".join(entry + b"\0" for entry in entries),
        more=environment,
    )
    return store.git("write-tree", more=environment).out.decode().strip()


def _blob(store: Store, content: bytes) -> str:
    return store.git("hash-object", "-w", "--stdin", stdin=content).out.decode().strip()
