from django.db import migrations, models

from tenants.columns import AddColumn


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0004_preflights"),
    ]

    operations = [
        # Not AddField: it made the table anew on SQLite, and the triggers of 0002 went with the old one (see 0009).
        AddColumn(
            model_name="change",
            name="plan_needs_approval",
            field=models.BooleanField(default=False),
        ),
    ]
