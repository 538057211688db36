"""Makes commits without a working tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.workspace.git import Store

AT = 1_700_000_000


def commit_files(
    store: Store,
    files: Mapping[bytes, bytes | tuple[str, bytes] | None],
    *,
    on: str | None = None,
    parents: Sequence[str] | None = None,
    at: int = AT,
) -> str:
    """A commit of `files` over the tree of `on`; None removes a path; `(mode, data)` sets a mode."""
    more = {"GIT_INDEX_FILE": str(store.directory / f"index-{at}-{abs(hash(frozenset(files)))}")}
    if on:
        store.git("read-tree", on, more=more)
    lines = []
    for path, content in files.items():
        mode, data = content if isinstance(content, tuple) else ("100644", content)
        if data is None:
            lines.append(b"0 " + b"0" * 40 + b"\t" + path)
            continue
        blob = data.decode() if mode == "160000" else _blob(store, data)
        lines.append(f"{mode} {blob}\t".encode() + path)
    store.git("update-index", "-z", "--index-info", stdin=b"\0".join(lines) + b"\0", more=more)
    tree = store.git("write-tree", more=more).out.decode().strip()
    chain = parents if parents is not None else ([on] if on else [])
    return store.commit(tree, chain, message="work\n", at=at)


def _blob(store: Store, data: bytes) -> str:
    return store.git("hash-object", "-w", "--stdin", stdin=data).out.decode().strip()
