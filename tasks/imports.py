"""Imports that people ask for: a row, a worker that does it, a result or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.errors import GitError
from agents.workspace.access import opened_access, seal_password
from agents.workspace.importing import Imported, bundle_at
from agents.workspace.remote import Access
from agents.workspace.sources import ADDRESS_CHARACTERS_MAX, Source, Way, read_source
from tasks.errors import LostRace, StillOpen
from tasks.importing import bring_in, index_now, without_password
from tasks.models import ProjectImport, Trunk
from tasks.owners import is_surely_dead, this_process
from tasks.states import OPEN_IMPORTS, ImportState
from tasks.transitions import move_import
from tasks.uploads import Upload, bundle_path, forget_bundle, shown_name
from tasks.wake import wake_import
from tenants import text
from tenants.apart import apart
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Organization, Project, User

if TYPE_CHECKING:
    from tasks.reads import Person

USERNAME_CHARACTERS_MAX = 200
PASSWORD_CHARACTERS_MAX = 4_000
KEPT_MAX = 20  # per project; older ones go when a new one is asked for
# A worker that is silent this long is dead; it says every few seconds that it is not.
LEASE_SECONDS = 120
BEAT_SECONDS = 20
TELL_SECONDS = 2
# A repository that kills its worker each time must not do so for ever.
TRIES_MAX = 3
# A password is not kept for a worker that never comes.
WAITS_HOURS_MAX = 24
WOKEN_PER_SWEEP_MAX = 100
EVERY_ORGANIZATION = "*"
assert LEASE_SECONDS >= 4 * BEAT_SECONDS, "a lease must outlive missed beats"

_ACCESS = "Give a user name and a password or access token that the server knows."
# What helps here, where the command's remedy would name an option of the command.
REMEDIES = {
    "bad_source": "Give https://… or ssh://…, or upload a bundle.",
    "access_denied": _ACCESS,
    "credentials_in_address": "Leave out what stands before the @, and give it as user name and password.",
    "empty_repository": "Push a first commit there, then bring it in.",
    "already_imported": "Make another project for another repository.",
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WantedImport:
    """An address as a person or client wrote it, with what opens it once."""

    source: str
    username: str = ""
    password: str = ""


def request_import(project: Project, wanted: WantedImport, *, by: User, now: datetime) -> ProjectImport:
    """Queue one from an address. Raises InvalidInput, or StillOpen while the project's last one has not ended."""
    can_take_one(project)
    source = _read(wanted, project.organization)
    columns = {
        "source": without_password(source.address),
        "username": wanted.username.strip() if source.way is Way.HTTPS else "",
        "sealed_password": seal_password(wanted.password),
    }
    return _queue(project, columns, by=by, now=now)


def request_bundle_import(
    project: Project, upload: Upload, name: str, *, by: User, now: datetime
) -> ProjectImport:
    """Queue one from a file that was sent. Raises like `request_import`; then the file is still the caller's."""
    can_take_one(project)
    upload.check()
    columns = {"source": shown_name(name), "is_bundle": True, "received_bytes": upload.bytes}
    return _queue(project, columns, by=by, now=now, keep=upload.keep)


def can_take_one(project: Project) -> None:
    """Asked before anything is received. Raises InvalidInput or StillOpen."""
    if project.archived_at is not None:
        raise InvalidInput("", "the project is archived", "Bring it back first.", code="project_archived")
    if Trunk.objects.filter(project=project).exists():
        raise InvalidInput(
            "",
            "this project has its repository already",
            REMEDIES["already_imported"],
            code="already_imported",
        )
    if ProjectImport.objects.filter(project=project, state__in=OPEN_IMPORTS).exists():
        raise _still_open()


