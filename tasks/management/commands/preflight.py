"""`manage.py preflight`: can attempts begin on this project, before any money is spent?"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import NoSandbox
from agents.workspace.deps import prepare
from agents.workspace.git import store_for
from agents.workspace.preflight import Preflight, preflight
from tenants.models import Project

OUTPUT_LINES_SHOWN = 15


class Command(BaseCommand):
    help = "Open a checkout of a project, run commands in its sandbox, and say what is missing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, help="its short name, as in addresses")
        parser.add_argument("--project", required=True, help="its short name, as in addresses")
        parser.add_argument("--commit", default="refs/heads/main", help="a commit; main when left out")
        parser.add_argument(
            "--command", action="append", default=[], dest="commands", help="one check; may be repeated"
        )
        parser.add_argument(
            "--prepare", action="store_true", help="install the dependencies first; needs the network"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        project = Project.objects.filter(
            organization__slug=options["organization"], slug=options["project"]
        ).first()
        if project is None:
            raise CommandError(f"there is no project {options['organization']}/{options['project']}")
        store = store_for(project.pk)
        commit = store.find(options["commit"]) if store.exists() else None
        if commit is None:
            raise CommandError(f"the project has no commit {options['commit']!r}; import a repository first")
        if options["prepare"]:
            try:
                prepare(store, commit)
            except NoSandbox as error:
                raise CommandError(str(error)) from error
        found = preflight(store, commit, options["commands"], trusted=project.trusted)
        self._show(found)
        if found.problems:
            raise CommandError(f"{len(found.problems)} problems: attempts would fail on them")

    def _show(self, found: Preflight) -> None:
        self.stdout.write(f"sandbox: tier {found.tier}, {found.tier.words}")
        self.stdout.write(f"files: {found.files}")
        for state in found.dependencies:
            self.stdout.write(f"dependencies ({state.kind}, {state.names}): {state.state}")
            self._lines(state.text)
        for check in found.checks:
            how = f"exit code {check.exit_code}" if check.exit_code is not None else check.reason
            self.stdout.write(f"$ {check.command}: {how}, {check.seconds:.1f} s")
            if not check.passed:
                self._lines(check.text)
        for warning in found.warnings:
            more = f": {', '.join(warning.paths)}" if warning.paths else ""
            self.stderr.write(self.style.WARNING(f"warning: {warning.text}{more}"))
        for problem in found.problems:
            self.stderr.write(self.style.ERROR(problem))

    def _lines(self, text: str) -> None:
        for line in text.splitlines()[-OUTPUT_LINES_SHOWN:]:
            self.stdout.write(f"    {line}")
