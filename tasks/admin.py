"""Operator screens of the domain: everything to read; the acts call the same services as the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from budgets.errors import LedgerError
from budgets.keys import MeterKind
from budgets.limits import Limit
from tasks.changes import cancel_change
from tasks.errors import TaskError
from tasks.models import (
    Candidate,
    Change,
    ChangeSet,
    Check,
    Claim,
    Criterion,
    DecisionReceipt,
    Dependency,
    Event,
    HelperQuestion,
    Preflight,
    ProjectImport,
    Reopening,
    Task,
    TaskRun,
    Trunk,
)
from tasks.pages.forms import RaiseForm, ReasonForm
from tasks.raises import preview_raise, raise_budget
from tasks.windows import reopen_task
from tenants.admin import ReadOnly, chosen_few
from tenants.errors import TenantError
from tenants.forms import attempt
from tenants.models import User

if TYPE_CHECKING:
    from django.db.models import Model

    Inline = admin.TabularInline[Any, Any]
else:
    Inline = admin.TabularInline

ROWS_AT_ONCE_MAX = 20


class Acts(ReadOnly):
    """Read only, with acts for operators who may change the model."""

    def has_act_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"tasks.change_{self.opts.model_name}")

    def ask(
        self,
        request: HttpRequest,
        rows: Iterable[Any],
        *,
        form: forms.Form,
        title: str,
        verb: str,
        preview: str = "",
    ) -> HttpResponse:
        """The page between choosing an act and doing it."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "verb": verb,
            "rows": rows,
            "form": form,
            "opts": self.opts,
            "preview": preview,
            "action": request.POST["action"],
        }
        return TemplateResponse(request, "admin/tasks/act.html", context)

    def each(self, request: HttpRequest, rows: Iterable[Any], act: Callable[[Any], str]) -> None:
        """Do it row by row; a row that refuses is told and stops no other."""
        for row in rows:
            try:
                self.message_user(request, act(row), messages.SUCCESS)
            except (TaskError, TenantError, LedgerError) as refused:
                self.message_user(request, f"{row}: {refused}", messages.ERROR)


class Criteria(Inline):
    model = Criterion
    fields = readonly_fields = ("position", "text", "command")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


@admin.register(Change)
class Changes(Acts):
    list_display = ("__str__", "organization", "project", "state", "stop_limit", "author", "created_at")
    list_filter = ("state", "stop_limit", "organization", "created_at")
    list_select_related = ("organization", "project", "author")
    search_fields = ("title", "number", "id", "project__name")
    date_hierarchy = "created_at"
    inlines = (Criteria,)
    actions = ("raise_limit", "cancel")

    @admin.action(description="Raise budget…", permissions=["act"])
    def raise_limit(self, request: HttpRequest, rows: QuerySet[Change]) -> HttpResponse | None:
        chosen = chosen_few(self, request, rows.select_related("project", "organization"), ROWS_AT_ONCE_MAX)
        if not chosen:
            return None
        sent = "raise" in request.POST or "preview" in request.POST
        form = RaiseForm(request.POST if sent else None, initial={"key": f"admin-{uuid4()}"})
        preview = ""
        if form.is_valid():
            kind = MeterKind(form.cleaned_data["meter"])
            previews = attempt(form, lambda: _previews(chosen, kind, form.limit(kind)))
            if previews is not None and "raise" in request.POST:
                to = form.limit(kind)
                self.each(request, chosen, lambda change: _raise(request, change, kind, to, form))
                return None
            preview = "; ".join(previews or ())
        title = f"Raise a budget of {len(chosen)} change{'' if len(chosen) == 1 else 's'}"
        return self.ask(request, chosen, form=form, title=title, verb="raise", preview=preview)

    @admin.action(description="Cancel…", permissions=["act"])
    def cancel(self, request: HttpRequest, rows: QuerySet[Change]) -> HttpResponse | None:
        chosen = chosen_few(self, request, rows.select_related("project", "organization"), ROWS_AT_ONCE_MAX)
        if not chosen:
            return None
        sent = "cancel" in request.POST
        form = ReasonForm(request.POST if sent else None, initial={"key": "cancel"})
        if not (sent and form.is_valid()):
            return self.ask(request, chosen, form=form, title="Cancel changes", verb="cancel")

        def act(change: Change) -> str:
            cancel_change(change, by=_person(request), now=timezone.now(), reason=form.cleaned_data["reason"])
            return f"{change}: cancelled"

        self.each(request, chosen, act)
        return None


@admin.register(Task)
class Tasks(Acts):
    list_display = (
        "__str__",
        "change",
        "state",
        "stop_limit",
        "waiting_for",
        "kind",
        "size",
        "risk",
        "not_before",
    )
    list_filter = ("state", "stop_limit", "kind", "size", "risk", "change__organization")
    list_select_related = ("change",)
    search_fields = ("title", "key", "id", "change__title")
    actions = ("reopen",)

    @admin.action(description="Reopen attempt window…", permissions=["act"])
    def reopen(self, request: HttpRequest, rows: QuerySet[Task]) -> HttpResponse | None:
        chosen = chosen_few(self, request, rows.select_related("change__organization"), ROWS_AT_ONCE_MAX)
        if not chosen:
            return None
        sent = "reopen" in request.POST
        form = ReasonForm(request.POST if sent else None, initial={"key": f"admin-{uuid4()}"})
        if not (sent and form.is_valid()):
            return self.ask(request, chosen, form=form, title="Reopen attempt windows", verb="reopen")

        def act(task: Task) -> str:
            reopen_task(task, by=_person(request), now=timezone.now(), **form.cleaned_data)
            return f"{task}: a fresh attempt window"

        self.each(request, chosen, act)
        return None


