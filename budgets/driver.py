"""The driver's own cursor on Django's connection: for the few statements that every model call makes.

Django's cursor writes each value into the statement's text anew, or looks for placeholders in it at every call: a third
of what the books cost the caller. Errors are Django's all the same, and Django's transactions hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import structlog
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import errors

# The statement is not there, is there already, or is another one with other parameters.
_LOST_STATEMENT = (
    errors.InvalidSqlStatementName,
    errors.DuplicatePreparedStatement,
    errors.ProtocolViolation,
)


def run(sql: str, params: Sequence[Any]) -> Any:
    """The cursor of one statement, with the driver's own marks: ? on SQLite, %s on PostgreSQL."""
    link = connections[DEFAULT_DB_ALIAS]
    if link.connection is None:
        link.ensure_connection()
    with link.wrap_database_errors:
        if link.vendor == "sqlite":
            return link.connection.execute(sql, params)
        return _bound_by_the_server(link.connection, sql, params, alone=not link.in_atomic_block)


def mark() -> str:
    return "?" if connections[DEFAULT_DB_ALIAS].vendor == "sqlite" else "%s"


def _bound_by_the_server(session: Any, sql: str, params: Sequence[Any], *, alone: bool) -> Any:
    try:
        return psycopg.Cursor(session).execute(sql, params)
    except _LOST_STATEMENT:
        # It never ran. A pooler has given this statement another session than the one it was prepared in.
        session.prepare_threshold = None
        structlog.get_logger(__name__).warning("database.unprepared", remedy="REMIT_DATABASE_PREPARED=false")
        if not alone:
            raise  # the failure ended the transaction around it
        return psycopg.Cursor(session).execute(sql, params)
