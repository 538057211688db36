"""What the admin calls many of them."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("webhooks", "0001_endpoints_and_hooks"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="delivery",
            options={"verbose_name_plural": "deliveries"},
        ),
        migrations.AlterModelOptions(
            name="incomingdelivery",
            options={"verbose_name_plural": "incoming deliveries"},
        ),
    ]
