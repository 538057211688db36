"""Preflights: asked for by a person, done by a worker, told while it works. They cost no money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from agents.workspace import preflight as engine
from agents.workspace.git import store_for
from tasks.errors import LostRace, StillOpen
from tasks.models import Criterion, Preflight
from tasks.owners import is_surely_dead, this_process
from tasks.states import OPEN_PREFLIGHTS, PreflightState
from tasks.transitions import move_preflight
from tasks.wake import wake_preflight
from tasks.wanted import COMMAND_CHARACTERS_MAX, why_no_command
from tenants import text
from tenants.apart import apart
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Project, User

if TYPE_CHECKING:
    from tasks.reads import Person

COMMANDS_MAX = 20
SUGGESTED_MAX = 10
KEPT_MAX = 20  # per project; older ones go when a new one is asked for
OUTPUT_CHARACTERS_KEPT = 12_000  # of one check
# A worker that is silent this long is dead; it says every few seconds that it is not.
LEASE_SECONDS = 120
BEAT_SECONDS = 20
# A commit that kills its worker each time must not do so for ever.
TRIES_MAX = 3
WOKEN_PER_SWEEP_MAX = 100
ENDED = (PreflightState.PASSED, PreflightState.FAILED)
assert LEASE_SECONDS >= 4 * BEAT_SECONDS, "a lease must outlive missed beats"

log = structlog.get_logger(__name__)


def read_commands(value: object) -> list[str]:
    """Commands as a person or client wrote them, checked like those of criteria. Raises InvalidInput."""
    if not isinstance(value, list) or len(value) > COMMANDS_MAX:
        raise InvalidInput("commands", "is no short list", f"Send at most {COMMANDS_MAX} commands.")
    return [_command(f"commands[{at}]", each) for at, each in enumerate(value)]


def suggested_commands(project: Project) -> list[str]:
    """What to try: the last Preflight's commands, or else those of the newest criteria."""
    last: Preflight | None = project.preflights.order_by("-created_at").first()
    if last is not None:
        return [str(each) for each in last.commands]
    rows = Criterion.objects.filter(change__project=project).exclude(command="").order_by("-change__number")
    known = rows.values_list("command", flat=True)[: 10 * SUGGESTED_MAX]
    return list(dict.fromkeys(known))[:SUGGESTED_MAX]


def request_preflight(
    project: Project, commands: Sequence[str], *, prepares: bool, by: User, now: datetime
) -> Preflight:
    """Queue one. Raises InvalidInput, or StillOpen while the project's last one has not ended."""
    wanted = read_commands(list(commands))
    if project.archived_at is not None:
        raise InvalidInput("", "the project is archived", "Bring it back first.", code="project_archived")
    if store_for(project.pk).commit_of_main() is None:
        raise InvalidInput("", "the project has no repository", "Import one first.", code="no_repository")
    try:
        with transaction.atomic():
            made: Preflight = Preflight.objects.create(
                project=project, by=by, commands=wanted, prepares=prepares, not_before=now, created_at=now
            )
            note(project.organization, by, "preflight.started", project.slug, after={"commands": wanted})
            _forget_old(project)
            wake_preflight(made.pk)
    except IntegrityError:
        raise StillOpen(
            "a preflight of this project has not ended", "Wait for it, or cancel it first."
        ) from None
    return made


def cancel_preflight(preflight: Preflight, *, by: User, now: datetime) -> None:
    """End it; what its worker runs is killed at the next beat. Raises IllegalMove for one that has ended."""
    with transaction.atomic():
        locked: Preflight = (
            Preflight.objects.select_for_update(of=("self",))
            .select_related("project__organization")
            .get(pk=preflight.pk)
        )
        move_preflight(locked, PreflightState.CANCELLED, now=now)
        note(locked.project.organization, by, "preflight.cancelled", locked.project.slug)
    preflight.refresh_from_db()


def run_preflight(preflight_id: UUID) -> None:
    """Take it if it is due and nobody has it, and do it. Safe to call twice, late, or by two workers at once."""
    taken = _take(preflight_id, now=timezone.now())
    if taken is None:
        return
    try:
        found = _do(taken)
        taken.end(found)
    except LostRace as lost:
        log.info("a preflight is somebody else's now", preflight=str(preflight_id), lost=str(lost))
    except Exception as fault:
        log.exception("a preflight broke", preflight=str(preflight_id))
        with apart("end_of_preflight", preflight=str(preflight_id)):
            taken.end({"problems": [f"internal fault: {type(fault).__name__}; it is in the worker's log"]})


def due_preflights(now: datetime) -> QuerySet[Preflight]:
    """Those that wait, and those whose worker's lease has ended."""
    return Preflight.objects.filter(state__in=OPEN_PREFLIGHTS, not_before__lte=now)


def wake_due_preflights(now: datetime) -> int:
    """The sweep's share: lost wakes, and Preflights of dead workers. How many were woken."""
    running = Preflight.objects.filter(state=PreflightState.RUNNING, not_before__gt=now)
    for pk, key in running.values_list("pk", "work_key"):
        if is_surely_dead(key.rpartition(":")[0]):
            Preflight.objects.filter(pk=pk, work_key=key).update(not_before=now)
    due = list(due_preflights(now).values_list("pk", flat=True)[:WOKEN_PER_SWEEP_MAX])
    for preflight_id in due:
        wake_preflight(preflight_id)
    return len(due)


def preflights_of(project: Project) -> QuerySet[Preflight]:
    """The last ones, newest first."""
    return Preflight.objects.filter(project=project).select_related("by", "project").order_by("-created_at")


