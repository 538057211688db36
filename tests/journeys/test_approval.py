"""A command that waits for a yes, end to end: paused, approved in the browser, promoted; and a worker killed in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from playwright.sync_api import Browser, expect

from agents.models import Approval, Continuation, ToolCall
from agents.workspace.git import store_for
from tasks.approvals import approval_for, decide
from tasks.attempts.watch import end_dead_runs
from tasks.models import Change, Task, TaskRun, Trunk
from tasks.states import ChangeState, RunState, TaskState
from tenants.models import Project, Role, User
from tests.browser import sign_in, watched
from tests.factories.tasks import make_change, make_criterion, make_task
from tests.factories.tenants import PASSWORD, make_member, make_project
from tests.journeys.workers import work_until_idle
from tests.tasks.repositories import make_repository, make_script, plan_data

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bwrap, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60
MAKEFILE = b"release:\n\techo released > released.txt\nslowly:\n\tsleep 300\n"


def uses(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def steps(command: str) -> list[dict[str, Any]]:
    return [
        {"tools": [uses("write_file", path="notes.txt", content="Version 2\n")]},
        {"tools": [uses("run_command", command=command, why="The release file is part of the goal.")]},
        {"tools": [uses("complete_task", intent="Noted and released.")]},
    ]


@pytest.fixture
def project() -> Project:
    project = make_project(approval_commands=[["make", "release"], ["make", "slowly"]])
    make_repository(project, {"Makefile": MAKEFILE, "README.md": b"# Notes\n"})
    return project


@pytest.mark.chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_an_admin_approves_in_the_browser_and_the_work_reaches_main(
    project: Project, chromium: Browser, live_server: Any, width: int
) -> None:
    plan = {"json": plan_data({"id": "T1", "title": "Release", "resources": ["notes.txt"]})}
    make_script(
        project.organization,
        {"when": {"role": "planner"}, "steps": [plan]},
        {"when": {"role": "agent"}, "steps": steps("make release")},
    )
    change = make_change(
        project, title="Release version 2", state=ChangeState.PLANNING, not_before=timezone.now()
    )
    make_criterion(change, text="It is released.", command="ls released.txt")
    admin = make_member(project.organization, Role.ADMIN, password=PASSWORD)
    work_until_idle()
    assert TaskRun.objects.get().state == RunState.PAUSED

    complaints: list[str] = []
    page = watched(chromium, complaints, width=width)
    sign_in(page, live_server.url, admin.email)
    expect(page.get_by_text("make release")).to_be_visible()
    _picture(page, f"inbox-{width}")
    page.get_by_role("link", name="Decide…").click()
    expect(page.get_by_role("heading", name="May this command run?")).to_be_visible()
    expect(page.get_by_text("The release file is part of the goal.")).to_be_visible()
    expect(page.get_by_text("notes.txt").first).to_be_visible()
    _picture(page, f"approval-{width}")
    page.get_by_label("Reason").fill("Go ahead")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved by")).to_be_visible()
    _picture(page, f"approved-{width}")

    work_until_idle()
    assert [run.end_reason for run in TaskRun.objects.all()] == ["completed"]
    fresh = Change.objects.get(pk=change.pk)
    assert fresh.state == ChangeState.READY, (fresh.failure, fresh.stop_detail)
    page.goto(f"{live_server.url}/changes/{change.pk}")
    _picture(page, f"ready-{width}")
    page.get_by_role("link", name="See the diff and promote").click()
    page.get_by_role("button", name="Promote").first.click()
    expect(page.get_by_text("promoted").first).to_be_visible()
    assert Change.objects.get(pk=change.pk).state == ChangeState.PROMOTED
    main = Trunk.objects.get(project=project).commit
    assert store_for(project.pk).read(main, "released.txt") == b"released\n"
    assert store_for(project.pk).read(main, "notes.txt") == b"Version 2\n"
    assert complaints == []


def test_a_worker_killed_in_the_command_leaves_it_to_a_person(project: Project) -> None:
    """Rows 231, 232 with a real process and a real -9: nothing is replayed, and the time of the claim is gone."""
    make_script(project.organization, {"when": {"role": "agent"}, "steps": steps("make slowly")})
    task = make_task(make_change(project))
    work_until_idle()
    approval = Approval.objects.get()
    admin = make_member(project.organization, Role.ADMIN)
    _say_yes(approval, admin)

    worker = _worker(task)
    try:
        _wait_until(lambda: Approval.objects.get().effect_began_at is not None)
        _wait_until(lambda: _sleeps(worker.pid))
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    assert Continuation.objects.get().state == "claimed"
    _wait_until(lambda: end_dead_runs(timezone.now()) == 1)
    run = TaskRun.objects.get()
    assert (run.state, run.end_reason) == (RunState.FAILED, "active_budget_exhausted")
    record = Continuation.objects.get()
    assert (record.state, record.remaining_ms) == ("closed", 0)
    fresh = Task.objects.get()
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "effect_uncertain")
    work_until_idle()
    assert TaskRun.objects.count() == 1
    assert not ToolCall.objects.filter(name="run_command").exists()


def _say_yes(approval: Approval, by: User) -> None:
    asked = approval_for(by, approval.pk)
    bound = {
        "record": str(approval.continuation_id),
        "revision": approval.revision,
        "payload_hash": approval.payload_hash,
    }
    assert decide(asked, approves=True, bound=bound, by=by, reason="", now=timezone.now())


def _worker(task: Task) -> subprocess.Popen[bytes]:
    """Another process that takes the Task, as a worker does."""
    program = (
        "import django; django.setup()\n"
        "from uuid import UUID\n"
        "from tasks.attempts.run import run_task\n"
        f"run_task(UUID('{task.pk}'))\n"
    )
    if connection.vendor == "sqlite":
        database = f"sqlite:///{connection.settings_dict['NAME']}"
    else:
        address, _, _ = settings.PLANE.database_url.rpartition("/")
        database = f"{address}/{connection.settings_dict['NAME']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REMIT_", "REDIS_"))}
    environment = kept | {
        "REMIT_DATA_DIR": str(settings.PLANE.data_dir),
        "REMIT_SECRET_KEY": settings.PLANE.secret_key,
        "REMIT_CONNECTOR_KEYS": ",".join(settings.PLANE.connector_keys),
        "DATABASE_URL": database,
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, start_new_session=True
    )


def _sleeps(pid: int) -> bool:
    """Whether something below that process runs the command's `sleep`."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for line in listed.splitlines()[1:]:
        own, parent, name = line.split(None, 2)
        parents[int(own)], names[int(own)] = int(parent), name
    for one, name in names.items():
        if name.startswith("sleep 300"):
            above = one
            while above in parents and above != pid:
                above = parents[above]
            if above == pid:
                return True
    return False


def _wait_until(true: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.1)


def _picture(page: Any, name: str) -> None:
    folder = os.environ.get("PICTURES")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
