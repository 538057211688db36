"""A git repository becomes a project: its rows, its bare repository, its trunk and its index."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agents.workspace.git import Store, store_for
from agents.workspace.importing import (
    NOBODY,
    Imported,
    ImportWarning,
    import_into,
    incoming_directory,
    take_in,
    warnings_of,
)
from agents.workspace.remote import Access, Watch
from agents.workspace.sources import Source
from tasks.models import Trunk
from tasks.promotion import index_trunk
from tenants.audit import note
from tenants.errors import InvalidInput
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
    organization: Organization,
    *,
    name: str,
    slug: str,
    source: str,
    access: Access = NOBODY,
    by: User | None = None,
) -> ImportedProject:
    """Fetch a repository into a new project, or into one of that name that has none yet.

    Raises InvalidInput naming the field; then nothing is left: no row, no folder.
    """
    waiting = _waiting(organization, slug)
    if waiting is None:
        _must_be_possible(organization, name=name, slug=slug)
    with _incoming() as incoming:
        import_into(incoming, source, field="from", access=access)
        return _settle(
            incoming,
            lambda: waiting or create_project(organization, name=name, slug=slug, by=by),
            imported_from=source,
            by=by,
        )


def bring_in(
    project: Project,
    source: Source,
    *,
    shown: str,
    mark: str,
    access: Access,
    by: User | None,
    watch: Watch,
    finish: Callable[[Imported, tuple[str, ...]], None],
) -> None:
    """Fetch a repository into a project that has none. `finish` is called in the transaction of its rows, and what
    it raises takes all back. `mark` names the folder, so that another try removes what this one may leave.

    Raises InvalidInput; then the project is as it was. The index is the caller's, see `index_now`.
    """
    with _incoming(mark) as incoming:
        got = import_into(incoming, source, field="source", access=access, watch=watch)
        _settle(
            incoming, lambda: project, imported_from=shown, by=by,
            finish=lambda warnings: finish(got, warnings), indexes=False,
        )  # fmt: skip


def index_now(project: Project) -> None:
    """The file index of what came in."""
    index_trunk(project.pk, now=timezone.now())


def fill_project(
    project: Project, fill: Fill, *, imported_from: str, by: User | None = None
) -> ImportedProject:
    """Give a project without a repository one. When `fill` fails, the project is taken back."""
    try:
        with _incoming() as incoming:
            fill(incoming)
            return _settle(incoming, lambda: project, imported_from=imported_from, by=by)
    except BaseException:
        project.delete()
        raise


def _waiting(organization: Organization, slug: str) -> Project | None:
    """A project that somebody made in the browser or over REST, and that has no repository yet."""
    found: Project | None = (
        Project.objects.of_organization(organization.pk)
        .filter(slug=slug, trunk__isnull=True, archived_at__isnull=True)
        .first()
    )
    return found


def _must_be_possible(organization: Organization, *, name: str, slug: str) -> None:
    """The rules of a new project, asked before minutes of fetching."""
    with transaction.atomic():
        create_project(organization, name=name, slug=slug, by=None)
        transaction.set_rollback(True)


@contextmanager
def _incoming(mark: str = "") -> Iterator[Store]:
    with incoming_directory(settings.PLANE.data_dir / "git", mark) as place:
        yield Store(place)


def _settle(
    incoming: Store,
    project_of: Callable[[], Project],
    *,
    imported_from: str,
    by: User | None,
    finish: Callable[[tuple[str, ...]], None] = lambda _warnings: None,
    indexes: bool = True,
) -> ImportedProject:
    """All rows and the folder, or none of them; then the index, which the sweep would build as well."""
    commit = incoming.rev("refs/heads/main")
    files = incoming.tree_files(commit)
    warnings = tuple(_sentence(warning) for warning in warnings_of(incoming, commit))
    taken: Store | None = None
    try:
        with transaction.atomic():
            project: Project = Project.objects.select_for_update().get(pk=project_of().pk)
            if Trunk.objects.filter(project=project).exists():
                raise InvalidInput(
                    "slug", "this project has its repository already", "make another project",
                    code="already_imported",
                )  # fmt: skip
            Trunk.objects.create(
                project=project,
                commit=commit,
                imported_from=without_password(imported_from)[:SOURCE_CHARACTERS_MAX],
                warnings=list(warnings),
            )
            after = {"commit": commit, "files": len(files), "warnings": len(warnings)}
            note(project.organization, by, "project.imported", project.slug, after=after)
            finish(warnings)
            store = store_for(project.pk)
            take_in(incoming, store)
            taken = store
    except BaseException:
        if taken is not None:
            shutil.rmtree(taken.directory, ignore_errors=True)
        raise
    if indexes:
        index_now(project)
    return ImportedProject(project, len(files), warnings)


def without_password(source: str) -> str:
    """An address as it may be shown: what stands before the @ of a URL may be a key."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return source
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _sentence(warning: ImportWarning) -> str:
    if not warning.paths:
        return warning.text
    more = f" and {warning.count - len(warning.paths)} more" if warning.count > len(warning.paths) else ""
    return f"{warning.text}: {', '.join(warning.paths)}{more}"
