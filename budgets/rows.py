"""Single rows by statements that are composed once.

For the log of calls, which is written twice a call and, on SQLite, under the one lock: composing the statements anew
took a third of all that a call does on this machine. Fields and constraints are those of the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, models

from budgets.driver import mark, run

# Fields whose values go to every database as they are; an automatic date is not among them.
_PLAIN = frozenset(
    {
        models.BigAutoField,
        models.BigIntegerField,
        models.BooleanField,
        models.CharField,
        models.PositiveSmallIntegerField,
        models.TextField,
    }
)


def insert(row: models.Model) -> None:
    """A new row; its key is filled in where the database chooses it. No signal is sent: nobody here listens."""
    model, link = type(row), connections[DEFAULT_DB_ALIAS]
    chosen_here = row.pk is not None
    done = run(
        _insert_statement(model, chosen_here, mark()),
        _values(row, _fields(model, chosen_here), link, new=True),
    )
    if not chosen_here:
        row.pk = done.lastrowid if link.vendor == "sqlite" else done.fetchone()[0]
    row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def update(row: models.Model, names: Sequence[str]) -> None:
    """These columns of one row, by their fields' names. It must be there."""
    model, link = type(row), connections[DEFAULT_DB_ALIAS]
    fields = tuple(_field(model, name) for name in names)
    key = _key_of(model).get_db_prep_value(row.pk, link)
    done = run(_update_statement(model, tuple(names), mark()), [*_values(row, fields, link, new=False), key])
    assert done.rowcount == 1, f"{done.rowcount} rows of {model.__name__} {row.pk}"


def _values(row: models.Model, fields: tuple[Any, ...], link: Any, *, new: bool) -> list[Any]:
    return [
        getattr(row, field.attname)
        if type(field) in _PLAIN
        else field.get_db_prep_save(field.pre_save(row, new), link)
        for field in fields
    ]


@cache
def _fields(model: type[models.Model], with_key: bool) -> tuple[Any, ...]:
    return tuple(field for field in model._meta.concrete_fields if with_key or not field.primary_key)


@cache
def _insert_statement(model: type[models.Model], with_key: bool, mark: str) -> str:
    columns = [_quoted(field.column) for field in _fields(model, with_key)]
    marks = ", ".join([mark] * len(columns))
    returning = "" if with_key or mark == "?" else f" RETURNING {_quoted(_key_of(model).column)}"
    return f"INSERT INTO {_table(model)} ({', '.join(columns)}) VALUES ({marks}){returning}"  # noqa: S608  # names


@cache
def _update_statement(model: type[models.Model], names: tuple[str, ...], mark: str) -> str:
    columns = [f"{_quoted(_field(model, name).column)} = {mark}" for name in names]
    return f"UPDATE {_table(model)} SET {', '.join(columns)} WHERE {_quoted(_key_of(model).column)} = {mark}"  # noqa: S608


@cache
def _field(model: type[models.Model], name: str) -> Any:
    return model._meta.get_field(name)


def _key_of(model: type[models.Model]) -> Any:
    return model._meta.pk


def _table(model: type[models.Model]) -> str:
    return _quoted(model._meta.db_table)


def _quoted(name: str) -> str:
    return connections[DEFAULT_DB_ALIAS].ops.quote_name(name)
