"""Stores, histories and directories for the workspace's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agents.workspace.checkout import Workspace
from agents.workspace.git import Store
from tests.agents.workspace.helpers import commit_files


@pytest.fixture
def data_dir(tmp_path: Path, with_plane: Callable[..., Any]) -> Path:
    """A data directory of the test's own."""
    with_plane(data_dir=tmp_path)
    return tmp_path


@pytest.fixture
def store(data_dir: Path) -> Store:
    return Store(data_dir / "git" / "project.git").init()


@pytest.fixture
def main(store: Store) -> str:
    """A first commit on main: text, an executable, a link, an odd name, a package.json, a Makefile."""
    files: dict[bytes, bytes | tuple[str, bytes] | None] = {
        b"a.txt": b"".join(b"%d\n" % number for number in range(40)),
        b"run.sh": ("100755", b"#!/bin/sh\n"),
        b"ln": ("120000", b"a.txt"),
        b"caf\xe9.txt": b"latin\n",
        b"src/app.py": b"print('hi')\n",
        b"tests/test_app.py": b"import unittest\n\nclass T(unittest.TestCase):\n    def test(self): pass\n",
        b".gitignore": b"dist/\n",
        b"package.json": b'{"scripts": {"build": "mkdir -p dist new && echo 1 > dist/out && echo 2 > new/x"}}',
        b"Makefile": b"build:\n\tmkdir -p dist new; echo 1 > dist/out; echo 2 > new/x; echo x >> a.txt\n"
        b"hello:\n\t@echo hello from make\n",
    }
    commit = commit_files(store, files)
    store.promote(commit, None, "first")
    return commit


@pytest.fixture
def workspace(store: Store, main: str) -> Iterator[Workspace]:
    with Workspace(store, main, workspace_id=str(uuid4())) as opened:
        yield opened