def cancel_import(found: ProjectImport, *, by: User, now: datetime) -> None:
    """End it; what its worker runs is killed within seconds. Raises IllegalMove for one that has ended."""
    with transaction.atomic():
        locked: ProjectImport = (
            ProjectImport.objects.select_for_update(of=("self",))
            .select_related("project__organization")
            .get(pk=found.pk)
        )
        move_import(locked, ImportState.CANCELLED, now=now)
        note(locked.project.organization, by, "import.cancelled", locked.project.slug)
        transaction.on_commit(partial(forget_bundle, locked.pk))
    found.refresh_from_db()


def run_import(import_id: UUID) -> None:
    """Take it if it is due and nobody has it, and do it. Safe to call twice, late, or by two workers at once."""
    taken = _take(import_id, now=timezone.now())
    if taken is None:
        return
    try:
        _do(taken)
    except LostRace as lost:
        log.info("an import is somebody else's now", project_import=str(import_id), lost=str(lost))
        return
    except InvalidInput as refused:
        with apart("end_of_import", project_import=str(import_id)):
            taken.refuse(refused.code, refused.problem, REMEDIES.get(refused.code, refused.remedy))
        return
    except Exception as fault:
        log.exception("an import broke", project_import=str(import_id))
        with apart("end_of_import", project_import=str(import_id)):
            said = str(fault) if isinstance(fault, GitError) else type(fault).__name__
            taken.refuse(
                "internal_error", f"internal fault: {said}", "Try again; the worker's log says more about it."
            )
        return
    with apart("index_after_import", project_import=str(import_id)):  # the sweep would build it as well
        index_now(taken.row.project)


def due_imports(now: datetime) -> QuerySet[ProjectImport]:
    """Those that wait, and those whose worker's lease has ended."""
    return ProjectImport.objects.filter(state__in=OPEN_IMPORTS, not_before__lte=now)


def wake_due_imports(now: datetime) -> int:
    """The sweep's share: lost wakes, and imports of dead workers. How many were woken."""
    running = ProjectImport.objects.filter(state=ImportState.RUNNING, not_before__gt=now)
    for pk, key in running.values_list("pk", "work_key"):
        if is_surely_dead(key.rpartition(":")[0]):
            ProjectImport.objects.filter(pk=pk, work_key=key).update(not_before=now)
    due = list(due_imports(now).values_list("pk", flat=True)[:WOKEN_PER_SWEEP_MAX])
    for import_id in due:
        wake_import(import_id)
    return len(due)


def end_forgotten_imports(now: datetime) -> int:
    """Those that no worker took in a day; with them ends what they keep. How many ended."""
    old = due_imports(now).filter(created_at__lt=now - timedelta(hours=WAITS_HOURS_MAX))
    ended = 0
    for row in old[:WOKEN_PER_SWEEP_MAX]:
        why = {"code": "not_taken", "problem": f"no worker took it in {WAITS_HOURS_MAX} hours"}
        also = why | {"remedy": "Ask again when workers run."}
        ended += _moved(row, ImportState.FAILED, now, also)
        forget_bundle(row.pk)
    return ended


def imports_of(project: Project) -> QuerySet[ProjectImport]:
    """The last ones, newest first."""
    return (
        ProjectImport.objects.filter(project=project).select_related("by", "project").order_by("-created_at")
    )


def import_for(user: Person, import_id: UUID) -> ProjectImport:
    """One that this person sees. Raises NotVisible."""
    rows = ProjectImport.objects.visible_to(user).select_related("by", "project__organization")
    found: ProjectImport | None = rows.filter(pk=import_id).first()
    if found is None:
        raise NotVisible("import")
    return found


def is_shared_with(organization: Organization) -> bool:
    """Whether its admins may import with the deployment's own credentials and ssh key."""
    named = settings.PLANE.git_organizations
    return EVERY_ORGANIZATION in named or organization.slug in named


