"""/healthz says that the process answers; /readyz says whether each part it needs does."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from kombu.exceptions import KombuError

from agents.hosts import noted_hosts
from agents.tier import SandboxTier
from agents.workspace.sandbox import probe
from budgets.audit import ledger_problems
from config.celery import app as celery_app

BROKER_SECONDS_MAX = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One thing the house stands on. A part that is not required warns, but lets traffic in."""

    state: str  # ok, warning or down
    detail: str = ""


Check = Callable[[], Part]


def healthz(request: HttpRequest) -> HttpResponse:  # noqa: ARG001  # Django's signature
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


def readyz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001  # Django's signature
    """503 when a required part is down. Details name no secret: addresses and keys stay in the log."""
    parts = {name: check() for name, check in CHECKS.items()}
    down = any(part.state == "down" for part in parts.values())
    body = {
        "ready": not down,
        "parts": {name: {"state": part.state, "detail": part.detail} for name, part in parts.items()},
    }
    return JsonResponse(body, status=503 if down else 200, headers={"Cache-Control": "no-store"})


def _database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Exception as error:  # whatever a driver raises means the same here
        return Part("down", type(error).__name__)
    return Part("ok", connection.vendor)


def _migrations() -> Part:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except Exception as error:  # as above
        return Part("down", type(error).__name__)
    if missing:
        return Part("down", f"{len(missing)} migrations are not applied: run `manage.py migrate`")
    return Part("ok")


def _broker() -> Part:
    if not settings.PLANE.redis_url:
        folder = settings.PLANE.data_dir / "broker" / "messages"
        return _writable(folder, "folder")
    try:
        with celery_app.connection_for_write() as wire:
            wire.ensure_connection(max_retries=1, timeout=BROKER_SECONDS_MAX)
    except (OSError, KombuError) as error:
        return Part("down", type(error).__name__)
    return Part("ok", "redis")


def _storage() -> Part:
    if not settings.PLANE.s3_bucket:
        return _writable(settings.PLANE.data_dir, "folder")
    name = f"ready/{secrets.token_hex(8)}"
    try:
        default_storage.delete(default_storage.save(name, ContentFile(b"ready")))
    except Exception as error:  # as above
        return Part("down", type(error).__name__)
    return Part("ok", "s3")


def _writable(folder: Path, word: str) -> Part:
    return Part("ok", word) if os.access(folder, os.W_OK) else Part("down", "the folder cannot be written")


def _sandbox() -> Part:
    """What the workers found; without any, what this process finds. Never down: files and git work without."""
    try:
        noted = noted_hosts(now=timezone.now())
    except DatabaseError as error:
        return Part("warning", type(error).__name__)
    tiers = {SandboxTier(row.tier) for row in noted} or {probe()}
    worst = max(tiers)
    where = f" (the worst of {len(noted)} workers)" if len(noted) > 1 else ""
    return Part(
        "ok" if worst in (SandboxTier.A, SandboxTier.B) else "warning", f"tier {worst}: {worst.words}{where}"
    )


def _ledger() -> Part:
    """The verdict of the last audit of the books. A problem there is for people; it stops no reader."""
    try:
        verdict = ledger_problems(timezone.now())
    except DatabaseError as error:
        return Part("warning", type(error).__name__)
    if verdict is None:
        return Part("ok", "not audited yet")
    if verdict.problem_count:
        return Part("warning", f"{verdict.problem_count} problems: run `manage.py audit_ledger`")
    return Part("warning", "the nightly audit did not run") if verdict.stale else Part("ok")


CHECKS: dict[str, Check] = {
    "database": _database,
    "migrations": _migrations,
    "broker": _broker,
    "storage": _storage,
    "sandbox": _sandbox,
    "ledger": _ledger,
}
