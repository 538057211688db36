"""Main moves by compare-and-swap: objects, the ref, the rows. A crash in between is mended by asking again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import F, Q

from agents.errors import LostRef
from agents.index import build_index
from agents.workspace.git import store_for
from tasks.errors import IllegalMove
from tasks.events import record, write_receipt
from tasks.fence import make_due
from tasks.models import Candidate, Change, Trunk
from tasks.owners import is_surely_dead, this_process
from tasks.states import CHANGE_MOVES, CandidateState, ChangeState
from tasks.transitions import locked_change, move_candidate, move_change
from tenants.apart import apart
from tenants.audit import note
from tenants.models import User

TRUNKS_INDEXED_MAX = 20  # in one sweep
INDEX_SECONDS_MAX = 1_800  # of one build; then its worker counts as lost
PROMOTED_FROM = (ChangeState.READY, ChangeState.COMPOSING)


@dataclass(frozen=True, slots=True)
class Promoted:
    generation: int
    commit: str


@dataclass(frozen=True, slots=True)
class Stale:
    """Main moved since this Candidate was composed: the Change is composed anew, nothing was forced."""

    main: str


def promote(candidate: Candidate, *, by: User | None, now: datetime) -> Promoted | Stale:
    """Make a Candidate that passed the project's main branch. `by` None: the project promotes by itself.

    Safe to repeat: whoever comes second, or after a crash, finds it done. Raises IllegalMove for a
    Candidate that did not pass, or that is not the newest of its Change.
    """
    _may_be_promoted(candidate)
    project_id = candidate.change.project_id
    settle_trunk(project_id, now=now)
    candidate.refresh_from_db()
    if candidate.state != CandidateState.PROMOTED:
        _announce(candidate, by=by)
        store = store_for(project_id)
        try:
            if candidate.commit != candidate.base_commit:
                store.promote(candidate.commit, candidate.base_commit, candidate.pk)
        except LostRef:
            pass  # who moved it is read below
        if store.commit_of_main() != candidate.commit:
            _stale(candidate, now=now)
        else:
            _write_rows(candidate, now=now)
    if candidate.state != CandidateState.PROMOTED:
        return Stale(store_for(project_id).commit_of_main() or "")
    trunk = index_trunk(project_id, now=now)
    return Promoted(trunk.generation, candidate.commit)


def settle_trunk(project_id: UUID, *, now: datetime) -> Trunk:
    """Bring the row to where git's main is: a worker may have died between the ref and the row."""
    trunk: Trunk = Trunk.objects.get(project_id=project_id)
    main = store_for(trunk.project_id).commit_of_main()
    if main is None or main == trunk.commit:
        return trunk
    passed = Candidate.objects.filter(
        change__project_id=project_id, state=CandidateState.PASSED, base_commit=trunk.commit, commit=main
    )
    candidate: Candidate | None = passed.select_related("change__project").first()
    if candidate is not None:
        _write_rows(candidate, now=now)
    else:
        _advance(trunk.project_id, old=trunk.commit, new=main, now=now)
    trunk.refresh_from_db()
    return trunk


def main_of(project_id: UUID) -> str | None:
    """The commit that the rows know as main; None for a project without a repository."""
    found: str | None = Trunk.objects.filter(project_id=project_id).values_list("commit", flat=True).first()
    return found


def index_trunk(project_id: UUID, *, now: datetime) -> Trunk:
    """Build the file index of the newest tree (row 212), unless a living worker is at it. Safe to repeat."""
    trunk: Trunk = Trunk.objects.get(project_id=project_id)
    owner = f"{this_process()}:{uuid4().hex}"
    if trunk.indexed_generation < trunk.generation and _claim_index(trunk, owner, now=now):
        mine = Trunk.objects.filter(pk=trunk.pk, index_owner=owner)
        try:
            trunk.refresh_from_db()
            build_index(trunk.project_id, trunk.commit, now=now)
            Trunk.objects.filter(pk=trunk.pk, indexed_generation__lt=trunk.generation).update(
                indexed_generation=trunk.generation
            )
        finally:
            mine.update(index_owner="", index_until=None)
        trunk.refresh_from_db()
    return trunk


def _claim_index(trunk: Trunk, owner: str, *, now: datetime) -> bool:
    """One builder at a time: two would read and embed the same files. A dead one's claim is taken at once."""
    free = Q(index_owner="") | Q(index_until__lte=now)
    if trunk.index_owner and is_surely_dead(trunk.index_owner.rpartition(":")[0]):
        free |= Q(index_owner=trunk.index_owner)
    until = now + timedelta(seconds=INDEX_SECONDS_MAX)
    rows = Trunk.objects.filter(free, pk=trunk.pk)
    return bool(rows.update(index_owner=owner, index_until=until))


