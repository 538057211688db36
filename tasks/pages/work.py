"""Browser: a Task with its attempts, its receipts and what it changed; opening it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from agents import archive
from tasks import reads
from tasks.display.diff import Patch, read_patch
from tasks.display.hostile import revealed
from tasks.models import Change, ChangeSet, Task
from tasks.pages.forms import CommentForm, ReasonForm
from tasks.pages.lanes import windows_of
from tasks.pages.live import mark_of, show
from tasks.pages.panels import lifters_of
from tasks.pages.receipts import receipt_row
from tasks.pages.stops import stop_card
from tasks.protected import is_protected
from tasks.reopening import followers_of, send_back
from tasks.states import ENDED_CHANGES, TaskState
from tasks.stops import may_reopen_without_raising
from tasks.windows import reopen_task
from tenants.access import require_role, role_of
from tenants.forms import attempt
from tenants.models import Role, User

PLACE_CHARACTERS_MAX = 300
OPEN_STATES = frozenset({TaskState.PENDING, TaskState.READY, TaskState.RUNNING, TaskState.BLOCKED})


@require_GET
@login_required
def task_detail(request: HttpRequest, task_id: UUID) -> HttpResponse:
    task = reads.task_for(request.user, task_id)
    runs = list(reads.runs_of(task))
    receipts = list(reads.receipts_of(task.change, task))
    role = role_of(request.user, task.change.organization_id)
    changeset: ChangeSet | None = task.changesets.order_by("-created_at", "-id").first()
    context = {
        "task": task,
        "change": task.change,
        "windows": windows_of(runs, receipts, task.reopenings.all(), task.attempts_reset_at),
        "attempts": len(runs),
        "other_receipts": [receipt_row(each) for each in receipts if each.run_id is None],
        "stop": stop_card(task.stop_limit, task.stop_detail),
        "lifters": lifters_of(task.change) if task.stop_limit else [],
        "may_reopen": _may_reopen(task.state, task.stop_limit, task.stop_detail),
        "changeset": changeset,
        "patch": _patch(changeset),
        "commentable": commentable([changeset] if changeset else [], task.change, role=role),
        "live": task.state in OPEN_STATES,
        "role": role,
    }
    facts = [(r.pk, r.state, r.calls, r.cost, r.unknown_calls) for r in runs]
    mark = mark_of(task.state, task.waiting_for, task.stop_limit, len(receipts), *facts)
    return show(request, "tasks/task_detail.html", context, mark=mark)


@require_http_methods(["GET", "POST"])
@login_required
def task_reopen(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Open a fresh attempt window without raising anything."""
    task = reads.task_for(request.user, task_id)
    require_role(request.user, task.change.organization_id, Role.MEMBER)
    form = ReasonForm(request.POST or None, initial={"key": f"page-{uuid4()}"})
    if request.method == "POST" and form.is_valid():
        done = attempt(
            form,
            lambda: reopen_task(task, by=cast(User, request.user), now=timezone.now(), **form.cleaned_data),
        )
        if done is not None:
            messages.success(request, f"{task.key} has a fresh attempt window.")
            return redirect("change", task.change_id)
    context = {"task": task, "change": task.change, "form": form, "runs": reads.runs_of(task)}
    return render(request, "tasks/task_reopen.html", context, status=400 if form.errors else 200)


@require_http_methods(["GET", "POST"])
@login_required
def task_send_back(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Have finished work done again, with a comment."""
    task = reads.task_for(request.user, task_id)
    require_role(request.user, task.change.organization_id, Role.MEMBER)
    initial = {"key": f"page-{uuid4()}", "comment": _place(request)}
    form = CommentForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        by = cast(User, request.user)
        done = attempt(form, lambda: _sent_back(task, by=by, **form.cleaned_data))
        if done is not None:
            messages.success(request, f"{task.key} is done again with your comment.")
            return redirect("change", task.change_id)
    context = {"task": task, "change": task.change, "form": form, "followers": followers_of(task)}
    return render(request, "tasks/task_send_back.html", context, status=400 if form.errors else 200)


def _place(request: HttpRequest) -> str:
    """The comment begun, from a line of a diff: the place is in the address."""
    at = " ".join(request.GET.get("at", "").split())[:PLACE_CHARACTERS_MAX]
    return f"{at}: " if at else ""


def _sent_back(task: Task, *, by: User, comment: str, key: str) -> Task:
    send_back(task, comment, by=by, key=key, now=timezone.now())
    return task


def commentable(changesets: Sequence[ChangeSet], change: Change, *, role: Role | None) -> dict[str, UUID]:
    """For each file of a diff, as it is shown, the Task that a comment on it goes back to; none where it may not."""
    if role is None or role < Role.MEMBER or change.state in ENDED_CHANGES:
        return {}
    done = (each for each in changesets if each.task.state == TaskState.DONE)
    return {revealed(path): each.task_id for each in done for path in each.own_files}


def _patch(changeset: ChangeSet | None) -> Patch | None:
    content = archive.find(changeset.patch_key) if changeset is not None else None
    if changeset is None or content is None:
        return None
    flagged = frozenset(path for path in changeset.own_files if is_protected(path))
    return read_patch(content, first=flagged)


def _may_reopen(state: str, limit: str, detail: dict[str, Any]) -> bool:
    if state == TaskState.FAILED:
        return True
    return bool(limit) and may_reopen_without_raising(limit, detail.get("refusals", []))
