"""How people get an account, and what of it is kept: somebody who may invite them made it, its secrets are sealed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from django.conf import settings
from django.http import HttpRequest

from providers import sealing
from tenants.errors import FactorUnreadable

# How every sealed text begins. No secret of an authenticator app (base32) or of recovery codes (hex) begins so.
SEALED = "gAAAAA"


class ByInvitation(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    def is_open_for_signup(self, request: HttpRequest) -> bool:  # noqa: ARG002  # allauth's signature
        return False


class SealedFactors(DefaultMFAAdapter):  # type: ignore[misc]  # allauth has no types
    """Secrets of second factors at rest: whoever reads a copy of the database can make no code from it."""

    def encrypt(self, text: str) -> str:
        return sealing.seal(text, **_sealing_keys())

    def decrypt(self, encrypted_text: str) -> str:
        """Raises `FactorUnreadable`. What an older process wrote during an upgrade is plain, until it is resealed."""
        if not encrypted_text.startswith(SEALED):
            return encrypted_text
        try:
            return sealing.unseal(encrypted_text, **_sealing_keys())
        except sealing.KeyUnreadable as error:
            raise FactorUnreadable from error


def resealed(data: dict[str, Any]) -> dict[str, Any]:
    """What a factor's row holds, with its secrets sealed by the newest key. Raises `FactorUnreadable`."""
    adapter = SealedFactors()
    return _each_secret(data, lambda text: adapter.encrypt(adapter.decrypt(text)))


def _each_secret(data: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """`secret` of an authenticator app, `seed` of recovery codes, and codes that came from another program."""
    changed: dict[str, Any] = {name: change(data[name]) for name in ("secret", "seed") if name in data}
    if "migrated_codes" in data:
        changed["migrated_codes"] = [change(code) for code in data["migrated_codes"]]
    return {**data, **changed}


def _sealing_keys() -> dict[str, Any]:
    return {"keys": settings.PLANE.connector_keys, "secret_key": settings.PLANE.secret_key}
