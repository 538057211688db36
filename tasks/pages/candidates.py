"""Browser: a Candidate with its merge, its evidence and its diff, and the button that moves main."""

from __future__ import annotations

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
from tasks.models import Candidate, ChangeSet
from tasks.pages.live import mark_of, show
from tasks.pages.work import commentable
from tasks.promotion import Promoted, promote
from tasks.states import CandidateState
from tenants.access import require_role, role_of
from tenants.models import Role, User

LIVE_STATES = frozenset({CandidateState.COMPOSING, CandidateState.CHECKING})


@require_GET
@login_required
def candidate_detail(request: HttpRequest, candidate_id: UUID) -> HttpResponse:
    candidate = reads.candidate_for(request.user, candidate_id)
    trunk = candidate.change.project.trunk
    known = {str(each.pk): each for each in _changesets(candidate)}
    merged = [known[key] for key in candidate.changesets if key in known]
    only = next((each for each in merged if each.task.key == request.GET.get("task")), None)
    role = role_of(request.user, candidate.change.organization_id)
    context = {
        "candidate": candidate,
        "change": candidate.change,
        "trunk": trunk,
        "main_moved": trunk.generation != candidate.generation and candidate.state == CandidateState.PASSED,
        "changesets": merged,
        "only": only,
        "patch": _patch(only or candidate, flagged=candidate.flagged_files),
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


def _changesets(candidate: Candidate) -> list[ChangeSet]:
    ours = ChangeSet.objects.of_organization(candidate.change.organization_id)
    rows = ours.filter(pk__in=candidate.changesets, task__change=candidate.change_id)
    return list(rows.select_related("task"))


def _patch(of: Candidate | ChangeSet, *, flagged: list[str]) -> Patch | None:
    """Tests and CI files in front, since they prove the rest (C93)."""
    content = archive.find(of.patch_key)
    return None if content is None else read_patch(content, first=frozenset(flagged))
