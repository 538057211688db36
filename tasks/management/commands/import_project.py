"""`manage.py import_project`: any git repository becomes a project."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.text import slugify

from tasks.importing import import_project
from tenants.errors import InvalidInput
from tenants.models import Organization

# How the fields are called on this command line.
OPTION_OF = {"from": "--from", "name": "--name", "slug": "--slug", "organization": "--organization"}


class Command(BaseCommand):
    help = "Import a git repository (a path, a bundle, or an https or ssh address) as a new project."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, help="its short name, as in addresses")
        parser.add_argument("--name", required=True, help="what people call the project")
        parser.add_argument("--slug", default="", help="its short name; made from --name when left out")
        parser.add_argument(
            "--from", dest="source", required=True, help="a folder, a .bundle file, or an address"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        organization = Organization.objects.filter(slug=options["organization"]).first()
        if organization is None:
            raise CommandError(f"--organization: there is no organization called {options['organization']!r}")
        slug = options["slug"] or slugify(options["name"])[:63].strip("-")
        try:
            imported = import_project(organization, name=options["name"], slug=slug, source=options["source"])
        except InvalidInput as error:
            option = OPTION_OF.get(error.field, error.field)
            raise CommandError(f"{option}: {error.problem}. {error.remedy}") from error
        for warning in imported.warnings:
            self.stderr.write(self.style.WARNING(f"warning: {warning}"))
        project = imported.project
        self.stdout.write(f"{organization.slug}/{project.slug}: {imported.files} files, project {project.pk}")
