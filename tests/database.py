"""What the tests spare themselves of the database: migrating, connecting and flushing, in every process and test.

On SQLite a migrated database is made once and copied: migrating takes seconds.

The copy is kept between runs under the hash of what the schema comes from. `migrate` still runs over each copy
and finds nothing to do; `--create-db` migrates an empty database, as on PostgreSQL.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.commands import flush
from django.db import connection
from django.test import TestCase

# Made by `migrate` and changed by no test: to make them anew took nine tenths of each flush.
LASTING_TABLES = {"django_content_type", "auth_permission"}


def lay_out(folder: Path, target: Path) -> None:
    """A migrated database at `target`, from the one in `folder`, which the first process that asks makes there."""
    with (folder / "making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        template = folder / f"{schema_hash()}.sqlite3"
        if not template.exists():
            for old in folder.glob("*.sqlite3*"):
                old.unlink()
            part = template.with_suffix(".sqlite3.part")
            _migrate(part)
            part.rename(template)
        shutil.copyfile(template, target)


def schema_hash() -> str:
    """Of every file that a migrated database depends on: migrations, ours and others', and what they may import."""
    found = hashlib.sha256(sqlite3.sqlite_version.encode())
    for path in sources():
        found.update(f"{path.parent.parent.name}/{path.name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def sources() -> Iterator[Path]:
    """All of those files."""
    for app in sorted(apps.get_app_configs(), key=lambda app: app.label):
        yield from sorted((Path(app.path) / "migrations").glob("*.py"))
    for name in ("budgets/fields.py", "tenants/columns.py", "config/stores.py", "requirements.txt"):
        yield settings.BASE_DIR / name


def _migrate(path: Path) -> None:
    named, connection.settings_dict["NAME"] = connection.settings_dict["NAME"], str(path)
    try:
        call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    finally:
        connection.close()
        connection.settings_dict["NAME"] = named


def keep_connected(patch: pytest.MonkeyPatch) -> None:
    """Django disconnects after each class, and for pytest each test is one; SQLite then reads 100 tables' schema."""

    def tear_down(cls: Any) -> None:
        cls._rollback_atomics(cls.cls_atomics)
        super(TestCase, cls).tearDownClass()

    patch.setattr(TestCase, "tearDownClass", classmethod(tear_down))


def flush_rows_of_tests_only(patch: pytest.MonkeyPatch) -> None:
    """After a test with transactions of its own: the lasting tables stay, and are not filled anew."""

    def sql_flush(style: Any, connection: Any, **options: Any) -> list[str]:
        names = connection.introspection.django_table_names(only_existing=True, include_views=False)
        own = [name for name in names if name not in LASTING_TABLES]
        statements: list[str] = connection.ops.sql_flush(style, own, **options)
        return statements

    patch.setattr(flush, "sql_flush", sql_flush)
    patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
