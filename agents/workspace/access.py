"""A git server's password between the request that brings it and the one import that uses it: sealed."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from agents.workspace.remote import Access
from providers import sealing
from tenants.errors import InvalidInput


def seal_password(plain: str) -> str:
    """As a row may keep it."""
    return sealing.seal(plain, **_keys())


def opened_access(username: str, sealed: str, *, shared: bool, field: str) -> Access:
    """Who asks, with the password in plain. Raises `InvalidInput` when no sealing key opens it any more."""
    try:
        return Access(username, sealing.unseal(sealed, **_keys()), shared=shared)
    except sealing.KeyUnreadable:
        raise InvalidInput(
            field, "the deployment's sealing key has changed since", "Ask again, with the password.",
            code="password_unreadable",
        ) from None  # fmt: skip


def _keys() -> dict[str, Any]:
    return {"keys": settings.PLANE.connector_keys, "secret_key": settings.PLANE.secret_key}
