"""`manage.py reseal_connectors`: after a new sealing key was put first, seal every stored key with it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from providers.models import Connector
from providers.sealing import KeyUnreadable


class Command(BaseCommand):
    help = (
        "Seals every connector's key with the newest sealing key, so that the older ones can be taken away."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        done, unreadable = 0, []
        for pk in list(Connector.objects.exclude(sealed_key="").values_list("pk", flat=True)):
            with transaction.atomic():  # one at a time: somebody may be saving another key just now
                connector = Connector.objects.select_for_update().get(pk=pk)
                try:
                    connector.seal_key(connector.open_key())
                except KeyUnreadable:
                    unreadable.append(f"{connector.organization_id}/{connector.name}")
                    continue
                connector.save(update_fields=["sealed_key"])
                done += 1
        self.stdout.write(f"{done} keys are sealed with the newest sealing key")
        if unreadable:
            raise CommandError(
                f"no sealing key opens these; put the earlier one back: {', '.join(unreadable)}"
            )
