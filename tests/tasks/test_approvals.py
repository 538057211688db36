"""A command that waits for a person's yes: the attempt pauses, somebody decides, a worker goes on (rows 228 to 235)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from agents import archive, continuation
from agents.continuation import Mismatch, forget_orphans
from agents.errors import SandboxLimit
from agents.jobs import maintain_every_store
from agents.models import Approval, ApprovalState, Continuation, ContinuationState, ModelCall, ToolCall
from agents.workspace.checkout import Workspace
from agents.workspace.git import store_for
from budgets.keys import MeterKind
from budgets.models import Reservation, ReservationState
from budgets.money import Usd
from tasks import approvals
from tasks.approvals import approval_for, decide, reconcile
from tasks.attempts.watch import watch_runs
from tasks.changes import cancel_change, pause_change, resume_change
from tasks.errors import NotStopped
from tasks.models import ChangeSet, Claim, DecisionReceipt, Event, Task, TaskRun
from tasks.pauses import end_forsaken_pauses
from tasks.raises import raise_budget
from tasks.states import ChangeState, RunState, TaskState
from tasks.stopping import stop_run
from tasks.windows import reopen_task
from tenants.errors import InvalidInput, NotVisible, RoleTooLow
from tenants.models import AuditEntry, Membership, Role, User
from tests.factories.tenants import make_member, make_organization
from tests.tasks.repositories import make_repository
from tests.tasks.world import World, ends, events, receipts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bwrap]

FILES = {
    "greet.py": b"print('hello')\n",
    ".gitignore": b"built/\n",
    "Makefile": b"release:\n\techo released >> built/log.txt; cat built/log.txt\n",
}


def uses(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


WRITES = {
    "tools": [
        uses("write_file", path="notes.txt", content="one\n"),
        uses("write_file", path="built/log.txt", content="begun\n"),
    ]
}
RELEASES = {
    "tools": [
        uses("read_file", path="greet.py"),
        uses("run_command", command="make release", why="The log must be there."),
        uses("read_file", path="notes.txt"),
    ]
}
DONE = {"tools": [uses("complete_task", intent="released")]}


@pytest.fixture
def world(tmp_path: Any, with_plane: Any) -> World:
    with_plane(data_dir=tmp_path)
    world = World()
    make_repository(world.project, FILES)
    world.project.approval_commands = [["make", "release"]]
    world.project.save()
    world.change.refresh_from_db()
    world.play(WRITES, RELEASES, DONE)
    return world


@pytest.fixture
def admin(world: World) -> User:
    return make_member(world.project.organization, Role.ADMIN)


@pytest.fixture
def task(world: World) -> Task:
    """A Task whose attempt waits, after 20 seconds of work."""
    task = world.task(resources=["notes.txt"])
    world.run_once(task)
    return task


def the_approval() -> Approval:
    found: Approval = Approval.objects.select_related("continuation").get(state=ApprovalState.PENDING)
    return found


def bound_to(approval: Approval) -> dict[str, Any]:
    return {
        "record": str(approval.continuation_id),
        "revision": approval.revision,
        "payload_hash": approval.payload_hash,
    }


def say(world: World, by: User, approves: bool = True, reason: str = "", **over: Any) -> bool:
    approval = the_approval()
    asked = approval_for(by, approval.pk)
    bound = {**bound_to(approval), **over}
    return decide(asked, approves=approves, bound=bound, by=by, reason=reason, now=world.clock.now())


def test_an_attempt_pauses_is_approved_and_goes_on_in_the_same_loop(
    world: World, admin: User, task: Task
) -> None:
    """Rows 228, 231 and 235: nothing is run and nothing held while it waits; then the very command, once."""
    run = TaskRun.objects.get(task=task)
    fresh = world.fresh(task)
    assert (run.state, run.end_reason, run.owner) == (RunState.PAUSED, "", "")
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "approval_needed")
    assert fresh.stop_detail["ways_out"] == [{"act": "decide", "role": "admin"}]
    assert (world.fresh_change.state, world.fresh_change.stop_limit) == (
        ChangeState.BUDGET_BLOCKED,
        "approval_needed",
    )
    assert not Reservation.objects.filter(state=ReservationState.HELD).exists()
    assert not Claim.objects.filter(run=run).exists()
    assert not Event.objects.filter(kind="spend_limited").exists()
    approval = the_approval()
    assert (approval.argv, approval.why) == (["make", "release"], "The log must be there.")
    assert fresh.stop_detail["approval"] == str(approval.pk)
    assert b"+one" in archive.get(approval.continuation.patch_key)
    assert (run.calls, run.reads) == (2, 1)
    world.work(rounds=3)
    assert [each.outcome for each in ToolCall.objects.filter(run_id=run.pk)] == ["ok", "ok", "ok"]

    assert say(world, admin, reason="go")
    assert ToolCall.objects.filter(run_id=run.pk).count() == 3, "a decision runs nothing"
    assert world.fresh(task).state == TaskState.READY
    world.work()
    assert ends(task) == ["haiku completed"]
    run.refresh_from_db()
    assert (run.calls, run.reads, run.attempt) == (3, 2, 1)
    calls = list(ToolCall.objects.filter(run_id=run.pk).order_by("position"))
    assert [(each.position, each.model_call, each.name, each.outcome) for each in calls] == [
        (1, 1, "write_file", "ok"),
        (2, 1, "write_file", "ok"),
        (3, 2, "read_file", "ok"),
        (4, 2, "run_command", "ok"),
        (5, 2, "read_file", "ok"),
        (6, 3, "complete_task", "ok"),
    ]
    assert [each.key for each in ModelCall.objects.filter(run_id=run.pk).order_by("id")] == [
        f"run:{run.pk}:{number}" for number in (1, 2, 3)
    ]
    log = json.loads(archive.get(run.tool_log_key))
    assert "begun\nreleased" in log[3]["result"], "files that git ignores are there again, too"
    changeset = ChangeSet.objects.get(task=task)
    store = store_for(world.project.pk)
    assert store.read(changeset.commit, "notes.txt") == b"one\n"
    assert receipts(task, "approval")[0].decision == "approved"
    audited = AuditEntry.objects.get(action="approval.approved")
    assert (audited.actor, audited.reason, (audited.after or {})["argv"]) == (
        admin,
        "go",
        ["make", "release"],
    )
    record = Continuation.objects.get()
    assert record.state == ContinuationState.CLOSED
    with pytest.raises(archive.NotStored):
        archive.get(record.snapshot_key)
    assert store.find(f"refs/continuations/{run.pk}-1") is None


def test_the_log_is_shown_at_every_moment(world: World, admin: User, task: Task, client: Client) -> None:
    """While it waits, when it goes on, and after its end; also of an attempt that ended while it waited."""
    run = TaskRun.objects.get()
    client.force_login(admin)
    address = f"/runs/{run.pk}"
    assert "notes.txt" in client.get(address).content.decode()
    say(world, admin)
    die_before_the_first_beat(world, task)
    page = client.get(address).content.decode()
    assert "running" in page
    assert "notes.txt" in page
    world.clock.pass_by(400)
    watch_runs(world.clock.now())
    assert "notes.txt" in client.get(address).content.decode()


def test_a_pause_that_ended_keeps_its_whole_log_and_empties_its_rows(
    world: World, admin: User, task: Task
) -> None:
    cancel_change(world.fresh_change, by=admin, now=world.clock.now())
    run = TaskRun.objects.get()
    assert [each["tool"] for each in json.loads(archive.get(run.tool_log_key))] == [
        "write_file",
        "write_file",
        "read_file",
    ]
    assert set(ToolCall.objects.filter(run_id=run.pk).values_list("arguments", "answer")) == {("", "")}


def test_a_sandbox_that_is_not_free_is_waited_for(
    world: World, admin: User, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 56: the place of another attempt of the Change becomes free; the pause is not lost for it."""
    say(world, admin)
    bring_back, tries = Workspace.bring_back, []

    def full_at_first(self: Workspace, *arguments: Any) -> None:
        tries.append(world.clock.now())
        if len(tries) < 4:
            raise SandboxLimit(4)
        bring_back(self, *arguments)

    monkeypatch.setattr(Workspace, "bring_back", full_at_first)
    world.run_once(task)
    assert ends(task) == ["haiku completed"]
    assert [(each - tries[0]).total_seconds() for each in tries] == [0, 2, 4, 6]


