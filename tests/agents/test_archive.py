"""The object store: whole objects only, and hashes that are checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from django.core.files.storage import default_storage

from agents import archive


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, settings: object) -> None:
    backend = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": tmp_path / "objects"},
    }
    settings.STORAGES = {**settings.STORAGES, "default": backend}  # type: ignore[attr-defined]  # pytest-django's


def test_what_is_put_is_got_and_nothing_else_is_left() -> None:
    key = archive.put("context/p/c/t/tools-1.json", b"[]")
    assert archive.get(key) == b"[]"
    assert default_storage.listdir("context/p/c/t") == ([], ["tools-1.json"])
    archive.put(key, b"[1]")
    assert archive.get(key) == b"[1]"


def test_an_object_by_hash_is_stored_once_and_checked_when_read() -> None:
    key = archive.put_by_hash("patches", b"diff", ".patch")
    assert key == f"patches/{hashlib.sha256(b'diff').hexdigest()}.patch"
    assert archive.put_by_hash("patches", b"diff", ".patch") == key
    Path(default_storage.path(key)).write_bytes(b"dif")
    with pytest.raises(archive.NotStored, match="not what its name says"):
        archive.get(key)


def test_a_missing_object_says_so() -> None:
    with pytest.raises(archive.NotStored, match="no such object"):
        archive.get("nothing/here")


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "a b", "x" * 301, "a\nb"]
)
def test_a_key_that_could_leave_the_store_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is no key"):
        archive.put(key, b"")
