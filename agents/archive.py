"""Object storage: packets, tool logs, patches and evidence, over Django's storages."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

import structlog
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

OBJECT_BYTES_MAX = 512 * 1024 * 1024
KEY_CHARACTERS_MAX = 300
_KEY = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")

log = structlog.get_logger(__name__)


class NotStored(Exception):
    """An object that is not there, or is not what its name says. Only a broken store causes it."""


def put(key: str, content: bytes) -> str:
    """Stores `content` under `key`, whole or not at all, and returns the key. Another content is replaced."""
    _check(key, content)
    if not (default_storage.exists(key) and _read(key) == content):
        _write(key, content)
    return key


def put_by_hash(prefix: str, content: bytes, suffix: str = "") -> str:
    """Stores `content` under the SHA-256 of itself: storing it twice stores it once."""
    return put(f"{prefix}/{hashlib.sha256(content).hexdigest()}{suffix}", content)


def get(key: str) -> bytes:
    """The bytes stored under `key`; those of a key made by `put_by_hash` are checked against it.

    Raises `NotStored`.
    """
    _check(key, b"")
    if not default_storage.exists(key):
        raise NotStored(f"{key}: no such object")
    content = _read(key)
    named = re.fullmatch(r"([0-9a-f]{64})(?:\..*)?", key.rsplit("/", 1)[-1])
    if named and hashlib.sha256(content).hexdigest() != named[1]:
        raise NotStored(f"{key}: the content is not what its name says")
    return content


def find(key: str) -> bytes | None:
    """The same for who shows it: None when the key is empty, or when the store has lost what it names.

    A backup may come back without its objects. The loss is logged; a page shows the rest.
    """
    if not key:
        return None
    try:
        return get(key)
    except NotStored as lost:
        log.error("the object store has lost something", key=key, problem=str(lost))
        return None


def remove(key: str) -> None:
    """Forgets an object; nothing happens when it is not there."""
    _check(key, b"")
    default_storage.delete(key)


def _check(key: str, content: bytes) -> None:
    if len(key) > KEY_CHARACTERS_MAX or not _KEY.fullmatch(key) or ".." in key:
        raise ValueError(f"{key[:80]!r} is no key of an object")
    if len(content) > OBJECT_BYTES_MAX:
        raise ValueError(f"an object is at most {OBJECT_BYTES_MAX} bytes, not {len(content)}")


def _write(key: str, content: bytes) -> None:
    try:
        target = Path(default_storage.path(key))
    except NotImplementedError:  # not on a local disk: such a store shows an object only when it is whole
        default_storage.delete(key)
        written = default_storage.save(key, ContentFile(content))
        if written != key:
            raise NotStored(f"{key}: the store gave it another name, {written}") from None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".part-", delete=False) as part:
        try:
            part.write(content)
            part.flush()
            os.fsync(part.fileno())
            Path(part.name).replace(target)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _read(key: str) -> bytes:
    with default_storage.open(key, "rb") as stored:
        content: bytes = stored.read()
    return content
