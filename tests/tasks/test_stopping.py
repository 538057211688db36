"""A person ends one attempt: it is heard at the next beat, and the Task waits for a person's word."""

from __future__ import annotations

import pytest
from django.test import Client

from agents.models import ToolCall
from agents.spec import Outcome
from routing.words import EndReason
from tasks.attempts.finish import finish
from tasks.attempts.run import run_task
from tasks.attempts.watch import watch_runs
from tasks.errors import NotStopped
from tasks.models import Event, TaskRun
from tasks.states import ChangeState, RunState, TaskState
from tasks.stopping import stop_run
from tasks.supervision import RunSupervisor
from tasks.windows import reopen_task
from tenants.errors import RoleTooLow
from tenants.models import AuditEntry, Role, User
from tests.factories.tasks import NOW, make_run, make_task
from tests.factories.tenants import bearer, make_member, make_token
from tests.tasks.world import DONE, World, ends

pytestmark = pytest.mark.django_db

READS = {"tools": [{"name": "list_files", "arguments": {}}]}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def member(world: World) -> User:
    return make_member(world.project.organization, Role.MEMBER)


def test_a_stopped_attempt_ends_before_its_next_call_and_its_task_waits(
    world: World, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.play(READS, READS, DONE)
    task = world.task()
    heard = RunSupervisor.beat

    def stopped_after_the_first_tool(self: RunSupervisor) -> None:
        if ToolCall.objects.filter(run_id=TaskRun.objects.get().pk).exists():
            stop_run(TaskRun.objects.get(), by=member, reason="wrong file", now=world.clock.now())
            world.clock.pass_by(2)
        heard(self)

    monkeypatch.setattr(RunSupervisor, "beat", stopped_after_the_first_tool)
    world.run_once(task)
    monkeypatch.undo()
    run = TaskRun.objects.get()
    assert (run.state, run.end_reason, run.calls) == (RunState.CANCELLED, "cancelled", 1)
    fresh = world.fresh(task)
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "stopped_by_person")
    assert fresh.stop_detail["note"] == f"{member.email}: wrong file"
    assert fresh.stop_detail["ways_out"] == [{"act": "reopen", "role": "member"}]
    change = world.fresh_change
    assert (change.state, change.stop_limit) == (ChangeState.BUDGET_BLOCKED, "stopped_by_person")
    assert not Event.objects.filter(kind="spend_limited").exists()  # no budget refused anything
    entry = AuditEntry.objects.get(action="run.stopped")
    assert (entry.actor, entry.reason) == (member, "wrong file")

    world.work()
    assert len(ends(task)) == 1  # it does not start again by itself
    reopen_task(fresh, by=member, reason="go on", key="k", now=world.clock.now())
    world.play(DONE)
    world.work()
    assert ends(task) == ["haiku cancelled", "haiku completed"]


def test_stopping_twice_is_stopping_once_and_an_ended_attempt_cannot_be_stopped(
    world: World, member: User
) -> None:
    run = make_run(make_task(world.change, state=TaskState.RUNNING))
    for reason in ("first", "second"):
        stop_run(run, by=member, reason=reason, now=NOW)
    run.refresh_from_db()
    assert run.stop_reason == "first"
    assert AuditEntry.objects.filter(action="run.stopped").count() == 1
    finish(run, Outcome(end=EndReason.CANCELLED), now=NOW)
    with pytest.raises(NotStopped):
        stop_run(run, by=member, now=NOW)


def test_work_that_was_done_in_that_moment_is_done(world: World, member: User) -> None:
    run = make_run(make_task(world.change, state=TaskState.RUNNING))
    stop_run(run, by=member, now=NOW)
    finish(run, Outcome(end=EndReason.COMPLETED, intent="did it"), now=NOW)
    assert world.fresh(run.task).state == TaskState.DONE


@pytest.mark.parametrize("end", [EndReason.TRANSIENT, EndReason.WORKER_LOST, EndReason.CHANGE_BUDGET])
def test_however_it_ends_after_that_word_it_is_not_tried_again(
    world: World, member: User, end: EndReason
) -> None:
    run = make_run(make_task(world.change, state=TaskState.RUNNING))
    stop_run(run, by=member, now=NOW)
    finish(run, Outcome(end=end), now=NOW)
    assert world.fresh(run.task).stop_limit == "stopped_by_person"


def test_a_dead_worker_does_not_keep_the_word_from_being_heard(world: World, member: User) -> None:
    run = make_run(make_task(world.change, state=TaskState.RUNNING), lease_until=NOW)
    stop_run(run, by=member, now=NOW)
    assert watch_runs(NOW) == 1
    run.refresh_from_db()
    assert (run.state, world.fresh(run.task).stop_limit) == (RunState.CANCELLED, "stopped_by_person")


def test_a_viewer_stops_nothing(world: World) -> None:
    run = make_run(make_task(world.change, state=TaskState.RUNNING))
    with pytest.raises(RoleTooLow):
        stop_run(run, by=make_member(world.project.organization, Role.VIEWER), now=NOW)


def test_it_is_stopped_from_its_page_and_over_rest(world: World, member: User) -> None:
    run = make_run(make_task(world.change, state=TaskState.RUNNING))
    client = Client()
    client.force_login(member)
    assert f"/runs/{run.pk}/stop" in client.get(f"/runs/{run.pk}").content.decode()
    assert client.post(f"/runs/{run.pk}/stop", {"reason": "wrong"}).headers["Location"] == f"/runs/{run.pk}"
    page = client.get(f"/runs/{run.pk}").content.decode()
    assert "stopping" in page
    assert f"/runs/{run.pk}/stop" not in page
    _, plain = make_token(member, world.project.organization, scopes=["changes:write"])
    again = client.post(f"/api/v1/runs/{run.pk}/stop", {}, content_type="application/json", **bearer(plain))
    assert again.status_code == 200
    assert again.json()["stop_asked_at"]
    finish(TaskRun.objects.get(), Outcome(end=EndReason.CANCELLED), now=NOW)
    late = client.post(
        f"/api/v1/runs/{run.pk}/stop", {"reason": "x"}, content_type="application/json", **bearer(plain)
    )
    assert (late.status_code, late.json()["code"]) == (409, "not_stopped")
    task_page = client.get(f"/tasks/{run.task_id}").content.decode()
    assert "A person stopped the attempt" in task_page
    assert f"/tasks/{run.task_id}/reopen" in task_page


def test_the_log_is_read_while_the_attempt_goes_on_and_its_rows_are_emptied_when_it_is_stored(
    world: World, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pages.md D5: a live log."""
    world.play(READS, DONE)
    task = world.task()
    client = Client()
    client.force_login(member)
    seen: list[str] = []
    heard = RunSupervisor.beat

    def looked_at(self: RunSupervisor) -> None:
        run = TaskRun.objects.get()
        if not seen and ToolCall.objects.filter(run_id=run.pk).exists():
            seen.append(client.get(f"/runs/{run.pk}").content.decode())
            seen.append(client.get(f"/runs/{run.pk}?q=nothing-like-it").content.decode())
        heard(self)

    monkeypatch.setattr(RunSupervisor, "beat", looked_at)
    run_task(task.pk, clock=world.clock)
    live, searched = seen
    assert "list_files" in live
    assert 'id="tool-1"' in live
    assert "data-follow" in live
    assert 'id="tool-1"' not in searched
    assert not ToolCall.objects.exclude(arguments="", answer="").exists()
