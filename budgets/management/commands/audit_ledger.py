"""`manage.py audit_ledger`: add up the books; exits with 1 when something is wrong."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from budgets.audit import audit_ledger


class Command(BaseCommand):
    help = "Checks every invariant of the ledger (I1 to I6), prints what is wrong, and exits non-zero then."

    def handle(self, *_args: Any, **_options: Any) -> None:
        problems = audit_ledger(timezone.now())
        for problem in problems:
            self.stdout.write(problem)
        if problems:
            raise CommandError(f"the ledger has {len(problems)} problems", returncode=1)
        self.stdout.write("the ledger is sound")