def index_trunks_behind(now: datetime) -> int:
    """For the sweep: a worker may have died between the promotion and its index."""
    behind = Trunk.objects.filter(indexed_generation__lt=F("generation"))
    ids = list(behind.values_list("project_id", flat=True)[:TRUNKS_INDEXED_MAX])
    for project_id in ids:
        with apart("index_trunk", project=str(project_id)):
            index_trunk(project_id, now=now)
    return len(ids)


def _may_be_promoted(candidate: Candidate) -> None:
    change = candidate.change
    newest = change.candidates.order_by("-number").first()
    if candidate.state == CandidateState.PROMOTED:
        return
    if candidate.state != CandidateState.PASSED or candidate != newest:
        raise IllegalMove(candidate, CandidateState.PROMOTED)
    if change.state not in PROMOTED_FROM:
        raise IllegalMove(change, ChangeState.PROMOTED)


@transaction.atomic
def _announce(candidate: Candidate, *, by: User | None) -> None:
    """The last look before the ref moves: what was cancelled or sent back since it was read stays out of main.

    Says who promotes, so that whoever mends a crash knows it. Raises IllegalMove.
    """
    locked_change(candidate.change_id)
    fresh: Candidate = Candidate.objects.select_related("change").get(pk=candidate.pk)
    _may_be_promoted(fresh)
    if fresh.state != CandidateState.PROMOTED:
        Candidate.objects.filter(pk=fresh.pk).update(promoted_by=by)


@transaction.atomic
def _write_rows(candidate: Candidate, *, now: datetime) -> None:
    """Main holds the commit: the rows follow, whatever became of the Change since `_announce`.

    The second of two promoters finds the rows written, and writes nothing. A Candidate put aside meanwhile
    stays so: its Change is composed anew, on a main that has its work already.
    """
    change = locked_change(candidate.change_id)
    fresh: Candidate = Candidate.objects.get(pk=candidate.pk)
    if fresh.state == CandidateState.PROMOTED:
        candidate.refresh_from_db()
        return
    generation = _advance(change.project_id, old=fresh.base_commit, new=fresh.commit, now=now)
    if fresh.state != CandidateState.PASSED:
        candidate.refresh_from_db()
        return
    by, was = fresh.promoted_by, ChangeState(change.state)
    move_candidate(fresh, CandidateState.PROMOTED, because="promoted", now=now)
    if ChangeState.PROMOTED in CHANGE_MOVES[was]:
        also = {"work_key": "", "not_before": None}
        move_change(change, ChangeState.PROMOTED, because="promoted", now=now, also=also)
    detail = {
        "candidate": fresh.number,
        "from": fresh.base_commit,
        "to": fresh.commit,
        "generation": generation,
        "by": str(by.pk) if by else None,
    }
    reasons = ["by_person" if by else "by_project_rule", "every_criterion_passed"]
    if was not in PROMOTED_FROM:
        reasons.append(f"main_had_moved_when_{was}")
    write_receipt("promotion", "promoted", change=change, reasons=reasons, detail=detail, now=now)
    key = f"trunk.promoted:{fresh.pk}"
    record("trunk.promoted", change=change, data=detail, key=key, now=now)
    note(
        change.organization,
        by,
        "change.promoted",
        change.key,
        before={"commit": fresh.base_commit},
        after={"commit": fresh.commit, "generation": generation},
    )
    candidate.refresh_from_db()


def _advance(project_id: UUID, *, old: str, new: str, now: datetime) -> int:
    """One generation on, from the commit we knew. Without a row that still knows it, somebody wrote it already."""
    trunk = Trunk.objects.filter(project_id=project_id)
    if old != new:
        trunk.filter(commit=old).update(commit=new, generation=F("generation") + 1, updated_at=now)
    generation: int = trunk.values_list("generation", flat=True).get()
    return generation


@transaction.atomic
def _stale(candidate: Candidate, *, now: datetime) -> None:
    change = locked_change(candidate.change_id)
    fresh: Candidate = Candidate.objects.get(pk=candidate.pk)
    if fresh.state == CandidateState.PASSED:
        move_candidate(fresh, CandidateState.STALE, because="main_moved", now=now)
        if change.state == ChangeState.READY:
            move_change(change, ChangeState.COMPOSING, because="main_moved", now=now)
        detail = {"candidate": fresh.number, "base": fresh.base_commit}
        write_receipt("promotion", "stale", change=change, reasons=["main_moved"], detail=detail, now=now)
        make_due(change, now=now)
    candidate.refresh_from_db()


def newest_candidate(change: Change) -> Candidate | None:
    """The one that people look at and may promote."""
    candidate: Candidate | None = change.candidates.order_by("-number").first()
    return candidate
