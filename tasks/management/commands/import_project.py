"""`manage.py import_project`: any git repository becomes a project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.text import slugify

from agents.workspace.remote import Access
from tasks.importing import import_project
from tenants.errors import InvalidInput
from tenants.models import Organization

# How the fields are called on this command line.
OPTION_OF = {"from": "--from", "name": "--name", "slug": "--slug", "organization": "--organization"}
PASSWORD_CHARACTERS_MAX = 4_000


class Command(BaseCommand):
    help = "Import a git repository (a path, a bundle, or an https or ssh address) as a new project."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, help="its short name, as in addresses")
        parser.add_argument("--name", required=True, help="what people call the project")
        parser.add_argument("--slug", default="", help="its short name; made from --name when left out")
        parser.add_argument(
            "--from", dest="source", required=True, help="a folder, a .bundle file, or an address"
        )

        parser.add_argument("--username", default="", help="who asks over https; left out: git")
        parser.add_argument(
            "--password-file",
            default="",
            help="file whose first line is the password or access token; - reads it from standard input",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        organization = Organization.objects.filter(slug=options["organization"]).first()
        if organization is None:
            raise CommandError(f"--organization: there is no organization called {options['organization']!r}")
        slug = options["slug"] or slugify(options["name"])[:63].strip("-")
        try:
            imported = import_project(
                organization,
                name=options["name"],
                slug=slug,
                source=options["source"],
                access=Access(options["username"], _password(options["password_file"])),
            )
        except InvalidInput as error:
            option = OPTION_OF.get(error.field, error.field)
            raise CommandError(f"{option}: {error.problem}. {error.remedy}") from error
        for warning in imported.warnings:
            self.stderr.write(self.style.WARNING(f"warning: {warning}"))
        project = imported.project
        self.stdout.write(f"{organization.slug}/{project.slug}: {imported.files} files, project {project.pk}")


def _password(place: str) -> str:
    """Never an argument: those are seen by everybody on the machine."""
    if not place:
        return ""
    try:
        with sys.stdin if place == "-" else Path(place).open(encoding="utf-8") as file:
            line = file.readline(PASSWORD_CHARACTERS_MAX).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--password-file: {place[:200]} cannot be read: {error}") from None
    if not line or not line.isprintable():
        raise CommandError("--password-file: its first line is empty or no password")
    return line