def failing_for(user: Person) -> QuerySet[Preflight]:
    """The newest ended Preflight of each project that this person sees, where it did not pass."""
    newer = Preflight.objects.filter(
        project=OuterRef("project"), state__in=ENDED, created_at__gt=OuterRef("created_at")
    )
    return (
        Preflight.objects.visible_to(user)
        .filter(state=PreflightState.FAILED, project__archived_at=None)
        .filter(~Q(Exists(newer)))
        .select_related("project")
        .order_by("project__name")
    )


def preflight_for(user: Person, preflight_id: UUID) -> Preflight:
    """One that this person sees. Raises NotVisible."""
    rows = Preflight.objects.visible_to(user).select_related("by", "project__organization")
    found: Preflight | None = rows.filter(pk=preflight_id).first()
    if found is None:
        raise NotVisible("preflight")
    return found


def newest_ended(project: Project) -> Preflight | None:
    found: Preflight | None = preflights_of(project).filter(state__in=ENDED).first()
    return found


class _Taken:
    """One worker's hold on a Preflight. Every write names the key; whoever lost it gets `LostRace`."""

    def __init__(self, row: Preflight, key: str, now: datetime) -> None:
        self.row, self.key, self.renewed_at = row, key, now

    def beat(self) -> None:
        now = timezone.now()
        if now - self.renewed_at >= timedelta(seconds=BEAT_SECONDS):
            self._write(now)
        elif not self._mine().exists():
            raise LostRace(self.row)

    def tell(self, step: str, found: engine.Preflight) -> None:
        self._write(timezone.now(), step=step[:200], found=_as_data(found))

    def end(self, found: Mapping[str, Any]) -> None:
        to = PreflightState.FAILED if found.get("problems") else PreflightState.PASSED
        now = timezone.now()
        move_preflight(self.row, to, now=now, also={"found": dict(found)})

    def _write(self, now: datetime, **columns: Any) -> None:
        until = now + timedelta(seconds=LEASE_SECONDS)
        if not self._mine().update(not_before=until, **columns):
            raise LostRace(self.row)
        self.renewed_at = now

    def _mine(self) -> QuerySet[Preflight]:
        return Preflight.objects.filter(pk=self.row.pk, state=PreflightState.RUNNING, work_key=self.key)


def _take(preflight_id: UUID, *, now: datetime) -> _Taken | None:
    row: Preflight | None = (
        due_preflights(now).select_related("project__organization").filter(pk=preflight_id).first()
    )
    if row is None:
        return None
    key = f"{this_process()}:{uuid4().hex}"
    if row.tries >= TRIES_MAX:
        problems = [*row.problems, f"{TRIES_MAX} workers died over it"]
        _moved(row, PreflightState.FAILED, now, {"found": row.found | {"problems": problems}})
        return None
    also = {
        "work_key": key,
        "not_before": now + timedelta(seconds=LEASE_SECONDS),
        "tries": row.tries + 1,
        "started_at": now,
        "commit": store_for(row.project_id).commit_of_main() or "",
        "found": {},
    }
    if not _moved(row, PreflightState.RUNNING, now, also):
        return None
    row.refresh_from_db()
    return _Taken(row, key, now)


def _moved(row: Preflight, to: PreflightState, now: datetime, also: Mapping[str, Any]) -> bool:
    try:
        move_preflight(row, to, now=now, also=also)
    except LostRace:
        return False
    return True


def _do(taken: _Taken) -> dict[str, Any]:
    row = taken.row
    if not row.commit:
        return {"problems": ["the project has no repository any more"]}
    found = engine.preflight(
        store_for(row.project_id),
        row.commit,
        row.commands,
        trusted=row.project.trusted,
        prepares=row.prepares,
        beat=taken.beat,
        tell=taken.tell,
    )
    return _as_data(found)


def _as_data(found: engine.Preflight) -> dict[str, Any]:
    """As plain JSON that any database keeps."""
    return {
        "tier": found.tier.value,
        "tier_words": found.tier.words,
        "files": found.files,
        "checkout_seconds": _rounded(found.checkout_seconds),
        "problems": [_plain(each) for each in found.problems],
        "warnings": [
            {"text": _plain(each.text), "paths": [_plain(path) for path in each.paths], "count": each.count}
            for each in found.warnings
        ],
        "dependencies": [
            {name: _plain(value) for name, value in asdict(each).items() if name != "key"}
            for each in found.dependencies
        ],
        "checks": [
            {
                "command": _plain(each.command),
                "exit_code": each.exit_code,
                "reason": each.reason,
                "passed": each.passed,
                "seconds": _rounded(each.seconds),
                "output": _plain(each.text[-OUTPUT_CHARACTERS_KEPT:]),
            }
            for each in found.checks
        ],
        "missing": [_plain(each) for each in found.missing],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _plain(value: object) -> str:
    """No NUL and no half of a character: no database keeps one."""
    said = str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return said.encode("utf-8", "replace").decode("utf-8")


def _command(field: str, value: object) -> str:
    command = text.one_line(field, value, characters_max=COMMAND_CHARACTERS_MAX)
    problem = why_no_command(command)
    if problem:
        raise InvalidInput(
            field, problem, 'Write it like "python3 -m unittest", or put the steps into a script.'
        )
    return command


def _forget_old(project: Project) -> None:
    kept = list(preflights_of(project).values_list("pk", flat=True)[:KEPT_MAX])
    Preflight.objects.filter(project=project).exclude(pk__in=kept).delete()
