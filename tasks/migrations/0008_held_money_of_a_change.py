from django.db import migrations, models

from tenants.columns import AddColumn


class Migration(migrations.Migration):
    dependencies = [("tasks", "0007_newest_first")]

    operations = [
        AddColumn(
            model_name="change",
            name="waiting_for",
            field=models.CharField(blank=True, default="", max_length=80),
        ),
    ]