@pytest.mark.parametrize("lost", ["tree", "places"])
def test_files_that_do_not_come_back_end_it_by_name(
    world: World, admin: User, task: Task, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 230, 233: never an empty workspace in place of the one that was."""
    say(world, admin)
    if lost == "tree":
        Continuation.objects.update(tree_commit="1" * 40)
        record = Continuation.objects.get()
        approval = Approval.objects.get()
        Approval.objects.update(payload_hash=continuation.payload_hash(approval, record))
    else:

        def full(*_: Any) -> None:
            raise SandboxLimit(4)

        monkeypatch.setattr(Workspace, "bring_back", full)
    world.run_once(task)
    run = TaskRun.objects.get(attempt=1)
    assert run.end_reason == "resume_rejected"
    words = {"tree": "the files cannot be brought back", "places": "sandbox_limit"}
    assert words[lost] in run.note
    assert not ToolCall.objects.filter(name="run_command").exists()


def test_a_declined_command_is_answered_with_the_reason(world: World, admin: User, task: Task) -> None:
    with pytest.raises(InvalidInput):
        say(world, admin, approves=False)
    assert say(world, admin, approves=False, reason="not on a Friday")
    world.work()
    assert ends(task) == ["haiku completed"]
    log = json.loads(archive.get(TaskRun.objects.get().tool_log_key))
    assert (log[3]["verdict"], log[3]["code"]) == ("refused", "declined")
    assert "not on a Friday" in log[3]["result"]
    assert not Approval.objects.exclude(effect_began_at=None).exists()


def test_each_use_is_asked_for_anew(world: World, admin: User) -> None:
    """One yes is for one command: the second one of the same turn pauses again, and time goes on counting."""
    twice = {
        "tools": [uses("run_command", command="make release"), uses("run_command", command="make release")]
    }
    world.connector.config = {}
    world.play(WRITES, twice, DONE)
    task = world.task()
    world.run_once(task)
    assert say(world, admin)
    world.work(rounds=2)
    record = Continuation.objects.get()
    assert (record.revision, record.state) == (2, ContinuationState.WAITING)
    assert Approval.objects.count() == 2
    store = store_for(world.project.pk)
    assert store.find(f"refs/continuations/{record.run_id}-1") is None
    assert store.find(f"refs/continuations/{record.run_id}-2")
    assert say(world, admin)
    world.work()
    assert ends(task) == ["haiku completed"]
    run = TaskRun.objects.get()
    assert run.calls == 3
    assert "begun\nreleased\nreleased" in json.loads(archive.get(run.tool_log_key))[3]["result"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("record", "another"), ("revision", 2), ("revision", "1"), ("payload_hash", "0" * 64)],
)
def test_a_decision_about_something_else_changes_nothing(
    world: World, admin: User, task: Task, field: str, value: Any
) -> None:
    """Row 228."""
    with pytest.raises(Mismatch) as refused:
        say(world, admin, **{field: value})
    assert refused.value.field == field
    assert the_approval().state == ApprovalState.PENDING
    assert world.fresh(task).state == TaskState.BLOCKED
    assert not AuditEntry.objects.filter(action__startswith="approval.").exists()


def test_rows_that_were_changed_behind_the_approval_are_seen(world: World, admin: User, task: Task) -> None:
    """Row 228: what was approved is what is run."""
    Approval.objects.update(argv=["make", "clean"])
    with pytest.raises(Mismatch):
        say(world, admin)
    Approval.objects.update(argv=["make", "release"])
    say(world, admin)
    Approval.objects.update(argv=["make", "clean"])
    world.work(rounds=1)
    assert ends(task)[0] == "haiku resume_rejected"
    assert TaskRun.objects.get(attempt=1).note == "changed: approval"


def test_a_decision_that_is_told_twice_is_one(world: World, admin: User, task: Task) -> None:
    """Row 229: pending waits, terminal returns the data, claimed stays busy; never a second run."""
    approval = the_approval()
    asked, bound = approval_for(admin, approval.pk), bound_to(approval)
    now = world.clock.now()
    world.run_once(task)  # a wake while it is pending
    assert TaskRun.objects.get().state == RunState.PAUSED
    assert decide(asked, approves=True, bound=bound, by=admin, reason="", now=now)
    assert not decide(asked, approves=True, bound=bound, by=admin, reason="", now=now)
    with pytest.raises(Mismatch):
        decide(asked, approves=False, bound=bound, by=admin, reason="no", now=now)
    assert len(events("approval.approved")) == 1
    world.work()
    world.run_once(task)
    assert not decide(asked, approves=True, bound=bound, by=admin, reason="", now=now)
    assert ends(task) == ["haiku completed"]
    assert ToolCall.objects.filter(name="run_command").count() == 1


def test_only_admins_decide_and_a_stranger_sees_nothing(world: World, task: Task) -> None:
    member = make_member(world.project.organization, Role.MEMBER)
    with pytest.raises(RoleTooLow):
        say(world, member)
    stranger = make_member(make_organization(), Role.OWNER)
    with pytest.raises(NotVisible):
        approval_for(stranger, the_approval().pk)


def trust_it(world: World) -> None:
    world.project.trusted = True
    world.project.save()


def ask_for_more(world: World) -> None:
    world.project.approval_commands = [["make", "release"], ["make", "..."]]
    world.project.save()


def lose_the_author(world: World) -> None:
    Membership.objects.filter(user=world.change.author).delete()


def pay_with_another(world: World) -> None:
    world.project.connector = "other"
    world.project.save()


def raise_the_floor(world: World) -> None:
    Task.objects.update(area="billing")


def lower(admin: User) -> None:
    Membership.objects.filter(user=admin).update(role=Role.MEMBER)


def remove(admin: User) -> None:
    Membership.objects.filter(user=admin).delete()


def switch_off(admin: User) -> None:
    User.objects.filter(pk=admin.pk).update(is_active=False)


def delete(admin: User) -> None:
    admin.delete()


@pytest.mark.parametrize("lose_the_right", [lower, remove, switch_off, delete])
def test_a_yes_of_somebody_who_may_not_say_it_any_more_waits_for_another_person(
    world: World, admin: User, task: Task, lose_the_right: Callable[[User], None]
) -> None:
    """Row 230: the authority of the approver, too. Nothing is lost: the very command waits, and is run once."""
    say(world, admin)
    lose_the_right(admin)
    world.work(rounds=3)
    run, fresh, approval = TaskRun.objects.get(task=task), world.fresh(task), the_approval()
    assert (run.state, run.end_reason, run.owner) == (RunState.PAUSED, "", "")
    assert (fresh.state, fresh.stop_limit, fresh.owner) == (TaskState.BLOCKED, "approval_needed", "")
    assert fresh.stop_detail["approval"] == str(approval.pk)
    assert (approval.decided_by, approval.decided_at, approval.reason) == (None, None, "")
    lapsed = receipts(task, "approval")[-1]
    assert (lapsed.decision, lapsed.reasons) == ("lapsed", ["approver_may_not"])
    assert len(events("approval.asked")) == 2
    assert not ToolCall.objects.filter(name="run_command").exists()
    assert say(world, make_member(world.project.organization, Role.ADMIN))
    world.work()
    assert ends(task) == ["haiku completed"]
    assert ToolCall.objects.filter(name="run_command").count() == 1


def test_a_no_stands_whoever_said_it(world: World, admin: User, task: Task) -> None:
    say(world, admin, approves=False, reason="Not today.")
    lower(admin)
    world.work()
    assert ends(task) == ["haiku completed"]
    assert ToolCall.objects.get(name="run_command").outcome == "refused"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (trust_it, "policy"),
        (ask_for_more, "policy"),
        (lose_the_author, "authority"),
        (pay_with_another, "route"),
        (raise_the_floor, "route"),
    ],
)
def test_what_is_no_longer_as_it_was_rejects_the_pause(
    world: World, admin: User, task: Task, change: Callable[[World], None], named: str
) -> None:
    """Row 230: the attempt ends with a name; it does not count, and the command was not run."""
    say(world, admin)
    change(world)
    world.run_once(task)
    run = TaskRun.objects.get(attempt=1)
    assert (run.state, run.end_reason, run.note) == (RunState.FAILED, "resume_rejected", f"changed: {named}")
    assert (run.calls, run.failure_class) == (2, "transport")
    assert world.fresh(task).state == TaskState.READY
    assert receipts(task, "retry")[0].reasons == ["resume_rejected"]
    assert not ToolCall.objects.filter(name="run_command").exists()
    assert Continuation.objects.get().state == ContinuationState.CLOSED


def test_the_model_is_part_of_what_must_be_as_it_was(world: World, admin: User, with_plane: Any) -> None:
    """Row 230: nobody goes on with another model than the one that has talked so far."""
    with_plane(allow_opus=True)
    task = world.task(destructive_migration=True, kind="migrate")
    world.run_once(task)
    say(world, admin)
    with_plane(allow_opus=False)
    world.run_once(task)
    run = TaskRun.objects.get(attempt=1)
    assert run.end_reason == "resume_rejected"
    assert run.note == "changed: model"


@pytest.mark.parametrize("how", ["corrupt", "foreign", "future", "gone"])
def test_a_snapshot_that_cannot_be_trusted_is_an_error(
    world: World, admin: User, task: Task, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 233, 234: never an empty conversation; the error keeps a copy only of what is small."""
    say(world, admin)
    record = Continuation.objects.get()
    data = json.loads(archive.get(record.snapshot_key))
    match how:
        case "corrupt":
            data["history"] = []
        case "foreign":
            data["run"] = str(record.pk)
        case "future":
            data["version"] = 2
            data["history"] *= 50
    content = json.dumps(data).encode()

    def stored(key: str) -> bytes:
        if how == "gone":
            raise archive.NotStored(f"{key}: no such object")
        return content

    monkeypatch.setattr(archive, "get", stored)
    world.run_once(task)
    run = TaskRun.objects.get(attempt=1)
    assert run.end_reason == "resume_rejected"
    word = "corrupt" if how == "gone" else how
    assert run.note.startswith(f"the stored conversation is {word}: ")
    if how == "future":
        assert len(content) > 4_096
        assert run.detail == {"payload_omitted": True, "bytes": len(content)}
    elif how != "gone":
        assert run.detail["bytes"] == len(content)
    assert not ToolCall.objects.filter(name="run_command").exists()


def test_a_snapshot_holds_the_unfinished_turn_apart_and_no_system_prompt(world: World, task: Task) -> None:
    """Rows 233 to 235."""
    data = json.loads(archive.get(Continuation.objects.get().snapshot_key))
    assert [each["role"] for each in data["history"]] == ["user", "assistant", "tool", "tool"]
    pending = data["pending_response"]
    assert [each["name"] for each in pending["tool_calls"]] == ["read_file", "run_command", "read_file"]
    assert len(data["answers"]) == 1, "one of them has said something already"
    assert "claude" not in json.dumps(data), "no model"


def test_time_that_is_waited_is_no_active_time(world: World, admin: User, task: Task) -> None:
    """Row 231: a day later all the time that was left is there."""
    TaskRun.objects.update(started_at=world.clock.now() - timedelta(seconds=20))
    world.clock.pass_by(86_400)
    assert watch_runs(world.clock.now()) == 0, "nobody watches a pause"
    say(world, admin)
    world.work()
    assert ends(task) == ["haiku completed"]


def test_a_dead_workers_claim_forfeits_its_time(world: World, admin: User, task: Task) -> None:
    """Row 231, worked example 23a on the rows: 40 s used, the worker dies, nothing is left to go on with."""
    record = Continuation.objects.get()
    assert record.remaining_ms == record.budget_ms == 900_000
    Continuation.objects.update(remaining_ms=860_000)
    say(world, admin)
    die_before_the_first_beat(world, task)
    record.refresh_from_db()
    assert (record.state, record.remaining_ms, record.claimed_ms) == ("claimed", 0, 860_000)
    run = TaskRun.objects.get()
    assert (world.clock.now() - run.active_since).total_seconds() == 40
    world.run_once(task)  # claimed stays busy (row 229)
    assert TaskRun.objects.count() == 1
    world.clock.pass_by(400)
    assert watch_runs(world.clock.now()) == 1
    run.refresh_from_db()
    assert (run.end_reason, run.failure_class) == ("active_budget_exhausted", "transport")
    record.refresh_from_db()
    assert (record.state, record.remaining_ms) == ("closed", 0)
    assert world.fresh(task).state == TaskState.READY
    assert receipts(task, "retry")[0].reasons == ["active_budget_exhausted"]


def test_without_time_left_nothing_goes_on(world: World, admin: User, task: Task) -> None:
    say(world, admin)
    Continuation.objects.update(remaining_ms=0)
    world.run_once(task)
    run = TaskRun.objects.get(attempt=1)
    assert run.end_reason == "active_budget_exhausted"
    assert not ToolCall.objects.filter(name="run_command").exists()


class Killed(BaseException):
    """Stands for the end of the process at this line."""


def die_before_the_first_beat(world: World, task: Task) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuation, "_run_approved", killed)
        with pytest.raises(Killed):
            world.run_once(task)


