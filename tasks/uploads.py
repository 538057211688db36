"""Bundles that people send: written to disk as they come, bounded, and gone when their import has ended."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from django.conf import settings

from agents.workspace.importing import bundle_at
from tasks.models import ProjectImport
from tasks.states import OPEN_IMPORTS
from tenants.errors import InvalidInput

FOLDER = "uploads"
NAME_CHARACTERS_MAX = 200
# A file that nobody has written to for this long, and that no open import waits for, is of a request that died.
ABANDONED_SECONDS = 3_600


class Upload:
    """One file on its way. Whoever makes one ends it with `discard`, which leaves what was `keep`ed."""

    def __init__(self) -> None:
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / f"{uuid4().hex}.part"
        self.bytes = 0
        self._digest = hashlib.sha256()
        self._file = self.path.open("xb")

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    @property
    def sha256(self) -> bytes:
        return self._digest.digest()

    def write(self, chunk: bytes) -> None:
        """Raises `InvalidInput` when it becomes larger than the deployment allows."""
        self.bytes += len(chunk)
        if self.bytes > bundle_bytes_max():
            raise too_large()
        self._digest.update(chunk)
        self._file.write(chunk)

    def check(self) -> None:
        """That all of it is here and is a bundle by its first line. Raises `InvalidInput`."""
        self._file.close()
        bundle_at(self.path, "bundle")

    def keep(self, import_id: UUID) -> None:
        """It is this import's from now on."""
        self._file.close()
        self.path.rename(bundle_path(import_id))


def bundle_bytes_max() -> int:
    return settings.PLANE.import_mib_max * 1024 * 1024


def too_large() -> InvalidInput:
    problem = f"is larger than {settings.PLANE.import_mib_max:,} MiB"
    remedy = "The operator can raise REMIT_IMPORT_MIB_MAX."
    return InvalidInput("bundle", problem, remedy, code="too_large")


def bundle_path(import_id: UUID) -> Path:
    return _folder() / f"{import_id.hex}.bundle"


def forget_bundle(import_id: UUID) -> None:
    bundle_path(import_id).unlink(missing_ok=True)


def shown_name(name: str) -> str:
    """What a person called the file, without folders and without what does not print."""
    last = name.replace("\\", "/").rpartition("/")[2]
    plain = "".join(character if character.isprintable() else "?" for character in last)
    return plain.strip()[:NAME_CHARACTERS_MAX] or "a bundle"


def clear_abandoned_uploads(now: datetime) -> int:  # noqa: ARG001  # a step of the sweep; files have their own clock
    """Files of requests and imports that died. How many were removed."""
    old = []
    for path in _folder().glob("*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                old.append(path)
    if not old:
        return 0
    waited_for = ProjectImport.objects.filter(is_bundle=True, state__in=OPEN_IMPORTS)
    kept = {bundle_path(pk) for pk in waited_for.values_list("pk", flat=True)}
    gone = [path for path in old if path not in kept]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)


def _folder() -> Path:
    return settings.PLANE.data_dir / FOLDER
