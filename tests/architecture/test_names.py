"""Files are named after things of the domain, and say in their first line what they are for."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from django.apps import apps

from tests.architecture.sources import code, tracked

ATTICS = {"utils", "util", "common", "core", "base", "misc", "manager", "managers", "services", "helpers_"}


def test_no_file_is_an_attic() -> None:
    assert [
        path for path in tracked() if path.endswith(".py") and PurePosixPath(path).stem.lower() in ATTICS
    ] == []


def test_no_file_is_called_tasks() -> None:
    """Celery's entries live in jobs.py: a Task is a word of the domain."""
    assert [s.path for s in code() if PurePosixPath(s.path).name == "tasks.py"] == []


def test_every_file_says_what_it_is_for() -> None:
    silent = [source.path for source in code() if source.text.strip() and not ast.get_docstring(source.tree)]
    assert silent == []


def test_no_test_folder_is_a_package() -> None:
    assert [path for path in tracked() if path.startswith("tests/") and path.endswith("__init__.py")] == []


def test_the_admin_names_many_of_each_as_people_do() -> None:
    """Django adds an s to every name; "entrys" is a name that nobody reads twice without stumbling."""
    wrong = re.compile(r"(?:[^aeiou]ys|xs|chs|shs|ss|zs)$")
    ours = {"tasks", "agents", "budgets", "providers", "tenants", "webhooks"}
    models = [model for model in apps.get_models() if model._meta.app_label in ours]
    assert len(models) > 20
    assert [m._meta.label for m in models if wrong.search(str(m._meta.verbose_name_plural))] == []
