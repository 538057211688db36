"""Attempts in real workspaces: stacks, lineage, patches, and dependencies that do not merge (rows 24, 213 to 217)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents import archive
from agents.index import build_index
from agents.models import TreeIndex
from agents.workspace.git import Store, store_for
from agents.workspace.trees import commit_files
from tasks.attempts.begin import begin
from tasks.attempts.prepare import prepare
from tasks.attempts.watch import watch_runs
from tasks.dispatch import take
from tasks.models import Change, ChangeSet, Task, TaskRun, Trunk
from tasks.states import ChangeState, TaskState
from tests.tasks.world import World, ends, receipts

pytestmark = pytest.mark.django_db

FILES = {"schema.ts": b"one\n", "api.ts": b"one\n", "ui.ts": b"one\n", "README.md": b"# Hello\n"}


@pytest.fixture
def world(tmp_path: Path, with_plane: Any) -> World:
    """A project with a real repository, indexed."""
    with_plane(data_dir=tmp_path)
    world = World()
    store: Store = store_for(world.project.pk).init()
    commit = commit_files(store, FILES, message="first", at=1_700_000_000)
    store.promote(commit, None, "first")
    build_index(world.project.pk, commit, now=world.clock.now())
    Trunk.objects.create(project=world.project, commit=commit, indexed_generation=1)
    return world


def writes(path: str, content: str = "two\n") -> list[dict[str, Any]]:
    return [
        {"tools": [{"name": "write_file", "arguments": {"path": path, "content": content}}]},
        {"tools": [{"name": "complete_task", "arguments": {"intent": f"rewrote {path}"}}]},
    ]


def changeset_of(task: Task) -> ChangeSet:
    found: ChangeSet = ChangeSet.objects.get(task=task)
    return found


def test_a_task_stands_on_the_work_of_its_dependencies(world: World) -> None:
    """Example 20a."""
    first, second = world.task(), world.task()
    third = world.task(needs=(first, second), resources=["ui.ts"])
    for task, path in ((first, "schema.ts"), (second, "api.ts"), (third, "ui.ts")):
        world.play(*writes(path), task=task.key)
    world.work()
    one, two, three = map(changeset_of, (first, second, third))
    assert three.stacked_on == [str(one.pk), str(two.pk)]  # T1 is older
    assert three.files == ["api.ts", "schema.ts", "ui.ts"]
    assert three.own_files == ["ui.ts"]
    patch = archive.get(three.patch_key).decode()
    assert "ui.ts" in patch
    assert "schema.ts" not in patch
    assert "api.ts" not in patch
    assert three.start_commit != three.base_commit == one.start_commit
    run = TaskRun.objects.get(task=third)
    assert (run.stacked_on, run.start_commit) == (three.stacked_on, three.start_commit)
    assert run.changeset == three
    store = store_for(world.project.pk)
    assert [store.read(three.commit, path) for path in ("schema.ts", "api.ts", "ui.ts")] == [b"two\n"] * 3


def test_the_packet_tells_of_the_stack_and_of_the_declared_files(world: World) -> None:
    """Rows 201, 202."""
    first = world.task()
    second = world.task(needs=(first,), resources=["schema.ts"])
    world.play(*writes("schema.ts"), task=first.key)
    world.play(*writes("ui.ts"), task=second.key)
    world.work()
    packet = archive.get(TaskRun.objects.get(task=second).packet_key).decode()
    assert '"intent":"rewrote schema.ts"' in packet
    assert '"item_id":"file:schema.ts"' in packet
    assert "two\\n" in packet  # as it is on the stack, not on main


def test_the_same_start_gives_the_same_packet_an_hour_later(world: World) -> None:
    """Rows 204, 205, example 18b: a lost worker's successor is told exactly the same."""
    task = world.task(resources=["api.ts"])
    world.play(*writes("api.ts"))
    taken = take(task.pk, owner="gone", now=world.clock.now())
    assert taken is not None
    lost = begin(taken, clock=world.clock)
    assert lost is not None
    TaskRun.objects.filter(pk=lost.run.pk).update(lease_until=world.clock.now(), owner="gone")
    watch_runs(world.clock.now())
    world.clock.pass_by(3_600)
    world.run_once(task)
    first, second = TaskRun.objects.filter(task=task).order_by("attempt")
    assert first.context_hash == second.context_hash
    assert ends(task) == ["haiku worker_lost", "haiku completed"]


def test_dependencies_that_do_not_merge_fail_the_start_at_once(world: World) -> None:
    """Rows 24, 215: no attempt, no retry; the integrate rule is woken with all that it needs."""
    first, second = world.task(), world.task()
    third = world.task(needs=(first, second))
    world.play(*writes("api.ts", "mine\n"), task=first.key)
    world.play(*writes("api.ts", "yours\n"), task=second.key)
    for task in (first, second):
        world.run_once(task)
    world.run_once(third)
    fresh = world.fresh(third)
    assert (fresh.state, fresh.failure) == (TaskState.FAILED, "dependency_merge_conflict")
    assert fresh.stop_detail["paths"] == ["api.ts"]
    assert fresh.stop_detail["at"] == changeset_of(second).commit
    assert fresh.stop_detail["stacked_on"] == [str(changeset_of(one).pk) for one in (first, second)]
    assert ends(third) == []
    assert receipts(third, "failure")[0].reasons == ["dependency_merge_conflict"]
    change = Change.objects.get(pk=world.change.pk)
    assert (change.state, change.not_before) == (ChangeState.RUNNING, world.clock.now())


def test_a_run_that_publishes_nothing_leaves_no_changeset(world: World) -> None:
    task = world.task()
    complete = {"tools": [{"name": "complete_task", "arguments": {"intent": "nothing to do"}}]}
    world.play(complete, complete)
    world.run_once(task)
    assert not ChangeSet.objects.exists()


def test_two_clones_give_the_same_commit_and_the_same_packet(
    world: World, tmp_path: Path, with_plane: Any
) -> None:
    """Shows 3 of the engine: same repository, same ChangeSets, another machine: nothing depends on the place."""
    first, second = world.task(), world.task()
    for task, path in ((first, "schema.ts"), (second, "api.ts")):
        world.play(*writes(path), task=task.key)
    world.work()
    third = world.task(needs=(first, second), resources=["ui.ts", "api.ts"])
    prepared = [prepare(third, clock=world.clock)]
    for clone in ("two", "three"):
        other = tmp_path / clone / "git" / f"{world.project.pk}.git"
        other.parent.mkdir(parents=True)
        mirror = ["git", "clone", "-q", "--mirror", str(store_for(world.project.pk).directory), str(other)]
        subprocess.run(mirror, check=True)
        with_plane(data_dir=tmp_path / clone)
        store = store_for(world.project.pk)
        assert store.directory == other
        for ref in store.git("for-each-ref", "--format=%(refname)", "refs/stacks").out.decode().split():
            store.git("update-ref", "-d", ref)  # merged anew, not found
        TreeIndex.objects.all().delete()
        build_index(world.project.pk, store.rev("refs/heads/main"), now=world.clock.now())
        world.clock.pass_by(3_600)
        prepared.append(prepare(third, clock=world.clock))
    assert len({one.tree.start_commit for one in prepared if one.tree}) == 1
    assert len({one.packet.hash for one in prepared}) == 1
    assert prepared[0].tree is not None
    assert prepared[0].tree.start_commit != prepared[0].tree.base_commit
