"""`manage.py limit_platform AMOUNT --reason …`: what the whole deployment may spend in a UTC month (row 15)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from budgets.errors import KeyReused
from budgets.keys import PLATFORM_SUBJECT, MeterKind
from budgets.limits import AlreadyDone, Unchanged, read_limit, set_limit
from tenants.errors import InvalidInput

UNLIMITED = "none"


class Command(BaseCommand):
    help = (
        "Sets the limit of all organizations together. Every call then holds on it, too; none takes it away."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("amount", help='US dollars such as "500.00"; 0 is nothing; none is no limit')
        parser.add_argument("--reason", required=True, help="kept in the history of limits")
        parser.add_argument("--key", default="", help="the same key sets it once; a fresh one when not given")

    def handle(self, *_: Any, **options: Any) -> None:
        said = options["amount"]
        try:
            done = set_limit(
                organization_id=None,
                kind=MeterKind.PLATFORM,
                subject=PLATFORM_SUBJECT,
                to=None if said == UNLIMITED else read_limit(MeterKind.PLATFORM, said, field="amount"),
                by=None,
                reason=options["reason"],
                key=options["key"] or f"command-{uuid4()}",
                reason_needed=True,
                now=timezone.now(),
            )
        except (InvalidInput, KeyReused) as refused:
            raise CommandError(str(refused)) from None
        if isinstance(done, AlreadyDone | Unchanged):
            self.stdout.write("nothing to change")
        else:
            self.stdout.write(f"the limit of the deployment is {said} a month")
