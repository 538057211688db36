"""Operator screens of the money: read only. The one act, releasing an unknown charge, calls the ledger's service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from budgets.errors import LedgerError
from budgets.models import (
    Entry,
    Invocation,
    LedgerVerdict,
    LimitChange,
    LimitRule,
    Meter,
    ModelTask,
    Reservation,
    ReservationState,
    ThresholdCrossing,
)
from budgets.reservations import REASON_CHARACTERS_MAX, release_unknown
from tenants.admin import ReadOnly, chosen_few
from tenants.errors import InvalidInput
from tenants.models import User

if TYPE_CHECKING:
    from django.db.models import Model

    Inline = admin.TabularInline[Any, Any]
else:
    Inline = admin.TabularInline

RELEASED_AT_ONCE_MAX = 50


class ReleaseForm(forms.Form):
    reason = forms.CharField(max_length=REASON_CHARACTERS_MAX, widget=forms.Textarea(attrs={"rows": 3}))


@admin.register(Meter)
class Meters(ReadOnly):
    list_display = (
        "kind",
        "organization",
        "subject",
        "period",
        "spent_usd",
        "held_usd",
        "limit_usd",
        "spent_calls",
        "held_calls",
        "limit_calls",
    )
    list_filter = ("kind", "period", "organization")
    list_select_related = ("organization",)
    search_fields = ("name",)


class Entries(Inline):
    model = Entry
    extra = 0
    can_delete = False
    fields = readonly_fields = (
        "at",
        "kind",
        "held_usd",
        "spent_usd",
        "spent_tokens",
        "spent_calls",
        "actor",
        "reason",
    )

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


@admin.register(Reservation)
class Reservations(ReadOnly):
    list_display = (
        "created_at",
        "organization",
        "state",
        "purpose",
        "tier",
        "model",
        "hold_usd",
        "usd",
        "cost",
        "overrun",
        "usage_quality",
    )
    list_filter = ("state", "purpose", "tier", "overrun", "usage_quality", "organization")
    list_select_related = ("organization",)
    search_fields = ("key", "change_id", "task_id", "run_id", "owner")
    date_hierarchy = "created_at"
    inlines = (Entries,)
    actions = ("release",)

    def has_release_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("budgets.change_reservation")

    @admin.action(description="Release unknown charges…", permissions=["release"])
    def release(self, request: HttpRequest, rows: QuerySet[Reservation]) -> HttpResponse | None:
        unknown = rows.filter(state=ReservationState.UNKNOWN)
        if not unknown.exists():
            self.message_user(request, "None of these is an unknown charge.", messages.WARNING)
            return None
        chosen = chosen_few(self, request, unknown, RELEASED_AT_ONCE_MAX)
        form = ReleaseForm(request.POST if "release" in request.POST else None)
        if not chosen:
            return None
        if not form.is_valid():
            context = {
                **self.admin_site.each_context(request),
                "title": "Release unknown charges",
                "rows": chosen,
                "form": form,
                "opts": self.opts,
            }
            return TemplateResponse(request, "admin/budgets/release.html", context)
        for row in chosen:
            self._release(request, row, form.cleaned_data["reason"])
        return None

    def _release(self, request: HttpRequest, row: Reservation, reason: str) -> None:
        try:
            release_unknown(row.pk, by=cast(User, request.user), reason=reason)
        except (LedgerError, InvalidInput) as refused:
            self.message_user(request, f"{row}: {refused}", messages.ERROR)
        else:
            self.message_user(request, f"{row}: released {row.hold_usd}", messages.SUCCESS)


@admin.register(LimitRule)
class LimitRules(ReadOnly):
    list_display = ("kind", "organization", "subject", "limit_usd", "limit_tokens", "limit_calls")
    list_filter = ("kind", "organization")
    list_select_related = ("organization",)
    search_fields = ("subject",)


@admin.register(LimitChange)
class LimitChanges(ReadOnly):
    list_display = (
        "at",
        "organization",
        "kind",
        "subject",
        "unit",
        "before",
        "after",
        "by",
        "reason",
        "expires_at",
    )
    list_filter = ("kind", "unit", "organization")
    list_select_related = ("organization", "by")
    search_fields = ("subject", "key", "reason")
    date_hierarchy = "at"


@admin.register(ThresholdCrossing)
class ThresholdCrossings(ReadOnly):
    list_display = ("at", "organization", "meter", "unit", "percent", "spent", "limit", "told_at")
    list_filter = ("percent", "unit", "organization")
    list_select_related = ("organization", "meter")


class Invocations(Inline):
    model = Invocation
    extra = 0
    can_delete = False
    fields = readonly_fields = (
        "started_at",
        "purpose",
        "phase",
        "model",
        "state",
        "charged_tokens",
        "charged_cost",
    )

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


@admin.register(ModelTask)
class ModelTasks(ReadOnly):
    list_display = (
        "id",
        "organization",
        "project",
        "by",
        "calls",
        "calls_max",
        "charged_tokens",
        "tokens_max",
        "charged_cost",
        "cost_max",
    )
    list_filter = ("organization",)
    list_select_related = ("organization", "project", "by")
    search_fields = ("id", "project__name")
    inlines = (Invocations,)


@admin.register(LedgerVerdict)
class LedgerVerdicts(ReadOnly):
    list_display = ("at", "problem_count")


@admin.register(Entry)
class EntryList(ReadOnly):
    list_display = ("at", "reservation", "kind", "held_usd", "spent_usd", "spent_calls", "actor")
    list_filter = ("kind",)
    list_select_related = ("reservation",)
    search_fields = ("reservation__key", "actor")
    date_hierarchy = "at"


@admin.register(Invocation)
class InvocationList(ReadOnly):
    list_display = (
        "started_at",
        "task",
        "purpose",
        "phase",
        "model",
        "state",
        "charged_tokens",
        "charged_cost",
    )
    list_filter = ("state", "purpose")
    list_select_related = ("task",)
