"""Browser: a command that waits for a person's yes, with what the attempt has done so far; and what became of one."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from agents import archive
from tasks.approvals import ROLE, Asked, approval_for, decide, reconcile
from tasks.display.diff import Patch, read_patch
from tasks.protected import is_protected
from tasks.windows import REASON_CHARACTERS_MAX
from tenants.access import require_role, role_of
from tenants.forms import attempt
from tenants.models import User


class DecisionForm(forms.Form):
    """The hidden fields are what the page showed: a decision about anything else is refused."""

    record = forms.CharField(widget=forms.HiddenInput, max_length=64)
    revision = forms.IntegerField(widget=forms.HiddenInput)
    payload_hash = forms.CharField(widget=forms.HiddenInput, max_length=64)
    reason = forms.CharField(
        required=False,
        label="Reason",
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="The agent reads it when you decline; then it must not be empty.",
    )


class ReconciliationForm(forms.Form):
    reason = forms.CharField(
        label="What you found",
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="The next attempt reads it.",
    )


@require_GET
@login_required
def approval_detail(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    return _shown(request, approval_for(_person(request), approval_id))


@require_POST
@login_required
def approval_decide(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """The button that was pressed says yes or no; nothing is run here."""
    asked = approval_for(_person(request), approval_id)
    require_role(request.user, asked.approval.organization_id, ROLE)
    form = DecisionForm(request.POST)
    approves = request.POST.get("decision") == "approve"
    if form.is_valid() and request.POST.get("decision") in ("approve", "decline"):
        data = form.cleaned_data
        done = attempt(
            form,
            lambda: _said(asked, approves=approves, data=data, by=_person(request)),
        )
        if done is not None:
            word = "approved: a worker goes on with it" if approves else "declined: the agent is told why"
            messages.success(request, f"{asked.command[:80]} is {word}.")
            return redirect("approval", asked.approval.pk)
    return _shown(request, asked, form=form)


@require_POST
@login_required
def approval_reconcile(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    asked = approval_for(_person(request), approval_id)
    require_role(request.user, asked.approval.organization_id, ROLE)
    form = ReconciliationForm(request.POST)
    outcome = request.POST.get("outcome")
    if form.is_valid() and outcome in ("took_effect", "no_effect"):
        done = attempt(
            form,
            lambda: _found(
                asked, took_effect=outcome == "took_effect", by=_person(request), **form.cleaned_data
            ),
        )
        if done is not None:
            messages.success(request, f"{asked.task.key} starts again, and its next attempt is told.")
            return redirect("approval", asked.approval.pk)
    return _shown(request, asked, found=form)


def _shown(
    request: HttpRequest, asked: Asked, *, form: forms.Form | None = None, found: forms.Form | None = None
) -> HttpResponse:
    approval = asked.approval
    bound = {
        "record": str(approval.continuation_id),
        "revision": approval.revision,
        "payload_hash": approval.payload_hash,
    }
    context: dict[str, Any] = {
        "asked": asked,
        "approval": approval,
        "run": asked.run,
        "task": asked.task,
        "change": asked.change,
        "form": form or DecisionForm(initial=bound),
        "found": found or ReconciliationForm(),
        "patch": _patch(approval.continuation.patch_key),
        "commentable": {},
        "may_decide": (role_of(request.user, approval.organization_id) or 0) >= ROLE,
        "seconds_left": approval.continuation.remaining_ms // 1_000,
        "seconds_budget": approval.continuation.budget_ms // 1_000,
    }
    return render(request, "tasks/approval.html", context, status=400 if form or found else 200)


def _said(asked: Asked, *, approves: bool, data: dict[str, Any], by: User) -> Asked:
    decide(asked, approves=approves, bound=data, by=by, reason=data["reason"], now=timezone.now())
    return asked


def _found(asked: Asked, *, took_effect: bool, by: User, reason: str) -> Asked:
    reconcile(asked, took_effect=took_effect, by=by, reason=reason, now=timezone.now())
    return asked


def _patch(key: str) -> Patch | None:
    content = archive.find(key)
    if content is None:
        return None
    flagged = frozenset(file.path for file in read_patch(content).files if is_protected(file.path))
    return read_patch(content, first=flagged)


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)
