"""`manage.py reseal_webhooks`: after a new sealing key was put first, seal every secret of webhooks with it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from providers.sealing import KeyUnreadable
from webhooks.models import Endpoint, IncomingHook


class Command(BaseCommand):
    help = (
        "Seals every webhook's secret with the newest sealing key, so that the older ones can be taken away."
    )

    def handle(self, *_: Any, **__: Any) -> None:
        done, unreadable = 0, []
        for model in (Endpoint, IncomingHook):
            for pk in list(model.objects.values_list("pk", flat=True)):
                with transaction.atomic():  # one at a time: somebody may be rotating it just now
                    row = model.objects.select_for_update().get(pk=pk)
                    try:
                        row.reseal()
                    except KeyUnreadable:
                        unreadable.append(str(pk))
                        continue
                    row.save(update_fields=["sealed_secret", "sealed_previous"])
                    done += 1
        self.stdout.write(f"{done} webhooks are sealed with the newest sealing key")
        if unreadable:
            raise CommandError(
                f"no sealing key opens these; put the earlier one back, or rotate them: {', '.join(unreadable)}"
            )
