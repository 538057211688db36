"""Browser: a Candidate with its merge, its evidence and its diff, and the button that moves main."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from agents import archive
from tasks import reads
from tasks.api.views import patch_of
from tasks.display.diff import Patch, read_patch
from tasks.display.hostile import revealed
from tasks.models import Candidate, ChangeSet, Trunk
from tasks.pages.live import mark_of, show
from tasks.pages.work import commentable
from tasks.promotion import Promoted, promote
from tasks.states import ENDED_CHANGES, CandidateState, ChangeState
from tenants.access import require_role, role_of
from tenants.models import Role, User

# Why main cannot be moved to a candidate in that state; one that passed is looked at more closely.
NOT_PASSED = {
    CandidateState.COMPOSING: "It is still put together.",
    CandidateState.CHECKING: "Its criteria are still run.",
    CandidateState.CONFLICT: "It did not merge.",
    CandidateState.FAILED: "It did not pass.",
    CandidateState.STALE: "It is stale: main has moved, or the work was composed anew.",
}
MAIN_MOVED = "Main has moved since it was composed."
LIVE_STATES = frozenset({CandidateState.COMPOSING, CandidateState.CHECKING})


@dataclass(frozen=True, slots=True)
class Layer:
    """One ChangeSet of the order: merged clean, in conflict with those that touched the same files, or not reached."""

    changeset: ChangeSet
    state: str  # merged, conflict, not reached
    paths: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()  # Tasks merged before that changed these files, too


@dataclass(frozen=True, slots=True)
class Flagged:
    """A file that proves the work, with the assertions that came and went; None where the diff is not there."""

    path: str
    claims: tuple[int, int] | None


@require_GET
@login_required
def candidate_detail(request: HttpRequest, candidate_id: UUID) -> HttpResponse:
    candidate = reads.candidate_for(request.user, candidate_id)
    trunk = candidate.change.project.trunk
    known = {str(each.pk): each for each in _changesets(candidate)}
    merged = [known[key] for key in candidate.changesets if key in known]
    only = next((each for each in merged if each.task.key == request.GET.get("task")), None)
    role = role_of(request.user, candidate.change.organization_id)
    patch = _patch(only or candidate, flagged=candidate.flagged_files)
    context = {
        "candidate": candidate,
        "change": candidate.change,
        "trunk": trunk,
        "main_moved": trunk.generation != candidate.generation and candidate.state == CandidateState.PASSED,
        "not_now": why_not_promoted(candidate, trunk),
        "layers": _layers(candidate, merged),
        "flagged": _flagged(candidate, patch),
        "changesets": merged,
        "only": only,
        "patch": patch,
        "live": candidate.state in LIVE_STATES,
        "commentable": commentable([only] if only else merged, candidate.change, role=role),
        "role": role,
    }
    checks = [(check.pk, check.verdict) for check in candidate.checks.all()]
    mark = mark_of(candidate.state, trunk.generation, *checks)
    return show(request, "tasks/candidate_detail.html", context, mark=mark)


@require_POST
@login_required
def candidate_promote(request: HttpRequest, candidate_id: UUID) -> HttpResponseRedirect:
    candidate = reads.candidate_for(request.user, candidate_id)
    require_role(request.user, candidate.change.organization_id, Role.ADMIN)
    result = promote(candidate, by=cast(User, request.user), now=timezone.now())
    if isinstance(result, Promoted):
        messages.success(request, f"{candidate.change.key} is on main, generation {result.generation}.")
    else:
        messages.warning(request, "Main moved meanwhile: the change is composed anew, nothing was forced.")
    return redirect("change", candidate.change_id)


@require_GET
@login_required
def candidate_patch(request: HttpRequest, candidate_id: UUID) -> HttpResponse:
    return patch_of(reads.candidate_for(request.user, candidate_id).patch_key)


@require_GET
@login_required
def changeset_patch(request: HttpRequest, changeset_id: UUID) -> HttpResponse:
    return patch_of(reads.changeset_for(request.user, changeset_id).patch_key)


def why_not_promoted(candidate: Candidate, trunk: Trunk) -> str:
    """What keeps an admin from promoting it now; "" where nothing does, or where it is on main."""
    state, change = CandidateState(candidate.state), candidate.change
    if state == CandidateState.PROMOTED or change.state in ENDED_CHANGES:
        return ""
    if state != CandidateState.PASSED:
        return NOT_PASSED[state]
    if trunk.generation != candidate.generation:
        return MAIN_MOVED
    return "" if change.state == ChangeState.READY else f"The change is {change.state.replace('_', ' ')}."


def _layers(candidate: Candidate, order: Sequence[ChangeSet]) -> list[Layer]:
    conflicts = {str(each.get("changeset", "")): each for each in candidate.conflicts}
    at = next((place for place, each in enumerate(order) if str(each.pk) in conflicts), None)
    if at is None:
        return [Layer(each, "merged") for each in order]
    paths = tuple(str(path) for path in conflicts[str(order[at].pk)].get("paths", ()))
    sides = tuple(
        dict.fromkeys(each.task.key for each in order[:at] if not set(paths).isdisjoint(each.own_files))
    )
    return [
        *(Layer(each, "merged") for each in order[:at]),
        Layer(order[at], "conflict", paths, sides or ("main",)),
        *(Layer(each, "not reached") for each in order[at + 1 :]),
    ]


def _flagged(candidate: Candidate, patch: Patch | None) -> list[Flagged]:
    shown = {file.path: file.claims for file in patch.files} if patch else {}
    return [
        Flagged(path, shown.get(path)) for path in (revealed(str(each)) for each in candidate.flagged_files)
    ]


def _changesets(candidate: Candidate) -> list[ChangeSet]:
    ours = ChangeSet.objects.of_organization(candidate.change.organization_id)
    rows = ours.filter(pk__in=candidate.changesets, task__change=candidate.change_id)
    return list(rows.select_related("task"))


def _patch(of: Candidate | ChangeSet, *, flagged: list[str]) -> Patch | None:
    """Tests and CI files in front, since they prove the rest (C93)."""
    content = archive.find(of.patch_key)
    return None if content is None else read_patch(content, first=frozenset(flagged))
