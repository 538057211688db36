"""The import contracts of pyproject.toml hold."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import APPS, ROOT, code


def test_imports_go_down() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_floors_hold_every_app() -> None:
    assert {source.app for source in code()} == set(APPS)
