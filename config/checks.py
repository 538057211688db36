"""Django system checks of the whole: settings that cannot work, each with its remedy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register  # Django's name


@register(Tags.security)
def secrets_are_private(**_: Any) -> Sequence[CheckMessage]:
    """The keys that Remit made for itself are readable by their owner alone."""
    found = []
    for name in ("secret-key", "connector-key"):
        path = settings.PLANE.data_dir / name
        if path.exists() and path.stat().st_mode & 0o077:
            found.append(
                Error(f"{path} can be read by others", hint=f"Run: chmod 600 {path}", id="remit.E001")
            )
    return found


@register()
def data_folder_is_writable(**_: Any) -> Sequence[CheckMessage]:
    folder = settings.PLANE.data_dir
    if os.access(folder, os.W_OK):
        return []
    return [
        Error(
            f"{folder} cannot be written",
            hint="Give the folder to this user, or set REMIT_DATA_DIR to one that it owns.",
            id="remit.E002",
        )
    ]


@register()
def git_is_there(**_: Any) -> Sequence[CheckMessage]:
    if shutil.which("git"):
        return []
    return [Error("git is not installed", hint="Install git 2.38 or newer.", id="remit.E003")]


@register()
def the_parts_fit_together(**_: Any) -> Sequence[CheckMessage]:
    plane = settings.PLANE
    found: list[CheckMessage] = []
    if plane.production and not plane.database_url.startswith("postgres"):
        found.append(
            Warning(
                "production on SQLite",
                hint="One machine can live with it; several need DATABASE_URL=postgresql://...",
                id="remit.W001",
            )
        )
    if plane.production and not plane.redis_url:
        found.append(
            Warning(
                "production without Redis: the broker is a folder, rate limits count per process",
                hint="Set REDIS_URL=redis://...",
                id="remit.W002",
            )
        )
    if plane.monthly_limit.micro == 0 or plane.calls_per_day_max == 0:
        found.append(
            Warning(
                "a limit is 0: organizations without a limit of their own make no call at all",
                hint="Raise REMIT_MONTHLY_LIMIT_USD or REMIT_CALLS_PER_DAY_MAX if that is not meant.",
                id="remit.W003",
            )
        )
    if plane.allow_opus_is_odd:
        found.append(
            Warning(
                "ALLOW_OPUS is neither true nor false: the opus tier runs on the sonnet model",
                hint="Exactly `true`, in small letters, lets it use the opus model.",
                id="remit.W004",
            )
        )
    return found