def die_in_the_command(world: World, task: Task) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agents.desk.Desk.use_approved", killed)
        with pytest.raises(Killed):
            world.run_once(task)


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_command_whose_worker_died_is_never_replayed(
    world: World, admin: User, task: Task, took_effect: bool
) -> None:
    """Row 232: an uncertain effect waits for a person, and what they found out is told to the next attempt."""
    say(world, admin)
    die_in_the_command(world, task)
    approval = Approval.objects.get()
    asked = approval_for(admin, approval.pk)
    with pytest.raises(Mismatch):  # its worker may still be at it
        reconcile(asked, took_effect=True, by=admin, reason="looked", now=world.clock.now())
    world.clock.pass_by(400)
    assert watch_runs(world.clock.now()) == 1
    fresh = world.fresh(task)
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "effect_uncertain")
    assert fresh.stop_detail["ways_out"] == [{"act": "reconcile", "role": "admin"}]
    world.work(rounds=3)
    assert len(ends(task)) == 1
    assert not ToolCall.objects.filter(name="run_command").exists()

    now = world.clock.now()
    with pytest.raises(InvalidInput):
        reconcile(asked, took_effect=took_effect, by=admin, reason=" ", now=now)
    assert reconcile(asked, took_effect=took_effect, by=admin, reason="looked at the server", now=now)
    assert not reconcile(asked, took_effect=took_effect, by=admin, reason="again", now=now)
    with pytest.raises(Mismatch):
        reconcile(asked, took_effect=not took_effect, by=admin, reason="else", now=now)
    fresh = world.fresh(task)
    assert fresh.state == TaskState.READY
    said = "it took effect" if took_effect else "it had no effect"
    assert (
        f"`make release` ran in an earlier attempt, whose worker died. A person looked: {said}."
        in fresh.notes[0]
    )
    world.run_once(task)
    assert the_approval().pk != approval.pk, "the next attempt asks anew"


