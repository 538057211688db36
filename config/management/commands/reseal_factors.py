"""`manage.py reseal_factors`: after a new sealing key was put first, seal every second factor with it."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from config.accounts import resealed
from tenants.errors import FactorUnreadable


class Command(BaseCommand):
    help = "Seals the secret of every second factor with the newest sealing key, so that older ones can be taken away."

    def handle(self, *_: Any, **__: Any) -> None:
        done, unreadable = 0, []
        for pk in list(Authenticator.objects.values_list("pk", flat=True)):
            with transaction.atomic():  # one at a time: somebody may be using a recovery code just now
                factor = Authenticator.objects.select_for_update().select_related("user").get(pk=pk)
                try:
                    factor.data = resealed(factor.data)
                except FactorUnreadable:
                    unreadable.append(f"{factor.user.email} ({factor.type})")
                    continue
                factor.save(update_fields=["data"])
                done += 1
        self.stdout.write(f"{done} second factors are sealed with the newest sealing key")
        if unreadable:
            raise CommandError(
                "no sealing key opens these; put the earlier one back, or remove them in the admin: "
                + ", ".join(unreadable)
            )
