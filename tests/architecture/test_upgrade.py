"""A deployment of the first version comes up to date: new migrations also run over tables that triggers name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

pytestmark = pytest.mark.slow

# Where each app stood when the first version was out; their triggers and functions are in place then.
FIRST_VERSION = {"tenants": "0002", "providers": "0001", "budgets": "0002", "agents": "0001", "tasks": "0002"}


def test_a_folder_of_the_first_version_migrates_to_this_one(tmp_path: Path) -> None:
    """On SQLite a column that may not be null makes its table anew, which a trigger of another table forbids."""
    for app, number in FIRST_VERSION.items():
        migrate(tmp_path, app, number)
    assert "OK" in migrate(tmp_path)
    assert migrate(tmp_path, "--check") == ""


def migrate(folder: Path, *arguments: str) -> str:
    """In a process of its own: the folder is another one than the tests', as is its database."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--no-color", *arguments],
        cwd=settings.BASE_DIR,
        env={**environment, "REMIT_DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout
