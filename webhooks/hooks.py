"""Incoming hooks as a project's admins keep them: made, changed, switched, their secret rotated. All audited."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from budgets.money import Usd
from tenants import text
from tenants.access import require_role, role_of
from tenants.audit import note
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Membership, Project, Role, User
from webhooks.models import HookKind, IncomingDelivery, IncomingHook
from webhooks.signing import new_secret

HOOKS_PER_PROJECT_MAX = 10
NAME_CHARACTERS_MAX = 100
LABEL_CHARACTERS_MAX = 50
# While a secret is rotated, a message signed with the one before is taken, too.
ROTATION_HOURS = 24
GITHUB_SECRET_BYTES = 32
LABEL = "remit"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedHook:
    """A hook as somebody wants it. `author`: whose month pays, a member by id. `budget` None: no limit of its own."""

    name: str
    author: UUID
    label: str = LABEL
    budget: Usd | None = None
    enabled: bool = True


def make_hook(project: Project, kind: HookKind, wanted: WantedHook, *, by: User) -> tuple[IncomingHook, str]:
    """A new address and its secret, which is shown this once. Raises InvalidInput, and RoleTooLow below an admin."""
    require_role(by, project.organization_id, Role.ADMIN)
    author = _author(project, wanted.author)
    wanted = _checked(wanted)
    plain = _new_secret(kind)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)  # two at once count each other
        if project.incoming_hooks.count() >= HOOKS_PER_PROJECT_MAX:
            raise InvalidInput(
                "",
                f"a project has at most {HOOKS_PER_PROJECT_MAX} incoming hooks",
                "Remove one of them.",
                code="too_many",
            )
        hook = IncomingHook(
            project=project,
            kind=kind,
            name=wanted.name,
            label=wanted.label if kind == HookKind.GITHUB else "",
            author=author,
            budget=wanted.budget,
            enabled=wanted.enabled,
            created_by=by,
        )
        hook.put_secret(plain)
        _save(hook)
        note(project.organization, by, "hook.made", _subject(hook), after=_facts(hook))
    return hook, plain


def change_hook(hook: IncomingHook, wanted: WantedHook, *, by: User) -> IncomingHook:
    """Another name, label, author or budget; on or off. Its kind and its address stay."""
    project = hook.project
    require_role(by, project.organization_id, Role.ADMIN)
    author = _author(project, wanted.author) if wanted.author != hook.author_id else hook.author
    wanted = _checked(wanted)
    with transaction.atomic():
        fresh = _locked(hook)
        before = _facts(fresh)
        fresh.name, fresh.author, fresh.enabled = wanted.name, author, wanted.enabled
        fresh.label = wanted.label if fresh.kind == HookKind.GITHUB else ""
        fresh.budget = wanted.budget
        _save(fresh)
        if before != _facts(fresh):
            note(
                project.organization, by, "hook.changed", _subject(fresh), before=before, after=_facts(fresh)
            )
    return fresh


def switch_hook(
    hook: IncomingHook, *, enabled: bool, by: User, operator: bool = False, reason: str = ""
) -> IncomingHook:
    """On or off. An operator of the deployment may do it from outside the organization."""
    if not operator:
        require_role(by, hook.project.organization_id, Role.ADMIN)
    with transaction.atomic():
        fresh = _locked(hook)
        if fresh.enabled != enabled:
            fresh.enabled = enabled
            fresh.save(update_fields=["enabled"])
            action = "hook.enabled" if enabled else "hook.disabled"
            note(fresh.project.organization, by, action, _subject(fresh), reason=reason)
    return fresh


def rotate_hook(hook: IncomingHook, *, by: User, now: datetime) -> tuple[IncomingHook, str]:
    """A new secret, shown this once. For a day the one before is taken, too."""
    require_role(by, hook.project.organization_id, Role.ADMIN)
    plain = _new_secret(HookKind(hook.kind))
    with transaction.atomic():
        fresh = _locked(hook)
        fresh.put_secret(plain, previous_until=now + timedelta(hours=ROTATION_HOURS))
        fresh.save(update_fields=["sealed_secret", "sealed_previous", "previous_until"])
        note(fresh.project.organization, by, "hook.secret_rotated", _subject(fresh))
    return fresh, plain


def remove_hook(hook: IncomingHook, *, by: User) -> None:
    """With its log. The Changes that came in by it stay."""
    require_role(by, hook.project.organization_id, Role.ADMIN)
    with transaction.atomic():
        fresh = _locked(hook)
        note(fresh.project.organization, by, "hook.removed", _subject(fresh), before=_facts(fresh))
        fresh.delete()


def hook_of(project: Project, hook_id: UUID) -> IncomingHook:
    """One of this project's, looked up together with it (C79)."""
    rows = IncomingHook.objects.of_organization(project.organization_id)
    hook: IncomingHook | None = (
        rows.filter(project=project, pk=hook_id).select_related("project__organization", "author").first()
    )
    if hook is None:
        raise NotVisible("hook")
    return hook