def made_at(moment: datetime) -> UUID:
    """The id of a run that began then: a UUID of version 7 begins with its milliseconds."""
    return UUID(int=int(moment.timestamp() * 1_000) << 80 | 0x7 << 76 | 0b10 << 62)


def test_files_that_no_pause_needs_any_more_are_swept_and_no_live_ones(
    world: World, admin: User, task: Task
) -> None:
    """A worker that dies around the commit of a pause or of its end leaves a name that keeps a commit for ever."""
    record, store = Continuation.objects.get(), store_for(world.project.pk)
    live, commit = f"{record.run_id}-1", record.tree_commit
    now, two_days = timezone.now(), timedelta(days=2)
    gone, being_kept = made_at(now - two_days), made_at(now)
    for name in (f"{gone}-1", f"{record.run_id}-2", f"{being_kept}-1", "odd"):
        store.keep_ref("continuations", name, commit)
    assert forget_orphans(now=now) == 1
    # The next pause of the live one, and the first of a run that began just now: their rows may be on their way.
    assert sorted(store.names("continuations")) == sorted(
        [live, f"{record.run_id}-2", f"{being_kept}-1", "odd"]
    )
    Continuation.objects.update(revision=2)
    assert forget_orphans(now=now) == 1, "an earlier pause of an attempt that pauses again"
    assert live not in store.names("continuations")
    Continuation.objects.update(state=ContinuationState.CLOSED, remaining_ms=0, closed_at=now)
    assert forget_orphans(now=now) == 1, "the attempt has ended"
    assert sorted(store.names("continuations")) == sorted([f"{being_kept}-1", "odd"])
    maintain_every_store()
    assert forget_orphans(now=now + two_days) == 1, "no row came for it"
    assert list(store.names("continuations")) == ["odd"]


