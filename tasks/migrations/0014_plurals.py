"""What the admin calls many of them."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0013_in_order_and_by_index"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="dependency",
            options={"verbose_name_plural": "dependencies"},
        ),
    ]
