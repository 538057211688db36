"""SQLite: the triggers that keep a Change in its tenant, where 0005 in its first form had lost them (row 1)."""
# ruff: noqa: S608  # the names of our own table and triggers

from django.db import migrations

TENANT = "change_belongs_to_the_organization_of_its_project"


def guard_again(_apps, schema_editor):
    if schema_editor.connection.vendor != "sqlite":
        return
    for act, of in (("INSERT", ""), ("UPDATE", "OF organization_id, project_id")):
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {TENANT}_{act.lower()}")
        schema_editor.execute(
            f"CREATE TRIGGER {TENANT}_{act.lower()} BEFORE {act} {of} ON tasks_change"
            " WHEN NEW.organization_id <> (SELECT organization_id FROM tenants_project WHERE id = NEW.project_id)"
            f" BEGIN SELECT RAISE(ABORT, '{TENANT}'); END"
        )


class Migration(migrations.Migration):
    dependencies = [("tasks", "0008_held_money_of_a_change")]
    operations = [migrations.RunPython(guard_again, migrations.RunPython.noop)]