def test_a_cancelled_change_withdraws_what_waits(world: World, admin: User, task: Task) -> None:
    approval = the_approval()
    cancel_change(world.fresh_change, by=admin, now=world.clock.now())
    run = TaskRun.objects.get()
    assert (run.state, run.end_reason) == (RunState.CANCELLED, "cancelled")
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WITHDRAWN
    with pytest.raises(Mismatch):
        decide(
            approval_for(admin, approval.pk),
            approves=True,
            bound=bound_to(approval),
            by=admin,
            reason="",
            now=world.clock.now(),
        )
    assert store_for(world.project.pk).find(f"refs/continuations/{run.pk}-1") is None


def test_a_pause_whose_task_ended_otherwise_is_found(world: World, task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(state="cancelled", stop_limit="", stop_detail={})
    assert end_forsaken_pauses(world.clock.now()) == 1
    assert TaskRun.objects.get().state == RunState.CANCELLED
    assert end_forsaken_pauses(world.clock.now()) == 0


@pytest.mark.parametrize("decided", [False, True])
def test_a_person_stops_an_attempt_that_waits(world: World, admin: User, task: Task, decided: bool) -> None:
    member = make_member(world.project.organization, Role.MEMBER)
    if decided:
        say(world, admin)
    stop_run(TaskRun.objects.get(), by=member, reason="no need", now=world.clock.now())
    fresh = world.fresh(task)
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "stopped_by_person")
    assert world.fresh_change.stop_limit == "stopped_by_person"
    assert TaskRun.objects.get().state == RunState.CANCELLED
    reopen_task(fresh, by=member, reason="", key="k", now=world.clock.now())
    world.run_once(task)
    assert [run.state for run in TaskRun.objects.order_by("attempt")] == ["cancelled", "paused"]


