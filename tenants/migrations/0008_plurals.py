"""What the admin calls many of them."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_seal_second_factors"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="auditentry",
            options={"verbose_name_plural": "audit entries"},
        ),
    ]
