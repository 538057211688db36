"""A Preflight says what would keep attempts from succeeding, before any money is spent, while it looks."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from agents.tier import SandboxTier
from agents.workspace import preflight as engine
from agents.workspace.sandbox import probe
from budgets.models import Reservation
from tasks import preflights
from tasks.errors import IllegalMove, LostRace, StillOpen
from tasks.models import Preflight
from tasks.preflights import (
    KEPT_MAX,
    TRIES_MAX,
    cancel_preflight,
    failing_for,
    request_preflight,
    run_preflight,
    suggested_commands,
    wake_due_preflights,
)
from tenants.errors import InvalidInput
from tenants.models import AuditEntry, Project, Role, User
from tests.factories.tasks import make_change, make_criterion, make_preflight
from tests.factories.tenants import make_member, make_project
from tests.tasks.repositories import make_repository

TESTS = "python3 -m unittest -q"


@pytest.fixture
def project(db: None, data_dir: Any) -> Project:
    found = make_project()
    make_repository(found)
    return found


@pytest.fixture
def data_dir(tmp_path: Any, with_plane: Any) -> Any:
    with_plane(data_dir=tmp_path)
    return tmp_path


def owner_of(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN)


def asked(project: Project, *commands: str, prepares: bool = False) -> Preflight:
    return request_preflight(
        project, list(commands), prepares=prepares, by=owner_of(project), now=timezone.now()
    )


def worked(project: Project, *commands: str) -> Preflight:
    found = asked(project, *commands)
    run_preflight(found.pk)
    found.refresh_from_db()
    return found


@pytest.mark.bwrap
def test_a_project_whose_checks_run_passes_and_costs_nothing(project: Project) -> None:
    found = worked(project, TESTS)
    assert (found.state, found.problems) == ("passed", [])
    assert found.found["files"] == 3
    assert found.found["tier"] in "ABC"
    (check,) = found.found["checks"]
    assert (check["command"], check["exit_code"], check["passed"]) == (TESTS, 0, True)
    assert found.commit == project.trunk.commit
    assert not Reservation.objects.exists()
    assert AuditEntry.objects.get(action="preflight.started").after == {"commands": [TESTS]}


@pytest.mark.bwrap
def test_everything_that_is_wrong_is_said_at_once(project: Project) -> None:
    found = worked(
        project, "no-such-program x", "python3 -c 'import nowhere_at_all'", "python3 -m unittest -q"
    )
    assert found.state == "failed"
    assert found.found["missing"] == ["no-such-program", "nowhere_at_all"]
    assert len(found.problems) == 2
    assert "no-such-program is not there for commands" in found.problems
    assert [check["passed"] for check in found.found["checks"]] == [False, False, True]


@pytest.mark.bwrap
def test_what_was_found_so_far_is_there_while_it_works(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    check = engine._check

    def looked(*arguments: Any, **more: Any) -> engine.CheckRun:
        row = Preflight.objects.get()
        seen.append((row.step, len(row.found["checks"])))
        return check(*arguments, **more)

    monkeypatch.setattr(engine, "_check", looked)
    worked(project, TESTS, "ls app.py")
    assert seen == [(f"running {TESTS}", 0), ("running ls app.py", 1)]


@pytest.mark.parametrize("files", [{"package.json": b'{"dependencies": {"x": "1"}}'}])
def test_a_list_without_a_lock_is_named(db: None, data_dir: Any, files: dict[str, bytes]) -> None:
    found = make_project()
    make_repository(found, files)
    assert "has no lock file" in worked(found).problems[0]


def test_one_at_a_time_and_only_a_project_with_a_repository(project: Project) -> None:
    asked(project)
    with pytest.raises(StillOpen):
        asked(project)
    with pytest.raises(InvalidInput, match="no repository"):
        asked(make_project())
    Project.objects.filter(pk=project.pk).update(archived_at=timezone.now())
    project.refresh_from_db()
    with pytest.raises(InvalidInput, match="archived"):
        asked(project)
    assert Preflight.objects.count() == 1


@pytest.mark.parametrize("command", ["", "a; b", "'open", "x" * 1_001, "a\nb", "A=1 b", 7, None])
def test_what_is_no_command_is_refused_by_its_place(project: Project, command: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(project, "ls", command)
    assert refused.value.field == "commands[1]"
    assert not Preflight.objects.exists()


def test_a_worker_that_died_is_followed_by_another_and_not_for_ever(project: Project) -> None:
    """Row 12's way: the lease ends, or the process is surely dead, and the sweep wakes another."""
    found = asked(project)
    for tried in range(1, TRIES_MAX + 1):
        assert preflights._take(found.pk, now=timezone.now()) is not None
        assert preflights._take(found.pk, now=timezone.now()) is None  # a second worker gets nothing
        assert wake_due_preflights(timezone.now()) == 0
        row = Preflight.objects.get()
        assert row.tries == tried
        machine = row.work_key.rsplit(":", 3)[0]
        Preflight.objects.update(work_key=f"{machine}:4194999:1:{tried}")
        assert wake_due_preflights(timezone.now()) == 1
    run_preflight(found.pk)
    found.refresh_from_db()
    assert (found.state, found.problems) == ("failed", [f"{TRIES_MAX} workers died over it"])


