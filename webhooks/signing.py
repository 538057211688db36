"""Signatures: the Standard Webhooks convention, and GitHub's. Pure.

`webhook-signature` holds `v1,<base64>` of HMAC-SHA256 over `id.timestamp.body`, several of them with
spaces between while a secret is being rotated. Every comparison takes the same time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable

SECRET_PREFIX = "whsec_"  # noqa: S105  # the mark by which libraries and scanners know one
SECRET_BYTES = 32
TOLERANCE_SECONDS = 300
SIGNATURES_MAX = 10
SIGNATURE_CHARACTERS_MAX = 2_000
MESSAGE_ID_CHARACTERS_MAX = 200
GITHUB_PREFIX = "sha256="
_TIMESTAMP_DIGITS_MAX = 12
assert 24 <= SECRET_BYTES <= 64, "what the convention asks for"


def new_secret() -> str:
    """A fresh secret as receivers' libraries take it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """One signature of one message, with its version in front."""
    digest = hmac.new(_key(secret), _signed(message_id, str(timestamp), body), hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def signatures(keys: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header of a message: one signature of each secret that is in force."""
    return " ".join(signature(key, message_id, timestamp, body) for key in keys)


def is_signed(
    keys: Iterable[str], *, message_id: str, timestamp: str, header: str, body: bytes, now: float
) -> bool:
    """Is the message from somebody who knows one of these secrets, and not older or younger than five minutes?"""
    told = header[:SIGNATURE_CHARACTERS_MAX].split()[:SIGNATURES_MAX]
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= _TIMESTAMP_DIGITS_MAX):
        return False
    found = False
    for key in keys:  # to the end, whichever fits
        ours = signature(key, message_id, int(timestamp), body).encode()
        for one in told:
            found |= hmac.compare_digest(ours, one.encode("utf-8", "replace"))
    return found and abs(now - int(timestamp)) <= TOLERANCE_SECONDS


def is_signed_by_github(keys: Iterable[str], *, header: str, body: bytes) -> bool:
    """`X-Hub-Signature-256`: hexadecimal, the secret's own bytes as the key."""
    found = False
    for key in keys:
        digest = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        said = header[:SIGNATURE_CHARACTERS_MAX].encode("utf-8", "replace")
        found |= hmac.compare_digest((GITHUB_PREFIX + digest).encode(), said)
    return found


def _signed(message_id: str, timestamp: str, body: bytes) -> bytes:
    return b".".join((message_id.encode("utf-8", "replace"), timestamp.encode(), body))


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a signing secret is base64 behind whsec_") from None