def hooks_of(project: Project) -> QuerySet[IncomingHook]:
    rows: QuerySet[IncomingHook] = IncomingHook.objects.of_organization(project.organization_id)
    return rows.filter(project=project).select_related("author").order_by("pk")


def received_by(hook: IncomingHook) -> QuerySet[IncomingDelivery]:
    """What came in, the newest first."""
    rows: QuerySet[IncomingDelivery] = IncomingDelivery.objects.of_organization(hook.project.organization_id)
    return rows.filter(hook=hook).order_by("-pk")


def possible_authors(project: Project) -> list[User]:
    """The members who may submit a Change there."""
    rows = Membership.objects.of_organization(project.organization_id).filter(
        role__gte=Role.MEMBER, user__is_active=True
    )
    return [each.user for each in rows.select_related("user").order_by("user__email")]


def may_submit(author: User, project: Project) -> bool:
    """Still a member there with a role that may hand over Changes, and not switched off."""
    role = role_of(author, project.organization_id)
    return role is not None and role >= Role.MEMBER


def _author(project: Project, user_id: UUID) -> User:
    found = next((user for user in possible_authors(project) if user.pk == user_id), None)
    if found is None:
        raise InvalidInput(
            "author",
            "is nobody who may hand over changes here",
            "Name a member of the organization, whose monthly budget then pays.",
            code="not_a_member",
        )
    return found


def _checked(wanted: WantedHook) -> WantedHook:
    if wanted.budget is not None and wanted.budget < Usd(0):
        raise InvalidInput("budget", "is negative", "Give 0 or more, or leave it out for no limit.")
    return WantedHook(
        name=text.one_line("name", wanted.name, characters_max=NAME_CHARACTERS_MAX),
        author=wanted.author,
        label=text.one_line("label", wanted.label or LABEL, characters_max=LABEL_CHARACTERS_MAX),
        budget=wanted.budget,
        enabled=wanted.enabled,
    )


def _save(hook: IncomingHook) -> None:
    try:
        with transaction.atomic():
            hook.save()
    except IntegrityError:
        raise InvalidInput("name", "is taken in this project", "Choose another.", code="taken") from None


def _locked(hook: IncomingHook) -> IncomingHook:
    rows = IncomingHook.objects.select_for_update(of=("self",)).select_related(
        "project__organization", "author"
    )
    fresh: IncomingHook | None = rows.filter(pk=hook.pk).first()
    if fresh is None:
        raise NotVisible("hook")
    return fresh


def _new_secret(kind: HookKind) -> str:
    return new_secret() if kind == HookKind.STANDARD else secrets.token_hex(GITHUB_SECRET_BYTES)


def _subject(hook: IncomingHook) -> str:
    return f"{hook.project.slug}/{hook.name}"


def _facts(hook: IncomingHook) -> dict[str, Any]:
    """For the audit list: no secret."""
    return {
        "name": hook.name,
        "kind": hook.kind,
        "label": hook.label,
        "author": hook.author.email,
        "budget_usd_micro": None if hook.budget is None else hook.budget.micro,
        "enabled": hook.enabled,
    }
