"""Secrets of second factors lay in the clear, as allauth leaves them: sealed as connectors' keys are.

The sealing is written out here once more: a migration leans on nothing of the application that may change.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import migrations

SEALED = "gAAAAA"


def seal_all(apps: Any, _: Any) -> None:
    box = _box()
    _each(apps, lambda text: text if text.startswith(SEALED) else box.encrypt(text.encode()).decode())


def open_all(apps: Any, _: Any) -> None:
    box = _box()
    _each(apps, lambda text: box.decrypt(text.encode()).decode() if text.startswith(SEALED) else text)


def _each(apps: Any, change: Callable[[str], str]) -> None:
    for row in apps.get_model("mfa", "Authenticator").objects.all():
        changed = {name: change(row.data[name]) for name in ("secret", "seed") if name in row.data}
        if "migrated_codes" in row.data:
            changed["migrated_codes"] = [change(code) for code in row.data["migrated_codes"]]
        row.data = {**row.data, **changed}
        row.save(update_fields=["data"])


def _box() -> MultiFernet:
    keys = settings.PLANE.connector_keys
    return MultiFernet([_fernet(key) for key in keys] or [_derived(settings.PLANE.secret_key)])


def _fernet(key: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        return _derived(key)


def _derived(secret: str) -> Fernet:
    digest = hashlib.sha256(b"remit connector keys\0" + secret.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_approval_commands"),
        ("mfa", "0003_authenticator_type_uniq"),
    ]

    operations = [migrations.RunPython(seal_all, open_all)]
