"""A migration's operation: one more column on a table that triggers name."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AddField
from django.db.migrations.state import ProjectState
from django.db.models import Field, Model


class AddColumn(AddField):
    """`AddField` that lets the table stand on SQLite.

    Django makes the table anew there when a column may not be null, and SQLite refuses to rename a table that
    a trigger of another one names: those that keep a row inside its organization name nearly all of them.
    """

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        field = model._meta.get_field(self.name)
        if schema_editor.connection.vendor == "sqlite" and getattr(field, "generated", False):
            _add_generated(schema_editor, model, field)
            return
        if schema_editor.connection.vendor != "sqlite" or field.null:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        definition, _ = schema_editor.column_sql(model, field)
        default = schema_editor.quote_value(schema_editor.effective_default(field))
        table, column = _names(schema_editor, model, field)
        schema_editor.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition} DEFAULT {default}")


def _add_generated(
    schema_editor: BaseDatabaseSchemaEditor, model: type[Model], field: Field[Any, Any]
) -> None:
    """SQLite adds only a column that is computed when it is read; what is read is the same."""
    definition, _ = schema_editor.column_sql(model, field)
    assert definition is not None
    assert definition.endswith(" STORED")
    table, column = _names(schema_editor, model, field)
    schema_editor.execute(
        f"ALTER TABLE {table} ADD COLUMN {column} {definition.removesuffix(' STORED')} VIRTUAL"
    )


def _names(
    schema_editor: BaseDatabaseSchemaEditor, model: type[Model], field: Field[Any, Any]
) -> tuple[str, str]:
    assert field.column is not None
    return schema_editor.quote_name(model._meta.db_table), schema_editor.quote_name(field.column)
