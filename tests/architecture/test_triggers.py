"""The database's own rules are still there after every migration: SQLite drops them with a table that is made anew."""

from __future__ import annotations

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

APPEND_ONLY = {
    "entry_append_only",
    "limit_change_append_only",
    "tasks_decisionreceipt_is_append_only",
    "tasks_event_is_append_only",
    "tasks_reopening_is_append_only",
    "tenants_audit_is_append_only",
}
WALL = "change_belongs_to_the_organization_of_its_project"


def test_no_migration_has_lost_a_trigger() -> None:
    """One that adds a column by making its table anew would; see `tenants.columns.AddColumn`."""
    if connection.vendor == "sqlite":
        walls = {f"{WALL}_insert", f"{WALL}_update"}  # one act a trigger there
        found = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    else:
        walls = {WALL}
        found = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    with connection.cursor() as cursor:
        cursor.execute(found)
        assert {name for (name,) in cursor.fetchall()} == APPEND_ONLY | walls
