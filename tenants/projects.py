"""The rules of a project: what may be changed, by whom, and within which bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from tenants import text
from tenants.access import require_role
from tenants.audit import note
from tenants.caps import checked_caps
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import Project, Promotion, Role, User
from tenants.publish_rules import checked_publish_rules

EXTRA_COMMANDS_MAX = 50
ARGUMENTS_MAX = 64
ARGUMENT_CHARACTERS_MAX = 1_000
AND_THE_REST = "..."

# What widens what an agent may run on the host, or what may leave it: an owner's word, not an admin's.
OWNER_ONLY = frozenset({"trusted", "extra_commands", "approval_commands", "publish_rules"})


def change_project(project: Project, wanted: Mapping[str, object], *, by: User, now: datetime) -> Project:
    """Apply these settings, all or none; what is equal already is no change. Audited with before and after.

    `archived` takes true or false. Raises InvalidInput naming the field, or RoleTooLow.
    """
    values = {field: _checked(field, value) for field, value in wanted.items()}
    with transaction.atomic():
        fresh: Project = Project.objects.select_for_update().get(pk=project.pk)
        before = {field: _shown(fresh, field) for field in values}
        changed = {field: value for field, value in values.items() if before[field] != value}
        role = require_role(by, fresh.organization_id, Role.ADMIN)
        if role < Role.OWNER and OWNER_ONLY & changed.keys():
            raise RoleTooLow(Role.OWNER.label)
        if not changed:
            return fresh
        for field, value in changed.items():
            _set(fresh, field, value, now=now)
        fresh.save()
        note(
            fresh.organization,
            by,
            "project.changed",
            fresh.slug,
            before={field: before[field] for field in changed},
            after=changed,
        )
    return fresh


def _checked(field: str, value: object) -> Any:
    check = _CHECKS.get(field)
    if check is None:
        raise InvalidInput(
            field[:60],
            "is no setting of a project",
            f"Known are: {', '.join(_CHECKS)}.",
            code="unknown_field",
        )
    return check(field, value)


def _shown(project: Project, field: str) -> Any:
    return project.archived_at is not None if field == "archived" else getattr(project, field)


def _set(project: Project, field: str, value: Any, *, now: datetime) -> None:
    if field == "archived":
        project.archived_at = now if value else None
    else:
        setattr(project, field, value)


def _name(field: str, value: object) -> str:
    return text.one_line(field, value, characters_max=text.NAME_CHARACTERS_MAX)


def _description(field: str, value: object) -> str:
    return text.free_text(field, value, characters_max=text.DESCRIPTION_CHARACTERS_MAX)


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, "is neither true nor false", "Send true or false.")
    return value


def _promotion(field: str, value: object) -> str:
    if value not in Promotion.values:
        raise InvalidInput(field, "is unknown", f"Use one of: {', '.join(Promotion.values)}.")
    return str(value)


def _commands(field: str, value: object) -> list[list[str]]:
    """Exact argv patterns; each is one program with plain arguments, never a shell line."""
    if not isinstance(value, list) or len(value) > EXTRA_COMMANDS_MAX:
        raise InvalidInput(
            field, "is no short list", f"Send at most {EXTRA_COMMANDS_MAX} lists of arguments."
        )
    return [_argv(f"{field}.{at}", argv) for at, argv in enumerate(value)]


def _approval_commands(field: str, value: object) -> list[list[str]]:
    """As the exact patterns; a last word `...` covers whatever follows a program."""
    commands = _commands(field, value)
    for at, argv in enumerate(commands):
        if AND_THE_REST in argv[:-1] or argv == [AND_THE_REST]:
            raise InvalidInput(
                f"{field}.{at}", f"has {AND_THE_REST} elsewhere than at its end", "Name a program first."
            )
    return commands


def _argv(field: str, argv: object) -> list[str]:
    if not isinstance(argv, list) or not 1 <= len(argv) <= ARGUMENTS_MAX:
        raise InvalidInput(field, "is no command", f"Send 1 to {ARGUMENTS_MAX} arguments, the program first.")
    words = [
        text.one_line(f"{field}.{at}", word, characters_max=ARGUMENT_CHARACTERS_MAX)
        for at, word in enumerate(argv)
    ]
    if "/" in words[0] or words[0].startswith("-"):
        raise InvalidInput(
            f"{field}.0", "is a path or an option", "Name a program that is found by its name."
        )
    return words


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "name": _name,
    "description": _description,
    "connector": text.slug,
    "plan_needs_approval": _flag,
    "promotion": _promotion,
    "raise_needs_reason": _flag,
    "allow_opus": _flag,
    "trusted": _flag,
    "caps": checked_caps,
    "extra_commands": _commands,
    "approval_commands": _approval_commands,
    "publish_rules": checked_publish_rules,
    "archived": _flag,
}
SETTINGS = tuple(_CHECKS)
