"""Main moves by compare-and-swap; a crash in between is mended; nothing is forced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection

from agents.index import build_index
from agents.workspace.git import store_for
from tasks import promotion
from tasks.changes import cancel_change
from tasks.errors import IllegalMove
from tasks.models import Candidate, Change, DecisionReceipt, Event, Trunk
from tasks.owners import this_process
from tasks.promotion import Promoted, Stale, promote, settle_trunk
from tasks.states import CandidateState, ChangeState
from tenants.models import Project
from tests.factories.tasks import NOW, make_candidate, make_change
from tests.factories.tenants import make_member, make_project
from tests.tasks.repositories import edited, make_repository

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project() -> Project:
    project = make_project()
    make_repository(project)
    return project


def make_passed(project: Project, text: str = "new", state: ChangeState = ChangeState.READY) -> Candidate:
    """A Candidate that passed on the newest main, with one file of its own."""
    trunk = Trunk.objects.get(project=project)
    commit = edited(store_for(project.pk), trunk.commit, {f"{text}.txt": text.encode()})
    return make_candidate(
        make_change(project, state=state),
        state=CandidateState.PASSED,
        base_commit=trunk.commit,
        generation=trunk.generation,
        commit=commit,
    )


def main_of(project: Project) -> str | None:
    return store_for(project.pk).commit_of_main()


def test_a_promotion_moves_main_its_row_and_the_change(project: Project) -> None:
    candidate, person = make_passed(project), make_member(project.organization)
    done = promote(candidate, by=person, now=NOW)
    trunk = Trunk.objects.get(project=project)
    assert done == Promoted(2, candidate.commit)
    assert main_of(project) == trunk.commit == candidate.commit
    assert (trunk.generation, trunk.indexed_generation) == (2, 2)  # row 212
    assert (candidate.state, candidate.promoted_by) == (CandidateState.PROMOTED, person)
    change = Change.objects.get(pk=candidate.change_id)
    assert change.state == ChangeState.PROMOTED
    assert change.ended_at == NOW
    receipt = DecisionReceipt.objects.get(kind="promotion", change=change)
    assert receipt.reasons == ["by_person", "every_criterion_passed"]
    assert receipt.detail["to"] == candidate.commit


def test_promoting_again_changes_nothing(project: Project) -> None:
    candidate = make_passed(project)
    first = promote(candidate, by=None, now=NOW)
    assert promote(candidate, by=None, now=NOW) == first
    assert Event.objects.filter(kind="trunk.promoted").count() == 1
    assert Trunk.objects.get(project=project).generation == 2


def test_when_main_moved_the_candidate_is_stale_and_the_change_is_composed_anew(project: Project) -> None:
    first, second = make_passed(project, "one"), make_passed(project, "two")
    promote(first, by=None, now=NOW)
    assert promote(second, by=None, now=NOW) == Stale(first.commit)
    assert second.state == CandidateState.STALE
    change = Change.objects.get(pk=second.change_id)
    assert change.state == ChangeState.COMPOSING
    assert change.not_before == NOW
    assert main_of(project) == first.commit
    assert Trunk.objects.get(project=project).generation == 2


def test_a_crash_between_the_ref_and_the_rows_is_mended_by_asking_again(project: Project) -> None:
    candidate = make_passed(project)
    store_for(project.pk).promote(candidate.commit, candidate.base_commit, candidate.pk)
    assert promote(candidate, by=None, now=NOW) == Promoted(2, candidate.commit)
    assert candidate.state == CandidateState.PROMOTED


def test_whoever_comes_next_mends_the_crash_of_another(project: Project) -> None:
    person = make_member(project.organization)
    crashed, next_one = make_passed(project, "one"), make_passed(project, "two")
    Candidate.objects.filter(pk=crashed.pk).update(promoted_by=person)
    store_for(project.pk).promote(crashed.commit, crashed.base_commit, crashed.pk)
    assert promote(next_one, by=None, now=NOW) == Stale(crashed.commit)
    crashed.refresh_from_db()
    assert (crashed.state, crashed.promoted_by) == (CandidateState.PROMOTED, person)
    assert Change.objects.get(pk=crashed.change_id).state == ChangeState.PROMOTED


def test_a_main_that_was_moved_by_hand_becomes_a_generation(project: Project) -> None:
    trunk = Trunk.objects.get(project=project)
    store = store_for(project.pk)
    commit = edited(store, trunk.commit, {"by-hand.txt": b"1"})
    store.promote(commit, trunk.commit, "hand")
    settled = settle_trunk(project.pk, now=NOW)
    assert (settled.commit, settled.generation) == (commit, 2)
    assert settle_trunk(project.pk, now=NOW).generation == 2


def test_of_two_promoters_of_two_candidates_one_wins(project: Project) -> None:
    candidates = [make_passed(project, "one"), make_passed(project, "two")]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(_promote_in_thread, candidates))
    assert sorted(type(each).__name__ for each in done) == ["Promoted", "Stale"]
    assert Trunk.objects.get(project=project).generation == 2


def test_two_promoters_of_one_candidate_promote_it_once(project: Project) -> None:
    candidate = make_passed(project)
    copies = [Candidate.objects.get(pk=candidate.pk) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(_promote_in_thread, copies))
    assert done == [Promoted(2, candidate.commit)] * 2
    assert Event.objects.filter(kind="trunk.promoted").count() == 1


@pytest.mark.parametrize("state", [CandidateState.FAILED, CandidateState.CHECKING, CandidateState.STALE])
def test_only_what_passed_is_promoted(project: Project, state: CandidateState) -> None:
    candidate = make_passed(project)
    Candidate.objects.filter(pk=candidate.pk).update(state=state)
    candidate.refresh_from_db()
    with pytest.raises(IllegalMove):
        promote(candidate, by=None, now=NOW)
    assert main_of(project) == candidate.base_commit


def test_a_cancelled_change_is_not_promoted(project: Project) -> None:
    candidate = make_passed(project, state=ChangeState.CANCELLED)
    with pytest.raises(IllegalMove):
        promote(candidate, by=None, now=NOW)
    assert main_of(project) == candidate.base_commit


@pytest.mark.parametrize("state", [ChangeState.CANCELLED, ChangeState.RUNNING, ChangeState.FAILED])
def test_what_main_holds_is_written_down_whatever_became_of_its_change(
    project: Project, state: ChangeState
) -> None:
    """A cancel or a comment came between the ref and the rows: git has decided, and nobody may be stuck on it."""
    crashed, next_one = make_passed(project, "one"), make_passed(project, "two")
    store_for(project.pk).promote(crashed.commit, crashed.base_commit, crashed.pk)
    Change.objects.filter(pk=crashed.change_id).update(state=state)
    trunk = settle_trunk(project.pk, now=NOW)
    assert (trunk.commit, trunk.generation) == (crashed.commit, 2)
    crashed.refresh_from_db()
    assert crashed.state == CandidateState.PROMOTED
    change = Change.objects.get(pk=crashed.change_id)
    # What was cancelled too late is in main, and says so; what is worked on again goes on, on top of it.
    too_late = state is ChangeState.CANCELLED
    assert change.state == (ChangeState.PROMOTED if too_late else state)
    receipt = DecisionReceipt.objects.get(kind="promotion", change=change)
    assert receipt.reasons[-1] == f"main_had_moved_when_{state}"
    assert promote(next_one, by=None, now=NOW) == Stale(crashed.commit)


def test_a_change_cancelled_since_its_candidate_was_read_is_not_promoted(project: Project) -> None:
    candidate = make_passed(project)
    assert candidate.change.state == ChangeState.READY  # read, and kept on the object
    cancel_change(Change.objects.get(pk=candidate.change_id), by=candidate.change.author, now=NOW)
    with pytest.raises(IllegalMove):
        promote(candidate, by=None, now=NOW)
    assert main_of(project) == candidate.base_commit


def test_a_change_that_changes_no_file_is_promoted_without_moving_main(project: Project) -> None:
    candidate = make_passed(project)
    Candidate.objects.filter(pk=candidate.pk).update(commit=candidate.base_commit)
    candidate.refresh_from_db()
    assert promote(candidate, by=None, now=NOW) == Promoted(1, candidate.base_commit)
    assert candidate.state == CandidateState.PROMOTED


def _promote_in_thread(candidate: Candidate) -> Promoted | Stale:
    try:
        return promote(candidate, by=None, now=NOW)
    finally:
        connection.close()


def test_of_two_builders_of_an_index_one_builds_and_a_dead_one_is_followed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 212: the sweep leaves a tree to the living worker that is at it."""
    built: list[str] = []
    real = build_index

    def builds(project_id: UUID, commit: str, *, now: datetime) -> None:
        built.append(commit)
        assert promotion.index_trunks_behind(now) == 1
        real(project_id, commit, now=now)

    monkeypatch.setattr(promotion, "build_index", builds)
    trunk = Trunk.objects.get(project=project)
    Trunk.objects.update(indexed_generation=0)
    promotion.index_trunk(project.pk, now=NOW)
    assert built == [trunk.commit]
    trunk.refresh_from_db()
    assert (trunk.indexed_generation, trunk.index_owner, trunk.index_until) == (1, "", None)
    dead = f"{this_process().rpartition(':')[0]}:1:key"
    Trunk.objects.update(indexed_generation=0, index_owner=dead, index_until=NOW + timedelta(hours=1))
    monkeypatch.setattr(promotion, "build_index", real)
    assert promotion.index_trunk(project.pk, now=NOW).indexed_generation == 1
    elsewhere = "another-host/b/n:1:1:key"
    Trunk.objects.update(indexed_generation=0, index_owner=elsewhere, index_until=NOW + timedelta(hours=1))
    assert promotion.index_trunk(project.pk, now=NOW).indexed_generation == 0
    assert promotion.index_trunk(project.pk, now=NOW + timedelta(hours=1)).indexed_generation == 1


def test_a_build_that_breaks_gives_its_claim_back(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(promotion, "build_index", breaks)
    Trunk.objects.update(indexed_generation=0)
    with pytest.raises(OSError, match="no space"):
        promotion.index_trunk(project.pk, now=NOW)
    assert Trunk.objects.get().index_owner == ""
