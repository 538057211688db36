"""Operator screens: to look and to switch off. Roles, tokens and settings change in the product, audited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import allauth.account.admin
import allauth.mfa.admin  # noqa: F401  # both register screens, which ours replace
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tenants.audit import note
from tenants.models import (
    ApiToken,
    AuditEntry,
    IdempotencyRecord,
    Invitation,
    Membership,
    Organization,
    Project,
    User,
)

if TYPE_CHECKING:
    from django.db.models import Model

    Base = admin.ModelAdmin[Any]
    Inline = admin.TabularInline[Any, Any]
else:
    Base, Inline = admin.ModelAdmin, admin.TabularInline


for _model in (EmailAddress, Authenticator):
    admin.site.unregister(_model)

SWITCHED_AT_ONCE_MAX = 50
SWITCH_REASON_CHARACTERS_MAX = 2_000
RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")


class ReadOnly(Base):
    """Shown, searched and filtered; never made, changed or deleted by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  # Django's signature
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


def chosen_few(screen: Base, request: HttpRequest, rows: QuerySet[Any], most: int) -> list[Any]:
    """The chosen rows of an act; none, and a word of it, when they are too many to look through before acting."""
    chosen = list(rows[: most + 1])
    if len(chosen) <= most:
        return chosen
    screen.message_user(
        request, f"Choose at most {most} rows at once. Nothing was changed.", messages.WARNING
    )
    return []


class SwitchForm(forms.Form):
    reason = forms.CharField(
        required=False,
        max_length=SWITCH_REASON_CHARACTERS_MAX,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3}),
    )


