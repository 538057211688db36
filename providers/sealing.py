"""Connector keys at rest: sealed with the deployment's keys, opened only to build a client."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class KeyUnreadable(Exception):
    """A stored key that none of the deployment's sealing keys opens: one was rotated away too early."""


def seal(plain: str, *, keys: Sequence[str], secret_key: str) -> str:
    """The key as it is stored: sealed with the first of `keys`."""
    return _box(keys, secret_key).encrypt(plain.encode()).decode() if plain else ""


def unseal(sealed: str, *, keys: Sequence[str], secret_key: str) -> str:
    """The key in plain. Any of `keys` may open it, so that they can rotate; raises `KeyUnreadable`."""
    if not sealed:
        return ""
    try:
        return _box(keys, secret_key).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise KeyUnreadable(
            "a stored connector key cannot be opened; put the earlier sealing key back"
        ) from None


def _box(keys: Sequence[str], secret_key: str) -> MultiFernet:
    return MultiFernet([_fernet(key) for key in keys] or [_derived(secret_key)])


def _fernet(key: str) -> Fernet:
    """A Fernet key as `Fernet.generate_key` makes it; any other text of good length is hashed to one."""
    try:
        return Fernet(key)
    except ValueError:
        return _derived(key)


def _derived(secret: str) -> Fernet:
    digest = hashlib.sha256(b"remit connector keys\0" + secret.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))
