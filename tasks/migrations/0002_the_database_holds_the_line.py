"""What no constraint can say: receipts, events and reopenings never change, and a Change stays in its tenant (row 1).

SQLite drops the triggers of a table that a later migration remakes: tests/tasks/test_rows.py then fails, and the
migration must make them again.
"""
# ruff: noqa: S608  # the names of our own tables and triggers

from django.db import migrations

APPEND_ONLY = ("tasks_event", "tasks_decisionreceipt", "tasks_reopening")
TENANT = "change_belongs_to_the_organization_of_its_project"


def guard(_apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        statements = [_postgres_refusal(), *map(_postgres_append_only, APPEND_ONLY), *_postgres_tenant()]
    else:
        statements = [*map(_sqlite_append_only, APPEND_ONLY), *map(_sqlite_tenant, ("INSERT", "UPDATE"))]
    for statement in statements:
        schema_editor.execute(statement, params=None)


def unguard(_apps, schema_editor):
    on = schema_editor.connection.vendor == "postgresql"
    for table in APPEND_ONLY:
        schema_editor.execute(f"DROP TRIGGER {table}_is_append_only" + (f" ON {table}" if on else ""))
    if on:
        schema_editor.execute(f"DROP TRIGGER {TENANT} ON tasks_change")
        schema_editor.execute(f"DROP FUNCTION {TENANT}()")
        schema_editor.execute("DROP FUNCTION tasks_row_is_append_only()")
    else:
        schema_editor.execute(f"DROP TRIGGER {TENANT}_insert")
        schema_editor.execute(f"DROP TRIGGER {TENANT}_update")


def _postgres_refusal():
    return """
    CREATE FUNCTION tasks_row_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF to_jsonb(NEW) - 'by_id' IS DISTINCT FROM to_jsonb(OLD) - 'by_id' THEN
            RAISE EXCEPTION '% is append only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NEW;
    END
    $$
    """


def _postgres_append_only(table):
    return f"""
    CREATE TRIGGER {table}_is_append_only BEFORE UPDATE ON {table}
    FOR EACH ROW EXECUTE FUNCTION tasks_row_is_append_only()
    """


def _postgres_tenant():
    function = f"""
    CREATE FUNCTION {TENANT}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.organization_id <> (SELECT organization_id FROM tenants_project WHERE id = NEW.project_id) THEN
            RAISE EXCEPTION '{TENANT}' USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NEW;
    END
    $$
    """
    trigger = f"""
    CREATE TRIGGER {TENANT} BEFORE INSERT OR UPDATE OF organization_id, project_id ON tasks_change
    FOR EACH ROW EXECUTE FUNCTION {TENANT}()
    """
    return [function, trigger]


def _sqlite_append_only(table):
    # A person who is deleted leaves their reopenings behind: `by_id` alone may become null.
    columns = {
        "tasks_event": "organization_id, change_id, task_id, run_id, kind, data, key, at",
        "tasks_decisionreceipt": "change_id, task_id, run_id, kind, decision, reasons, detail, at",
        "tasks_reopening": "task_id, key, stop_limit, reason, at",
    }[table]
    quoted = ", ".join(f'"{column}"' for column in columns.split(", "))
    return f"""
    CREATE TRIGGER {table}_is_append_only BEFORE UPDATE OF {quoted} ON {table}
    BEGIN
        SELECT RAISE(ABORT, '{table} is append only');
    END
    """


def _sqlite_tenant(act):
    of = "" if act == "INSERT" else "OF organization_id, project_id"
    return f"""
    CREATE TRIGGER {TENANT}_{act.lower()} BEFORE {act} {of} ON tasks_change
    WHEN NEW.organization_id <> (SELECT organization_id FROM tenants_project WHERE id = NEW.project_id)
    BEGIN
        SELECT RAISE(ABORT, '{TENANT}');
    END
    """


class Migration(migrations.Migration):
    dependencies = [("tasks", "0001_changes_tasks_and_runs"), ("tenants", "0001_initial")]
    operations = [migrations.RunPython(guard, unguard)]
