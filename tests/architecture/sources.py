"""The house's own files, as the architecture tests read them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPS = ("config", "tasks", "agents", "webhooks", "budgets", "providers", "routing", "tenants")


@dataclass(frozen=True)
class Source:
    path: str  # from the root, with /
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path, self.text)

    @property
    def app(self) -> str:
        return self.path.partition("/")[0]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _parsed(path: str, text: str) -> ast.Module:
    return ast.parse(text, path)


@cache
def tracked() -> tuple[str, ...]:
    """Every file that is or would be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return tuple(sorted(path for path in listed.stdout.splitlines() if (ROOT / path).is_file()))


@cache
def code(*, migrations: bool = False) -> tuple[Source, ...]:
    """The Python of the apps, without tests."""
    return tuple(
        Source(path, (ROOT / path).read_text(encoding="utf-8"))
        for path in tracked()
        if path.endswith(".py")
        and path.partition("/")[0] in APPS
        and ("/migrations/" in path) is migrations
        and not path.startswith("tasks/demo/")  # the files of the demo's own repository
    )


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))