def test_a_paused_change_goes_on_when_it_is_resumed(world: World, admin: User, task: Task) -> None:
    pause_change(world.fresh_change, by=admin, now=world.clock.now())
    say(world, admin)
    world.work(rounds=2)
    assert TaskRun.objects.get().state == RunState.PAUSED
    resume_change(world.fresh_change, by=admin, now=world.clock.now())
    world.work()
    assert ends(task) == ["haiku completed"]


def test_no_raise_and_no_reopening_stands_for_a_yes(world: World, admin: User, task: Task) -> None:
    world.budget("5.00")
    raise_budget(
        change=world.fresh_change,
        kind=MeterKind.CHANGE,
        to=Usd.dollars("9.00"),
        by=admin,
        reason="",
        key="r",
        now=world.clock.now(),
    )
    fresh = world.fresh(task)
    assert fresh.stop_limit == "approval_needed"
    with pytest.raises(NotStopped):
        reopen_task(fresh, by=admin, reason="", key="o", now=world.clock.now())
    assert the_approval().state == ApprovalState.PENDING


def test_a_budget_that_shrank_meanwhile_stops_the_next_call(world: World, admin: User, task: Task) -> None:
    """The expiry of a raise while it waits: the approved command runs, the next call finds no room."""
    say(world, admin)
    world.budget("0.000001")
    world.work(rounds=2)
    assert ends(task) == ["haiku change_budget"]
    assert world.fresh(task).stop_limit == "change_budget"