@dataclass(frozen=True, slots=True)
class Repository:
    """What a project has, and the newest import when that is worth a word."""

    trunk: Trunk | None
    newest: ProjectImport | None

    @property
    def is_live(self) -> bool:
        return self.newest is not None and self.newest.state in OPEN_IMPORTS

    @property
    def facts(self) -> tuple[object, ...]:
        """What a page that shows it is a picture of."""
        new, trunk = self.newest, self.trunk
        moving = (new.pk, new.state, new.step, new.received_bytes, new.tries) if new else ()
        return (*moving, trunk.generation if trunk else 0)


def repository_of(project: Project) -> Repository:
    trunk: Trunk | None = Trunk.objects.filter(project=project).first()
    return Repository(trunk, imports_of(project).first())


class _Taken:
    """One worker's hold on an import. Every write names the key; whoever lost it gets `LostRace`."""

    def __init__(self, row: ProjectImport, key: str, now: datetime) -> None:
        self.row, self.key, self.renewed_at = row, key, now

    def watch(self, step: str, received: int) -> None:
        """Tell how far it is. Raises `LostRace` once it is cancelled or another worker's."""
        now = timezone.now()
        silent = (now - self.renewed_at).total_seconds()
        news = received > self.row.received_bytes and silent >= TELL_SECONDS
        if news or step != self.row.step or silent >= BEAT_SECONDS:
            self.row.step, self.row.received_bytes = step[:200], max(received, self.row.received_bytes)
            until = now + timedelta(seconds=LEASE_SECONDS)
            columns = {"step": self.row.step, "received_bytes": self.row.received_bytes}
            if not self._mine().update(not_before=until, **columns):
                raise LostRace(self.row)
            self.renewed_at = now
        elif not self._mine().exists():
            raise LostRace(self.row)

    def finish(self, got: Imported, warnings: tuple[str, ...]) -> None:
        """In the transaction that makes the project's rows: whoever lost the import makes none."""
        found = {
            "commit": got.commit,
            "branch": _plain(got.branch),
            "files": got.files,
            "bytes": got.bytes,
            "warnings": [_plain(each) for each in warnings],
        }
        move_import(self.row, ImportState.DONE, now=timezone.now(), also={"found": found})
        transaction.on_commit(partial(forget_bundle, self.row.pk))

    def refuse(self, code: str, problem: str, remedy: str) -> None:
        self.row.refresh_from_db()  # a transaction that was taken back leaves its values on the object
        if self.row.work_key != self.key:
            return
        also = {"code": code[:60], "problem": _plain(problem), "remedy": _plain(remedy)}
        if _moved(self.row, ImportState.FAILED, timezone.now(), also):
            forget_bundle(self.row.pk)

    def _mine(self) -> QuerySet[ProjectImport]:
        return ProjectImport.objects.filter(pk=self.row.pk, state=ImportState.RUNNING, work_key=self.key)


def _read(wanted: WantedImport, organization: Organization) -> Source:
    address = text.one_line("source", wanted.source, characters_max=ADDRESS_CHARACTERS_MAX)
    try:
        source = read_source(address, "source")
    except InvalidInput as refused:
        remedy = REMEDIES.get(refused.code, refused.remedy)
        raise InvalidInput("source", refused.problem, remedy, code=refused.code) from None
    if not source.is_remote:
        raise InvalidInput(
            "source", "is a place on the server's own disk, which is not reached from here",
            "Give https://… or ssh://…, or upload a bundle.",
            code="local_source",
        )  # fmt: skip
    shared = is_shared_with(organization)
    if source.way is Way.SSH:
        _must_open_ssh(wanted, shared=shared)
    text.one_line("username", wanted.username, characters_max=USERNAME_CHARACTERS_MAX, required=False)
    password = wanted.password
    if len(password) > PASSWORD_CHARACTERS_MAX or not password.isprintable():
        raise InvalidInput(
            "password", "cannot be one", f"Send at most {PASSWORD_CHARACTERS_MAX:,} printable characters."
        )
    if wanted.username.strip() and not password and not shared:
        raise InvalidInput("password", "is missing", "A name alone opens nothing: give both, or neither.")
    return source


