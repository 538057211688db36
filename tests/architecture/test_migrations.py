"""A migration must run for ever, so it leans on nothing of the application that may change."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import APPS, code

# Column types, and how a column is added, are part of the schema's own words.
ALLOWED = {"budgets.fields", "tenants.columns"}
GENERATED = re.compile(r"_auto_\d{8}_\d{4}$")


def test_migrations_import_no_application_code() -> None:
    found = []
    for source in code(migrations=True):
        for node in ast.walk(source.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            found += [
                f"{source.path}: {name}"
                for name in names
                if name.partition(".")[0] in APPS and name not in ALLOWED
            ]
    assert found == []


def test_migrations_are_named_for_what_they_do() -> None:
    assert [s.path for s in code(migrations=True) if GENERATED.search(s.path.removesuffix(".py"))] == []