def test_a_stop_that_is_asked_in_the_moment_of_a_pause_wins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = make_member(world.project.organization, Role.MEMBER)
    task = world.task()
    paused = continuation.pause

    def stopped(*arguments: Any) -> Any:
        stop_run(TaskRun.objects.get(), by=member, reason="", now=world.clock.now())
        return paused(*arguments)

    monkeypatch.setattr("agents.attempt.pause", stopped)
    world.run_once(task)
    assert TaskRun.objects.get().state == RunState.CANCELLED
    assert world.fresh(task).stop_limit == "stopped_by_person"
    assert not Continuation.objects.exists()


def test_work_below_that_was_done_again_rejects_the_pause(world: World, admin: User) -> None:
    """Row 230: an attempt never goes on upon work that is not there any more."""
    world.connector.config = {}
    below = world.task()
    world.play({"tools": [uses("write_file", path="a.txt", content="a\n")]}, DONE, task="T1")
    world.play(WRITES, RELEASES, DONE, task="T2")
    task = world.task(needs=(below,))
    world.work(rounds=8)
    assert TaskRun.objects.get(task=task).state == RunState.PAUSED
    from tasks.reopening import send_back

    send_back(world.fresh(below), "again", by=admin, key="k", now=world.clock.now())
    say(world, admin)
    assert world.fresh(task).state == TaskState.PENDING
    world.work(rounds=8)
    assert TaskRun.objects.get(task=task, attempt=1).note == "changed: source"


def test_the_doors_show_what_waits(world: World, admin: User, task: Task) -> None:
    shown = approvals.approvals_of(world.change)
    assert [each.argv for each in shown] == [["make", "release"]]
    assert DecisionReceipt.objects.filter(task=task, kind="stop").count() == 1