class Switches(ReadOnly):
    """Read only, but an operator may switch rows on and off: after a page that says which, what follows, and asks why.

    An operator acts on the deployment: audited as themselves, whatever their role in the organization.
    """

    actions: Sequence[str] = ("enable", "disable")
    # What the audit entry of each row needs beside it.
    related: tuple[str, ...] = ()
    on_enable = "It is used again from the next call on."
    on_disable = "It is used by nobody from the next call on."

    def switch(self, request: HttpRequest, row: Any, *, enabled: bool, reason: str) -> None:
        raise NotImplementedError

    def has_act_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    @admin.action(description="Enable…", permissions=["act"])
    def enable(self, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
        return self._asked(request, rows, verb="enable", consequence=self.on_enable)

    @admin.action(description="Disable…", permissions=["act"])
    def disable(self, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
        return self._asked(request, rows, verb="disable", consequence=self.on_disable)

    def _asked(
        self, request: HttpRequest, rows: QuerySet[Any], *, verb: str, consequence: str
    ) -> HttpResponse | None:
        chosen = chosen_few(self, request, rows.select_related(*self.related), SWITCHED_AT_ONCE_MAX)
        if not chosen:
            return None
        form = SwitchForm(request.POST if "switch" in request.POST else None)
        if not form.is_valid():
            title = f"{verb.capitalize()} {len(chosen)} {self.opts.verbose_name_plural}"
            context = {
                **self.admin_site.each_context(request),
                "title": title,
                "verb": verb,
                "consequence": consequence,
                "rows": chosen,
                "form": form,
                "opts": self.opts,
            }
            return TemplateResponse(request, "admin/switch.html", context)
        for row in chosen:
            self.switch(request, row, enabled=verb == "enable", reason=form.cleaned_data["reason"])
            self.message_user(request, f"{row}: {verb}d.", messages.SUCCESS)
        return None


class Memberships(Inline):
    model = Membership
    fields = ("organization", "user", "role", "created_at")
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("organization", "user")


@admin.register(User)
class People(UserAdmin[User]):
    """`active` is the switch: it ends every session, token and stream at the next question."""

    ordering = ("email",)
    list_display = ("email", "first_name", "last_name", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser", "last_login")
    search_fields = ("email", "first_name", "last_name")
    fieldsets = (
        (None, {"fields": ("email", "password")}),
        ("Person", {"fields": ("first_name", "last_name")}),
        ("Deployment", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("email", "password1", "password2")}),)
    readonly_fields = ("last_login", "date_joined")
    inlines = (Memberships,)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        """Their changes and audit entries name them: switch off instead."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Who may change people is not yet who may change operators, nor their passwords."""
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Rights over the deployment are given by those who have all of them."""
        kept = tuple(super().get_readonly_fields(request, obj))
        return kept if _is_superuser(request) else (*kept, *RIGHTS)


@admin.register(EmailAddress)
class Addresses(ReadOnly):
    """An address is proved by its invitation; one written here by hand would be a way into an account."""

    list_display = ("email", "user", "primary", "verified")
    list_filter = ("primary", "verified")
    list_select_related = ("user",)
    search_fields = ("email", "user__email")


@admin.register(Authenticator)
class SecondFactors(ReadOnly):
    """Their secrets stay out of sight. Deleting one lets in who lost the phone and the recovery codes."""

    exclude = ("data",)
    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type", "created_at", "last_used_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        row = cast("Authenticator | None", obj)
        return request.user.has_perm("mfa.delete_authenticator") and _may_touch(request, row and row.user)

    def delete_model(self, request: HttpRequest, obj: Authenticator) -> None:
        _note_removed(request, obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Authenticator]) -> None:
        for row in queryset.select_related("user"):
            _note_removed(request, row)
        super().delete_queryset(request, queryset)


@admin.register(Organization)
class Organizations(ReadOnly):
    list_display = ("name", "slug", "last_change_number", "created_at")
    search_fields = ("name", "slug", "=id")
    date_hierarchy = "created_at"
    inlines = (Memberships,)


@admin.register(Membership)
class MembershipList(ReadOnly):
    list_display = ("user", "organization", "role", "created_at")
    list_filter = ("role",)
    list_select_related = ("user", "organization")
    search_fields = ("user__email", "organization__name", "organization__slug")


@admin.register(Project)
class Projects(ReadOnly):
    list_display = (
        "name",
        "organization",
        "connector",
        "promotion",
        "plan_needs_approval",
        "allow_opus",
        "trusted",
        "archived_at",
    )
    list_filter = (
        "trusted",
        "promotion",
        "plan_needs_approval",
        "allow_opus",
        ("archived_at", admin.EmptyFieldListFilter),
    )
    list_select_related = ("organization",)
    search_fields = ("name", "slug", "organization__name", "=id")


@admin.register(Invitation)
class Invitations(ReadOnly):
    exclude = ("digest",)
    list_display = (
        "email",
        "organization",
        "role",
        "invited_by",
        "sent_at",
        "expires_at",
        "accepted_at",
        "revoked_at",
    )
    list_filter = (
        "role",
        ("accepted_at", admin.EmptyFieldListFilter),
        ("revoked_at", admin.EmptyFieldListFilter),
        "expires_at",
    )
    list_select_related = ("organization", "invited_by")
    search_fields = ("email", "organization__name", "invited_by__email")


@admin.register(ApiToken)
class Tokens(ReadOnly):
    exclude = ("digest",)
    list_display = (
        "name",
        "prefix",
        "user",
        "organization",
        "scopes",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), "last_used_at", "expires_at")
    list_select_related = ("user", "organization")
    search_fields = ("name", "prefix", "user__email", "organization__name")


@admin.register(AuditEntry)
class Audit(ReadOnly):
    list_display = ("at", "organization", "actor", "action", "subject", "remote", "request_id")
    list_filter = ("action", "at")
    list_select_related = ("organization", "actor")
    search_fields = ("subject", "actor__email", "organization__name", "=request_id", "=remote")
    date_hierarchy = "at"
    ordering = ("-pk",)


@admin.register(IdempotencyRecord)
class IdempotencyRecords(ReadOnly):
    exclude = ("body",)
    list_display = ("key", "user", "status", "created_at")
    list_filter = (("status", admin.EmptyFieldListFilter), "created_at")
    list_select_related = ("user",)
    search_fields = ("key", "user__email")


def _is_superuser(request: HttpRequest) -> bool:
    return cast(User, request.user).is_superuser


def _may_touch(request: HttpRequest, person: User | None) -> bool:
    """None: whether there are people at all whom the asker may touch."""
    return person is None or _is_superuser(request) or not (person.is_staff or person.is_superuser)


def _note_removed(request: HttpRequest, factor: Authenticator) -> None:
    """In the audit list of every organization that the person belongs to."""
    for membership in factor.user.memberships.select_related("organization"):
        note(
            membership.organization,
            cast(User, request.user),
            "member.second_factor_removed",
            factor.user.email,
            before={"kind": factor.type},
        )
