"""A migration must run for ever, so it leans on nothing of the application that may change."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from django.db.migrations.loader import MigrationLoader

from tests import database
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


def test_a_database_laid_out_for_tests_is_made_anew_when_any_migration_changes() -> None:
    """Else a run would try yesterday's schema; what migrations may import counts as well."""
    migrations = MigrationLoader(None).disk_migrations.values()
    files = {Path(sys.modules[type(one).__module__].__file__ or "") for one in migrations}
    imported = {Path(sys.modules[name].__file__ or "") for name in ALLOWED}
    assert sorted((files | imported) - set(database.sources())) == []
