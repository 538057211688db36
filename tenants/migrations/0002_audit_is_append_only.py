"""The audit list is append only: the database itself refuses a changed entry.

The actor may become null, which is what happens to the entries of a person who is deleted.
"""

from django.db import migrations

COLUMNS = "organization_id, action, subject, before, after, reason, request_id, remote, at"

POSTGRES = (
    """
    CREATE FUNCTION tenants_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the audit list is append only';
    END
    $$;
    """,
    f"""
    CREATE TRIGGER tenants_audit_is_append_only BEFORE UPDATE OF {COLUMNS}
    ON tenants_auditentry FOR EACH ROW EXECUTE FUNCTION tenants_audit_is_append_only();
    """,
)
SQLITE = (
    f"""
    CREATE TRIGGER tenants_audit_is_append_only BEFORE UPDATE OF {COLUMNS} ON tenants_auditentry
    BEGIN
        SELECT RAISE(ABORT, 'the audit list is append only');
    END;
    """,
)


def guard(_apps, schema_editor):
    quoted = {"postgresql": POSTGRES, "sqlite": SQLITE}[schema_editor.connection.vendor]
    for statement in quoted:
        # "before" and "after" are words of SQL's own.
        schema_editor.execute(statement.replace(" before, after,", ' "before", "after",'))


def unguard(_apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER tenants_audit_is_append_only ON tenants_auditentry")
        schema_editor.execute("DROP FUNCTION tenants_audit_is_append_only()")
    else:
        schema_editor.execute("DROP TRIGGER tenants_audit_is_append_only")


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]
    operations = [migrations.RunPython(guard, unguard)]
