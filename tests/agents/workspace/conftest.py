"""Stores, histories and directories for the workspace's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.workspace.git import Store
from tests.agents.workspace.helpers import commit_files


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "project.git").init()


@pytest.fixture
def main(store: Store) -> str:
    """A first commit on main: text, an executable, a link, an odd name, attributes."""
    files: dict[bytes, bytes | tuple[str, bytes]] = {
        b"a.txt": b"".join(b"%d\n" % number for number in range(40)),
        b"run.sh": ("100755", b"#!/bin/sh\n"),
        b"ln": ("120000", b"a.txt"),
        b"caf\xe9.txt": b"latin\n",
        b"src/app.py": b"print('hi')\n",
        b".gitignore": b"dist/\n",
    }
    commit = commit_files(store, files)
    store.promote(commit, None, "first")
    return commit