@admin.register(TaskRun)
class Runs(ReadOnly):
    list_display = (
        "id",
        "task",
        "attempt",
        "tier",
        "model",
        "state",
        "end_reason",
        "cost",
        "unknown_calls",
        "started_at",
    )
    list_filter = ("state", "end_reason", "failure_class", "tier")
    list_select_related = ("task",)
    search_fields = ("id", "task__title", "context_hash")


@admin.register(DecisionReceipt)
class Receipts(ReadOnly):
    list_display = ("id", "at", "kind", "decision", "reasons", "change", "task")
    list_filter = ("kind", "decision")
    list_select_related = ("change", "task")
    search_fields = ("decision", "change__title", "run__id")


@admin.register(Event)
class Events(ReadOnly):
    list_display = ("id", "at", "kind", "organization", "change", "task")
    list_filter = ("kind", "organization")
    list_select_related = ("organization", "change", "task")
    search_fields = ("kind", "change__title")


@admin.register(Candidate)
class Candidates(ReadOnly):
    list_display = ("id", "change", "number", "state", "generation", "commit", "created_at")
    list_filter = ("state",)
    list_select_related = ("change",)
    search_fields = ("id", "commit", "change__title")


@admin.register(Check)
class Checks(ReadOnly):
    list_display = ("id", "candidate", "criterion", "verdict", "exit_code", "base_verdict", "ended_at")
    list_filter = ("verdict", "base_verdict")
    list_select_related = ("candidate", "criterion")
    search_fields = ("commit", "command")


@admin.register(ChangeSet)
class ChangeSets(ReadOnly):
    list_display = ("id", "task", "commit", "base_commit", "created_at")
    list_select_related = ("task",)
    search_fields = ("id", "commit", "task__title")


@admin.register(Reopening)
class Reopenings(ReadOnly):
    list_display = ("id", "at", "task", "stop_limit", "by", "reason")
    list_filter = ("stop_limit",)
    list_select_related = ("task", "by")
    search_fields = ("key", "task__title", "by__email")


@admin.register(Criterion)
class CriterionRows(ReadOnly):
    list_display = ("id", "change", "position", "text", "command")
    list_select_related = ("change",)
    search_fields = ("text", "command", "change__title")


@admin.register(Claim)
class Claims(ReadOnly):
    list_display = ("id", "resource", "project", "run", "lease_until")
    list_filter = ("project",)
    list_select_related = ("project", "run")
    search_fields = ("resource",)


@admin.register(Dependency)
class Dependencies(ReadOnly):
    list_display = ("id", "task", "on", "added_by")
    list_filter = ("added_by",)
    list_select_related = ("task", "on")
    search_fields = ("task__title", "on__title")


@admin.register(Trunk)
class Trunks(ReadOnly):
    list_display = ("project", "generation", "indexed_generation", "commit", "updated_at")
    list_select_related = ("project",)
    search_fields = ("project__name", "commit")


@admin.register(Preflight)
class Preflights(ReadOnly):
    list_display = ("id", "project", "state", "step", "by", "created_at", "ended_at")
    list_filter = ("state",)
    list_select_related = ("project", "by")
    search_fields = ("id", "project__name", "commit")


@admin.register(HelperQuestion)
class HelperQuestions(ReadOnly):
    list_display = ("id", "project", "allowance", "role", "state", "by", "created_at", "ended_at")
    list_filter = ("state", "role")
    list_select_related = ("project", "allowance", "by")
    search_fields = ("id", "project__name", "allowance__id")


@admin.register(ProjectImport)
class ProjectImports(ReadOnly):
    list_display = ("id", "project", "state", "source", "is_bundle", "code", "by", "created_at", "ended_at")
    list_filter = ("state", "is_bundle")
    list_select_related = ("project", "by")
    search_fields = ("id", "project__name", "source")
    exclude = ("sealed_password",)


def _previews(changes: Iterable[Change], kind: MeterKind, to: Limit) -> list[str]:
    return [_preview(change, kind, to) for change in changes]


def _preview(change: Change, kind: MeterKind, to: Limit) -> str:
    found = preview_raise(change, kind, to, now=timezone.now())
    names = ", ".join(task.key for task in found.reopens) or "nothing"
    return f"{change.key}: reopens {names}" if found.is_raise else f"{change.key}: no raise"


def _raise(request: HttpRequest, change: Change, kind: MeterKind, to: Limit, form: RaiseForm) -> str:
    raised = raise_budget(
        change=change,
        kind=kind,
        to=to,
        by=_person(request),
        reason=form.cleaned_data["reason"],
        key=f"{form.cleaned_data['key']}-{change.number}",
        expires_at=form.expires_at(),
        now=timezone.now(),
    )
    names = ", ".join(task.key for task in raised.reopened) or "nothing"
    return f"{change}: raised; reopened {names}"


def _person(request: HttpRequest) -> User:
    return cast(User, request.user)
