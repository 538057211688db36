"""Real repositories, published work and scripts, for tests that compose and promote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from agents import archive
from agents.workspace.git import Store, store_for
from agents.workspace.trees import commit_files
from providers.models import Connector, ConnectorKind
from tasks.models import Change, ChangeSet, Task, Trunk
from tasks.states import TaskState
from tenants.models import Organization, Project
from tests.factories.tasks import make_changeset, make_task, make_trunk

AT = 1_790_000_000
_numbers = count(1)

FILES = {
    "app.py": b"first = 1\nsecond = 2\nthird = 3\n",
    "tests/__init__.py": b"",
    "tests/test_app.py": (
        b"import unittest\nimport app\n\n\nclass AppTest(unittest.TestCase):\n"
        b"    def test_first(self):\n        self.assertEqual(app.first, 1)\n"
    ),
}


def make_repository(project: Project, files: Mapping[str, bytes] = FILES) -> Trunk:
    """A project's repository with one commit on main, and its trunk, indexed."""
    store = store_for(project.pk).init()
    commit = commit_files(store, files, message="First\n", at=AT)
    store.promote(commit, None, "first")
    return make_trunk(project, commit=commit)


def make_done(
    change: Change, files: Mapping[str, bytes | None], *, needs: tuple[Task, ...] = (), **more: Any
) -> Task:
    """A done Task with a ChangeSet of these files, on main or on top of the one Task that it needs."""
    task = make_task(change, needs=needs, state=TaskState.DONE, **more)
    publish(task, files)
    return task


def publish(task: Task, files: Mapping[str, bytes | None]) -> ChangeSet:
    """The work of a Task, stacked as the engine stacks it. None removes a file."""
    change = task.change
    store = store_for(change.project_id)
    base = Trunk.objects.get(project_id=change.project_id).commit
    below = [edge.on.changesets.last() for edge in task.dependencies.order_by("on__position")]
    start = store.stack(base, [one.commit for one in below if one], AT)
    commit = edited(store, start, files)
    store.keep_ref("changesets", f"test-{next(_numbers)}", commit)
    own = store.changed_files(start, commit)
    return make_changeset(
        task,
        commit=commit,
        base_commit=base,
        start_commit=start,
        stacked_on=[str(one.pk) for one in below if one],
        files=list(store.changed_files(base, commit)),
        own_files=list(own),
        patch_key=archive.put_by_hash("patches", store.patch(start, commit), ".patch"),
        created_at=timezone.now() + timedelta(seconds=next(_numbers)),
    )


def edited(store: Store, start: str, files: Mapping[str, bytes | None]) -> str:
    there = {file.path: store.read(start, file.path) or b"" for file in store.tree_files(start)}
    wanted = {path: data for path, data in {**there, **files}.items() if data is not None}
    return commit_files(
        store, wanted, message=f"Work {next(_numbers)}\n", at=store.commit_time(start) + 1, parents=(start,)
    )


def make_script(organization: Organization, *entries: dict[str, Any], name: str = "main") -> Connector:
    """A scripted connector that plays these entries."""
    connector: Connector = Connector.objects.create(
        organization=organization, name=name, kind=ConnectorKind.SCRIPTED, config={"inline": list(entries)}
    )
    return connector


def says(role: str, *answers: object, **step: Any) -> dict[str, Any]:
    """An entry in which a role answers its questions one after the other, each time from the start."""
    return {"when": {"role": role}, "steps": [_step(answer) | step for answer in answers]}


def plan_data(*tasks: Mapping[str, Any]) -> dict[str, Any]:
    plain = {"objective": "Do it.", "kind": "implement", "size": "small", "risk": "low"}
    return {"tasks": [{**plain, "title": f"Do {task['id']}", **task} for task in tasks]}


def states(change: Change) -> Sequence[str]:
    return [task.state for task in change.tasks.order_by("position")]


def _step(answer: object) -> dict[str, Any]:
    return {"text": answer} if isinstance(answer, str) else {"json": answer}
