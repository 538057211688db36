"""A wake is the only call by name in the house: each name must belong to a job."""

from __future__ import annotations

import ast

from config.celery import app
from tests.architecture.sources import calls, code


def _registered() -> set[str]:
    app.loader.import_default_modules()
    return set(app.tasks)


def test_every_job_that_the_clock_starts_is_registered() -> None:
    scheduled = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert scheduled - _registered() == set()


def test_every_job_with_a_queue_is_registered() -> None:
    assert set(app.conf.task_routes) - _registered() == set()


def test_every_wake_names_a_registered_job() -> None:
    """Names given to `send_task`, as a text or as an upper-case constant of the same file."""
    unknown = []
    for source in code():
        constants = {
            target.id: node.value.value
            for node in source.tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and isinstance(node.value.value, str)
        }
        if not any(
            isinstance(c.func, ast.Attribute) and c.func.attr == "send_task" for c in calls(source.tree)
        ):
            continue
        jobs = {
            name
            for name in constants.values()
            if name.partition(".")[0] in ("tasks", "agents", "webhooks", "budgets")
        }
        jobs |= {
            str(call.args[0].value)
            for call in calls(source.tree)
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "send_task"
            and call.args
            and isinstance(call.args[0], ast.Constant)
        }
        unknown += [f"{source.path}: {name}" for name in sorted(jobs - _registered())]
    assert unknown == []
