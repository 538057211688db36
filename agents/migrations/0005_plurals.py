"""What the admin calls many of them."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0004_continuations"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="treeindex",
            options={"verbose_name_plural": "tree indexes"},
        ),
    ]
