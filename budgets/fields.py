"""The columns for money and for the meters that a call is paid from."""

from __future__ import annotations

from typing import Any

from django.db import models

from budgets.money import Usd


class UsdField(models.BigIntegerField[Any, Any]):
    """Whole micro-dollars in the database, `Usd` in Python, also in lookups and sums."""

    # What the type checker's Django plugin reads for constructors and lookups.
    _pyi_private_set_type: Any
    _pyi_private_get_type: Any
    _pyi_lookup_exact_type: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(kwargs.get("default")) is int:  # as a migration writes it
            kwargs["default"] = Usd(kwargs["default"])
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if isinstance(kwargs.get("default"), Usd):
            kwargs["default"] = kwargs["default"].micro
        return name, path, args, kwargs

    def from_db_value(self, value: int | None, _expression: Any, _connection: Any) -> Usd | None:
        return None if value is None else Usd(int(value))

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, Usd):
            return value.micro
        if value is None or hasattr(value, "resolve_expression"):
            return value
        raise TypeError(f"{self.name}: money is Usd, not {value!r}")

    def to_python(self, value: Any) -> Any:
        if value is None or isinstance(value, Usd):
            return value
        return Usd(int(value))

    def value_to_string(self, obj: Any) -> str:
        value = self.value_from_object(obj)
        return "" if value is None else str(value.micro)


class MeterIds(models.JSONField[Any, Any]):
    """A list of meter ids; `meters__has=7` finds the rows that name a meter, on both databases."""


@MeterIds.register_lookup
class NamesMeter(models.Lookup[Any]):
    lookup_name = "has"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, params = self.process_lhs(compiler, connection)
        found = f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value = %s)"  # noqa: S608  # a column's name
        return found, (*params, int(self.rhs))

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, params = self.process_lhs(compiler, connection)
        return f"{column} @> to_jsonb(%s::bigint)", (*params, int(self.rhs))
