"""A git repository becomes a project: its rows, its bare repository, its trunk and its index."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from agents.workspace.git import Store, store_for
from agents.workspace.importing import ImportWarning, import_into, warnings_of
from tasks.models import Trunk
from tasks.promotion import index_trunk
from tenants.audit import note
from tenants.members import create_project
from tenants.models import Organization, Project, User

SOURCE_CHARACTERS_MAX = 500
Fill = Callable[[Store], None]


@dataclass(frozen=True, slots=True)
class ImportedProject:
    project: Project
    files: int
    warnings: tuple[str, ...]


def import_project(
    organization: Organization, *, name: str, slug: str, source: str, by: User | None = None
) -> ImportedProject:
    """Fetch a repository into a new project. Raises InvalidInput naming the field; no project is left then."""
    project = create_project(organization, name=name, slug=slug, by=by)
    return fill_project(project, lambda store: _fetch(store, source), imported_from=source, by=by)


def fill_project(
    project: Project, fill: Fill, *, imported_from: str, by: User | None = None
) -> ImportedProject:
    """Give a project without a repository one. When `fill` fails, the project is taken back."""
    store = store_for(project.pk)
    try:
        fill(store)
    except BaseException:
        project.delete()
        shutil.rmtree(store.directory, ignore_errors=True)
        raise
    commit = store.rev("refs/heads/main")
    files = store.tree_files(commit)
    warnings = tuple(_sentence(warning) for warning in warnings_of(store, commit))
    with transaction.atomic():
        Trunk.objects.create(
            project=project,
            commit=commit,
            imported_from=without_password(imported_from)[:SOURCE_CHARACTERS_MAX],
            warnings=list(warnings),
        )
        after = {"commit": commit, "files": len(files), "warnings": len(warnings)}
        note(project.organization, by, "project.imported", project.slug, after=after)
    index_trunk(project.pk, now=timezone.now())
    return ImportedProject(project, len(files), warnings)


def without_password(source: str) -> str:
    """An address as it may be shown: what stands before the @ of a URL may be a key."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return source
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _fetch(store: Store, source: str) -> None:
    import_into(store, source, field="from")


def _sentence(warning: ImportWarning) -> str:
    if not warning.paths:
        return warning.text
    more = f" and {warning.count - len(warning.paths)} more" if warning.count > len(warning.paths) else ""
    return f"{warning.text}: {', '.join(warning.paths)}{more}"