def _must_open_ssh(wanted: WantedImport, *, shared: bool) -> None:
    if wanted.password or wanted.username.strip():
        raise InvalidInput(
            "password" if wanted.password else "username", "is of no use over ssh",
            "Leave it out, or give an https:// address.",
        )  # fmt: skip
    if not shared:
        raise InvalidInput(
            "source", "goes over ssh, and the deployment's ssh key is not for this organization",
            "Give an https:// address with an access token, or ask the operator to name this organization in "
            "REMIT_GIT_ORGANIZATIONS.",
            code="key_not_shared",
        )  # fmt: skip


def _queue(
    project: Project,
    columns: Mapping[str, Any],
    *,
    by: User,
    now: datetime,
    keep: Callable[[UUID], None] = lambda _import_id: None,
) -> ProjectImport:
    try:
        with transaction.atomic():
            made: ProjectImport = ProjectImport.objects.create(
                project=project, by=by, not_before=now, created_at=now, **columns
            )
            note(project.organization, by, "import.requested", project.slug, after={"from": made.source})
            _forget_old(project)
            keep(made.pk)
            wake_import(made.pk)
    except IntegrityError:
        raise _still_open() from None
    return made


def _still_open() -> StillOpen:
    return StillOpen(
        "an import of this project has not ended", "Wait for it, or cancel it first.", code="import_open"
    )


def _take(import_id: UUID, *, now: datetime) -> _Taken | None:
    rows = due_imports(now).select_related("project__organization", "by")
    row: ProjectImport | None = rows.filter(pk=import_id).first()
    if row is None:
        return None
    if row.tries >= TRIES_MAX:
        problem = f"{TRIES_MAX} workers died over it"
        also = {
            "code": "workers_died",
            "problem": problem,
            "remedy": "The operator finds more in the workers' logs.",
        }
        if _moved(row, ImportState.FAILED, now, also):
            forget_bundle(row.pk)
        return None
    key = f"{this_process()}:{uuid4().hex}"
    taking = {
        "work_key": key,
        "not_before": now + timedelta(seconds=LEASE_SECONDS),
        "tries": row.tries + 1,
        "started_at": now,
        "step": "",
    }
    if not _moved(row, ImportState.RUNNING, now, taking):
        return None
    return _Taken(row, key, now)


def _moved(row: ProjectImport, to: ImportState, now: datetime, also: Mapping[str, Any]) -> bool:
    try:
        move_import(row, to, now=now, also=also)
    except LostRace:
        return False
    return True


def _do(taken: _Taken) -> None:
    row = taken.row
    if row.is_bundle:
        source, access = _bundle_of(row), Access(shared=False)
    else:
        source = read_source(row.source, "source")
        if not source.is_remote:
            raise InvalidInput("source", "is a place on the server's own disk", "", code="local_source")
        shared = is_shared_with(row.project.organization)
        access = opened_access(row.username, row.sealed_password, shared=shared, field="password")
    bring_in(
        row.project,
        source,
        shown=f"{row.source} (a bundle)" if row.is_bundle else row.source,
        mark=row.pk.hex,
        access=access,
        by=row.by,
        watch=taken.watch,
        finish=taken.finish,
    )


def _bundle_of(row: ProjectImport) -> Source:
    path = bundle_path(row.pk)
    if not path.is_file():
        raise InvalidInput("bundle", "the file is not there any more", "Upload it again.", code="bundle_gone")
    return bundle_at(path, "bundle")


def _plain(value: str) -> str:
    """No NUL and no half of a character: no database keeps one."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def _forget_old(project: Project) -> None:
    kept = list(imports_of(project).values_list("pk", flat=True)[:KEPT_MAX])
    ProjectImport.objects.filter(project=project).exclude(pk__in=kept).delete()