def test_whoever_lost_it_writes_nothing(project: Project) -> None:
    found = asked(project)
    first = preflights._take(found.pk, now=timezone.now())
    assert first is not None
    Preflight.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    second = preflights._take(found.pk, now=timezone.now())
    assert second is not None
    for act in (first.beat, lambda: first.tell("x", engine.Preflight(tier=probe())), lambda: first.end({})):
        with pytest.raises(LostRace):
            act()
    second.end({"problems": []})
    found.refresh_from_db()
    assert (found.state, found.tries) == ("passed", 2)


@pytest.mark.bwrap
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(probe() is SandboxTier.D, reason="needs a sandbox")
def test_a_cancelled_one_kills_what_it_runs(project: Project) -> None:
    found = asked(project, "sleep 60")

    def work() -> None:
        try:
            run_preflight(found.pk)
        finally:
            connections.close_all()

    worker = threading.Thread(target=work)
    worker.start()
    deadline = time.monotonic() + 30
    while not Preflight.objects.get().step.startswith("running"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    cancel_preflight(Preflight.objects.get(), by=owner_of(project), now=timezone.now())
    began = time.monotonic()
    worker.join(30)
    assert not worker.is_alive()
    assert time.monotonic() - began < 10
    found.refresh_from_db()
    assert found.state == "cancelled"
    with pytest.raises(IllegalMove):
        cancel_preflight(found, by=owner_of(project), now=timezone.now())


def test_a_fault_of_ours_ends_it_with_a_word(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> engine.Preflight:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(engine, "preflight", broken)
    found = worked(project)
    assert found.state == "failed"
    assert "RuntimeError" in found.problems[0]
    assert "secret" not in found.problems[0]


def test_the_last_ones_are_kept_and_older_ones_go(project: Project) -> None:
    for at in range(KEPT_MAX + 5):
        make_preflight(
            project,
            state="passed",
            created_at=timezone.now() - timedelta(days=at + 1),
            ended_at=timezone.now(),
            commands=[f"ls {at}"],
        )
    newest = asked(project)
    assert Preflight.objects.count() == KEPT_MAX
    assert Preflight.objects.filter(pk=newest.pk).exists()
    assert not Preflight.objects.filter(commands=[f"ls {KEPT_MAX + 4}"]).exists()


def test_the_commands_of_criteria_are_suggested_until_somebody_chose(project: Project) -> None:
    make_criterion(make_change(project), command="ls old")
    newer = make_change(project)
    make_criterion(newer, command="ls new")
    make_criterion(newer)
    make_criterion(make_change(), command="ls of another project")
    assert suggested_commands(project) == ["ls new", "ls old"]
    make_preflight(project, commands=["ls chosen"])
    assert suggested_commands(project) == ["ls chosen"]


def test_a_failing_one_points_at_itself_until_a_newer_one_passes(project: Project) -> None:
    member = make_member(project.organization)
    ended = {"ended_at": timezone.now(), "found": {"problems": ["pytest is not there"]}}
    old = make_preflight(project, state="failed", created_at=timezone.now() - timedelta(hours=2), **ended)
    assert list(failing_for(member)) == [old]
    assert list(failing_for(make_member())) == []
    client = Client()
    client.force_login(member)
    for path in ("/", f"/projects/{project.pk}/changes/new"):
        body = client.get(path).content.decode()
        assert "pytest is not there" in body
        assert f"/preflights/{old.pk}" in body
    make_preflight(
        project, state="passed", created_at=timezone.now() - timedelta(hours=1), ended_at=timezone.now()
    )
    assert list(failing_for(member)) == []
    assert "pytest is not there" not in client.get("/").content.decode()


@pytest.mark.bwrap
def test_an_admin_starts_one_in_the_browser_and_everybody_reads_it(project: Project) -> None:
    admin, viewer = Client(), Client()
    admin.force_login(owner_of(project))
    viewer.force_login(make_member(project.organization, Role.VIEWER))
    page = f"/projects/{project.pk}/preflights"
    assert "Start it" in admin.get(page).content.decode()
    assert "Start it" not in viewer.get(page).content.decode()
    assert viewer.post(page, {"commands": "ls"}).status_code == 403
    assert "no program" in admin.post(page, {"commands": "''"}).content.decode()
    answer = admin.post(page, {"commands": f"{TESTS}\n\n  ls nowhere\n"})
    found = Preflight.objects.get()
    assert answer.headers["Location"] == f"/preflights/{found.pk}"
    assert "waits for a worker" in viewer.get(f"/preflights/{found.pk}").content.decode()
    run_preflight(found.pk)
    body = viewer.get(f"/preflights/{found.pk}").content.decode()
    assert "ls nowhere does not pass on this commit" in body
    assert "3 files in" in body
    assert "failed" in viewer.get(page).content.decode()
    assert "Preflights" in viewer.get(f"/projects/{project.pk}").content.decode()


@pytest.mark.bwrap
def test_over_rest_it_is_queued_read_and_cancelled(project: Project) -> None:
    client = Client()
    client.force_login(owner_of(project))
    path = f"/api/v1/projects/{project.pk}/preflights"

    def post(where: str, body: Any) -> Any:
        return client.post(where, body, content_type="application/json")

    made = post(path, {"commands": ["ls app.py"], "prepare": False})
    assert (made.status_code, made.json()["state"]) == (201, "queued")
    assert post(path, {}).json()["code"] == "preflight_open"
    one = f"/api/v1/preflights/{made.json()['id']}"
    assert post(f"{one}/cancel", {}).json()["state"] == "cancelled"
    assert post(f"{one}/cancel", {}).status_code == 409
    again = post(path, {"prepare": False})
    assert again.json()["commands"] == ["ls app.py"]
    run_preflight(again.json()["id"])
    found = client.get(f"/api/v1/preflights/{again.json()['id']}").json()
    assert (found["state"], found["found"]["checks"][0]["exit_code"]) == ("passed", 0)
    assert [each["state"] for each in client.get(path).json()["results"]] == ["passed", "cancelled"]
    for body, field in (
        ({"commands": "ls"}, "commands"),
        ({"commands": ["a|b"]}, "commands[0]"),
        ({"x": 1}, "x"),
    ):
        refused = post(path, body)
        assert (refused.status_code, refused.json()["field"]) == (400, field)
