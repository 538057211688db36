"""One of everything to look at: the demo's three Changes as they really went, and rows for what they do not show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from agents import archive
from agents.models import Approval
from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.money import Usd
from budgets.reservations import keep
from config.management.commands.demo import WANTED
from routing.words import EndReason
from tasks.attempts.run import run_task
from tasks.changes import submit_change
from tasks.dependents import settle_dependents
from tasks.dispatch import due_tasks
from tasks.fence import due_changes
from tasks.models import Change, Check, Reopening, Task
from tasks.promotion import promote
from tasks.states import CandidateState, ChangeState, TaskState
from tasks.stops import DECIDED_ON
from tasks.transitions import locked_change
from tasks.work import work_on
from tenants.models import Role, User
from tests.factories.agents import make_approval, make_model_call, make_tool_call
from tests.factories.budgets import make_hold, make_payers
from tests.factories.tasks import (
    make_candidate,
    make_change,
    make_changeset,
    make_criterion,
    make_event,
    make_failed_run,
    make_import,
    make_preflight,
    make_receipt,
    make_run,
    make_task,
)
from tests.factories.tenants import PASSWORD, make_invitation, make_member, make_project, make_token
from tests.factories.webhooks import make_attempt, make_delivery, make_endpoint, make_hook, make_received
from tests.tasks.doors.conftest import Team

ROUNDS_MAX = 400
_PATCH = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old = 1\n+new = 2\n"
HOSTILE = (
    "Rename “fi\u202eexe.txt” <script>alert(1)</script> \u200bnow \x1b[31mred\x1b[0m and averylongword"
    + "x" * 80
)

PLAN = {
    "tasks": [
        {
            "id": "T1",
            "title": "A table for entries",
            "objective": "Write the migration.",
            "kind": "implement",
            "size": "small",
            "risk": "low",
            "area": "billing",
            "resources": ["ledger/models.py"],
            "depends_on": [],
        },
        {
            "id": "T2",
            "title": "Read and write it",
            "objective": "Read and write entries.",
            "kind": "implement",
            "size": "medium",
            "risk": "medium",
            "area": "general",
            "resources": ["ledger/store.py"],
            "depends_on": ["T1"],
        },
    ]
}


@dataclass(frozen=True)
class Scene:
    team: Team
    viewer: User
    operator: User
    # name of the page, address
    owner_pages: Sequence[tuple[str, str]]
    member_pages: Sequence[tuple[str, str]]
    stranger_pages: Sequence[tuple[str, str]]
    operator_pages: Sequence[tuple[str, str]]  # of who runs the deployment


def make_scene(team: Team) -> Scene:
    now = timezone.now()
    done, ready, stopped = (submit_change(team.project, wanted, by=team.member, now=now) for wanted in WANTED)
    _limits(team)
    _work()
    for each in (done, ready, stopped):
        each.refresh_from_db()
    assert (done.state, ready.state, stopped.state) == ("ready", "ready", "budget_blocked")
    promote(done.candidates.get(state=CandidateState.PASSED), by=team.admin, now=timezone.now())
    ready.refresh_from_db()
    _work()
    rows = _rows(team)
    stopped_task = stopped.tasks.exclude(stop_limit="").first()
    assert stopped_task is not None
    done_run: Any = done.tasks.get(position=1).runs.order_by("-attempt").first()
    candidate = done.candidates.get(state=CandidateState.PROMOTED)
    waiting: Any = ready.candidates.order_by("-number").first()
    assert waiting is not None
    of, project = team.organization.pk, team.project.pk
    connector: Any = team.organization.connectors.get()
    operator = make_member(team.organization, Role.OWNER, password=PASSWORD, is_staff=True, is_superuser=True)
    viewer = make_member(team.organization, Role.VIEWER, password=PASSWORD)
    _, secret = make_invitation(team.organization, email="joins@example.org", invited_by=team.owner)
    make_token(team.owner, team.organization, scopes=["read", "changes:write"])
    common = [
        ("inbox", "/"),
        ("changes", "/changes"),
        ("changes-board", "/changes?layout=board"),
        ("change-running", f"/changes/{rows['running'].pk}"),
        ("change-stopped", f"/changes/{stopped.pk}"),
        ("change-ready", f"/changes/{ready.pk}"),
        ("change-promoted", f"/changes/{done.pk}"),
        ("change-plan", f"/changes/{rows['plan'].pk}/plan"),
        ("task-stopped", f"/tasks/{stopped_task.pk}"),
        ("task-done", f"/tasks/{done_run.task_id}"),
        ("task-failed", f"/tasks/{rows['failed_task'].pk}"),
        ("task-reopened", f"/tasks/{rows['reopened'].pk}"),
        ("run-live", f"/runs/{rows['live_run'].pk}"),
        ("candidate", f"/candidates/{waiting.pk}"),
        ("spend", "/spend"),
        ("project", f"/projects/{project}"),
        ("members", f"/organizations/{of}/members"),
    ]
    owner = [
        ("reauthenticate", reverse("mfa_activate_totp")),  # where it leads first
        *common,
        ("changes-none", "/changes?q=nothing-is-called-this"),
        ("change-new", f"/projects/{project}/changes/new"),
        ("change-draft", f"/changes/{rows['draft'].pk}"),
        ("change-failed", f"/changes/{rows['failed'].pk}"),
        ("change-planning", f"/changes/{rows['planning'].pk}"),
        ("change-approval", f"/changes/{rows['plan'].pk}"),
        ("change-history", f"/changes/{done.pk}/history"),
        ("change-raise", f"/changes/{stopped.pk}/raise"),
        ("task-reopen", f"/tasks/{rows['failed_task'].pk}/reopen"),
        ("task-send-back", f"/tasks/{waiting.change.tasks.first().pk}/send-back?at=tally/split.py:4"),
        ("run", f"/runs/{done_run.pk}"),
        ("run-search", f"/runs/{done_run.pk}?q=def"),
        ("run-failed", f"/runs/{rows['failed_run'].pk}"),
        ("packet", f"/runs/{done_run.pk}/packet"),
        ("candidate-promoted", f"/candidates/{candidate.pk}"),
        ("candidate-conflict", f"/candidates/{rows['conflict'].pk}"),
        ("limits", f"/organizations/{of}/limits"),
        ("unknown-charges", f"/organizations/{of}/unknown"),
        ("organizations", "/organizations"),
        ("organization", f"/organizations/{of}"),
        ("member-remove", f"/organizations/{of}/members/{team.member.pk}/remove"),
        ("tokens", f"/organizations/{of}/tokens"),
        ("audit", f"/organizations/{of}/audit"),
        ("connectors", f"/organizations/{of}/connectors"),
        ("connector", f"/organizations/{of}/connectors/{connector.pk}"),
        ("projects", "/projects"),
        ("project-new", "/projects/new"),
        ("account", "/account"),
        ("password-change", reverse("account_change_password")),
        ("two-factor", reverse("mfa_index")),
        ("logout", reverse("account_logout")),
        ("not-found", "/changes/00000000-0000-7000-8000-000000000000"),
        ("api-docs", "/api/v1/docs"),
    ]
    others = {"inbox", "change-stopped", "task-stopped", "candidate", "spend", "project", "members"}
    member = [
        *((name, address) for name, address in common if name in others),
        ("forbidden", f"/organizations/{of}/limits"),
    ]
    stranger = [
        ("sign-in", reverse("account_login")),
        ("sign-up", reverse("account_signup")),
        ("password-reset", reverse("account_reset_password")),
        ("password-reset-sent", reverse("account_reset_password_done")),
        ("password-reset-bad-key", reverse("account_reset_password_from_key", args=["x", "nothing"])),
        ("invitation", reverse("invitation-accept", args=[secret])),
        ("invitation-gone", reverse("invitation-accept", args=["never-sent"])),
    ]
    of_operator = [
        ("organization-new", "/organizations/new"),
        ("organization", f"/organizations/{of}"),
        ("admin", "/admin/"),
    ]
    return Scene(team, viewer, operator, owner, member, stranger, of_operator)


def outside_pages(team: Team) -> Sequence[tuple[str, str]]:
    """What a project and an organization say to the outside, and what was tried out before the first attempt."""
    now, of, project = timezone.now(), team.organization.pk, team.project.pk
    endpoint = make_endpoint(
        team.organization, url="https://ci.example.org/hooks/remit?key=1", created_by=team.owner
    )
    off = make_endpoint(
        team.organization,
        description=HOSTILE[:190],
        enabled=False,
        off_because="failing",
        off_at=now,
        failures=40,
    )
    delivered = make_delivery(endpoint, state="delivered", ended_at=now, tries=1)
    make_attempt(delivered, ended_at=now, status=204, milliseconds=41)
    failed = make_delivery(endpoint, state="failed", ended_at=now, tries=9, problem="http_500")
    for number in range(3):
        make_attempt(
            failed,
            started_at=now - timedelta(hours=3 - number),
            ended_at=now - timedelta(hours=3 - number),
            status=500,
            milliseconds=30_000,
            problem="http_500",
            answer=f"<h1>{HOSTILE}</h1>",
        )
    pending = make_delivery(endpoint, tries=1, not_before=now + timedelta(hours=2))
    make_attempt(pending, ended_at=now, problem="connect_timeout", next_at=now + timedelta(hours=2))
    hook = make_hook(team.project, author=team.member, name="Jira", created_by=team.owner, used_at=now)
    github = make_hook(team.project, author=team.member, name=HOSTILE[:90], kind="github", enabled=False)
    make_received(hook, repeated=3, remote="203.0.113.9", answer={"change": "CH-1"})
    make_received(
        hook,
        accepted=False,
        code="bad_signature",
        detail=f"The signature is wrong. {HOSTILE}",
        delivery_id=HOSTILE,
    )
    ended = {"started_at": now, "ended_at": now, "commit": "a" * 40, "by": team.admin, "created_at": now}
    found = {
        "tier": "A",
        "tier_words": "bubblewrap, no network",
        "files": 12,
        "checkout_seconds": 0.4,
        "warnings": [{"text": "Submodules are not fetched", "paths": ["vendor/a", "vendor/\u202eb"]}],
        "dependencies": [
            {"kind": "pip", "names": "requirements.txt", "state": "ready", "text": ""},
            {"kind": "npm", "names": "package-lock.json", "state": "failed", "text": f"npm ERR! {HOSTILE}"},
        ],
        "checks": [
            {
                "command": "python3 -m unittest",
                "passed": False,
                "exit_code": 1,
                "reason": "exit",
                "seconds": 2.1,
                "output": "\x1b[31mFAILED\x1b[0m (errors=1)\n" * 40,
            },
            {
                "command": "true",
                "passed": True,
                "exit_code": 0,
                "reason": "exit",
                "seconds": 0.1,
                "output": "",
            },
        ],
        "missing": ["npm", "numpy"],
    }
    passed = make_preflight(team.project, state="passed", found=found, **ended)
    problems = {**found, "problems": ["python3 -m unittest exits with 1", HOSTILE]}
    broken = make_preflight(team.project, state="failed", found=problems, commands=["true"], **ended)
    busy = make_preflight(
        make_project(team.organization, name="Busy"),
        state="running",
        started_at=now,
        step="installing the dependencies",
        commands=["python3 -m unittest"],
        by=team.owner,
        tries=2,
    )
    waits = _approval(team, "approval_needed", why=HOSTILE, argv=["make", "release", HOSTILE[:90]])
    doubted = _approval(
        team,
        "effect_uncertain",
        state="approved",
        decided_at=now,
        decided_by=team.admin,
        reason=HOSTILE,
        effect_began_at=now,
    )
    empty = make_project(team.organization, name="Empty")
    make_import(
        empty,
        state="failed",
        source="https://git.example.org/a.git",
        code="not_found",
        problem=f"The server knows no such repository. {HOSTILE}",
        remedy="Look at the address.",
        started_at=now,
        ended_at=now,
        by=team.owner,
    )
    webhooks = f"/organizations/{of}/webhooks"
    return [
        ("approval", f"/approvals/{waits.pk}"),
        ("approval-in-doubt", f"/approvals/{doubted.pk}"),
        ("webhooks", webhooks),
        ("webhook", f"{webhooks}/{endpoint.pk}"),
        ("webhook-failed-ones", f"{webhooks}/{endpoint.pk}?state=failed"),
        ("webhook-off", f"{webhooks}/{off.pk}"),
        ("delivery-delivered", f"{webhooks}/{endpoint.pk}/deliveries/{delivered.pk}"),
        ("delivery-failed", f"{webhooks}/{endpoint.pk}/deliveries/{failed.pk}"),
        ("delivery-pending", f"{webhooks}/{endpoint.pk}/deliveries/{pending.pk}"),
        ("hooks", f"/projects/{project}/hooks"),
        ("hook", f"/projects/{project}/hooks/{hook.pk}"),
        ("hook-github-off", f"/projects/{project}/hooks/{github.pk}"),
        ("repository", f"/projects/{project}/repository"),
        ("repository-failed", f"/projects/{empty.pk}/repository"),
        ("preflights", f"/projects/{project}/preflights"),
        ("preflight-passed", f"/preflights/{passed.pk}"),
        ("preflight-failed", f"/preflights/{broken.pk}"),
        ("preflight-running", f"/preflights/{busy.pk}"),
        ("change-choose", "/changes/new"),
        ("projects-archived", "/projects?archived=1"),
    ]


def _approval(team: Team, limit: str, **more: Any) -> Approval:
    """A Change that waits for a word about one command of its only Task."""
    change = make_change(team.project, title="Release it", author=team.member)
    task = make_task(change, state=TaskState.BLOCKED, stop_limit=limit, title=HOSTILE[:90])
    if limit == "approval_needed":
        run = make_run(task, state="paused", ended_at=None)
    else:
        run = make_failed_run(task, EndReason.ACTIVE_BUDGET_EXHAUSTED)
    row = make_approval(
        team.organization,
        project_id=team.project.pk,
        change_id=change.pk,
        task_id=task.pk,
        run_id=run.pk,
        patch_key=archive.put("patches/scene.patch", _PATCH),
        **more,
    )
    detail = {"at": timezone.now().isoformat(), "limit": limit, "refusals": [], "approval": str(row.pk)}
    ways = {"ways_out": [{"act": DECIDED_ON[limit], "role": "admin"}], "argv": row.argv}
    Task.objects.filter(pk=task.pk).update(stop_detail=detail | ways)
    with transaction.atomic():
        settle_dependents(locked_change(change.pk), now=timezone.now())
    return row


def _limits(team: Team) -> None:
    for kind, subject, dollars in (
        (MeterKind.ORGANIZATION, team.organization.pk, "100"),
        (MeterKind.PROJECT, team.project.pk, "40"),
        (MeterKind.USER, team.member.pk, "12"),
    ):
        set_limit(
            organization_id=team.organization.pk,
            kind=kind,
            subject=str(subject),
            to=Usd.dollars(dollars),
            by=team.owner,
            reason="for this month",
            key=f"scene-{kind}",
            now=timezone.now(),
        )


def _work() -> None:
    """A worker without a thread: what is due is done, until nothing is."""
    for _ in range(ROUNDS_MAX):
        now = timezone.now() + timedelta(seconds=30)  # what would wait a little does not
        changes, tasks = list(due_changes(now)), list(due_tasks(now))
        if not changes and not tasks:
            return
        for change in changes:
            work_on(change.pk)
        for task in tasks:
            run_task(task.pk)


def _rows(team: Team) -> dict[str, Any]:
    project, now = team.project, timezone.now()
    last = Change.objects.filter(organization=team.organization).count()
    numbers = iter(range(last + 1, last + 100))

    def change(title: str, state: ChangeState, **more: Any) -> Change:
        return make_change(
            project, author=team.member, number=next(numbers), title=title, state=state, **more
        )

    running = change(
        "Archive entries that nobody has looked at for a year",
        ChangeState.RUNNING,
        goal=HOSTILE,
        invariants=["No entry is lost", "Totals stay the same"],
    )
    for text, command in (("Old entries are archived", "python3 -m unittest checks.archive"), (HOSTILE, "")):
        make_criterion(running, text=text, command=command)
    tasks = [make_task(running, title="Schema for the archive", state=TaskState.DONE)]
    tasks.append(make_task(running, title="Move old entries", state=TaskState.RUNNING, needs=(tasks[0],)))
    tasks.append(make_task(running, title=HOSTILE[:190], needs=(tasks[0],)))
    tasks.append(make_task(running, title="Report what was archived", needs=(tasks[1], tasks[2])))
    make_changeset(tasks[0])
    live = make_run(
        tasks[1],
        started_at=now - timedelta(seconds=40),
        lease_until=now + timedelta(minutes=5),
        calls=2,
        reads=1,
        caps={"calls_max": 16, "reads_max": 12},
        packet_key=_packet(team),
    )
    make_receipt(running, task=tasks[1], run=live, at=now)
    for number, (tool, arguments, said, seconds) in enumerate(
        (
            ("read_file", {"path": "tally/ledger.py"}, "def total(entries):\n    return sum(entries)\n", 30),
            (
                "run_command",
                {"command": "python3 -m unittest"},
                "\x1b[31mFAIL\x1b[0m: test_total\n10%\r55%\r100%\nexit code 1",
                12,
            ),
        ),
        start=1,
    ):
        at = now - timedelta(seconds=seconds)
        make_model_call(
            run_id=live.pk,
            organization_id=team.organization.pk,
            project_id=project.pk,
            started_at=at - timedelta(seconds=4),
            ended_at=at,
            cost=Usd(4_321 * number),
            held=Usd(20_000),
            tier="haiku",
            stop="tool_call",
        )
        make_tool_call(
            run_id=live.pk,
            organization_id=team.organization.pk,
            position=number,
            model_call=number,
            name=tool,
            arguments=json.dumps(arguments),
            answer=said,
            outcome="ok" if number == 1 else "error",
            code="" if number == 1 else "exit_code",
            started_at=at,
            ended_at=at + timedelta(seconds=2),
        )
    make_event(running, kind="task.running", task=tasks[1], at=now)

    plan = change("An audit page for entries", ChangeState.AWAITING_APPROVAL, plan=PLAN)
    make_criterion(plan)
    planning = change("A nightly backup", ChangeState.PLANNING)
    draft = change("An idea for later", ChangeState.DRAFT)
    failed = change(
        "Convert the old format", ChangeState.FAILED, failure="T1 failed: the provider failed twice."
    )
    make_criterion(failed)
    failed_task = make_task(failed, state=TaskState.FAILED, failure="second_transport_failure")
    failed_run = make_failed_run(
        failed_task,
        EndReason.TRANSIENT,
        note="The provider answered 529 twice.",
        failure_log="ended: transient",
        unknown_calls=1,
        packet_key=_packet(team),
        caps={"calls_max": 16, "reads_max": 12},
        detail={},
    )
    make_receipt(failed, task=failed_task, run=failed_run)
    unmerged = change("Two ways to round", ChangeState.RUNNING)
    criterion = make_criterion(unmerged)
    sides = [make_task(unmerged, title=title, state=TaskState.DONE) for title in ("Up", "Down", "Show it")]
    layers = [make_changeset(each, own_files=["tally/ledger.py"]) for each in sides]
    reopened = _reopened(unmerged, team, needs=sides[0], now=now)
    conflict = make_candidate(
        unmerged,
        state=CandidateState.CONFLICT,
        problem="conflict",
        changesets=[str(each.pk) for each in layers],
        conflicts=[
            {
                "changeset": str(layers[1].pk),
                "task": "T2",
                "paths": ["tally/ledger.py", "a/\u202eb.py"],
                "messages": ["CONFLICT (content)"],
            }
        ],
        flagged_files=["tests/test_ledger.py", ".github/workflows/ci.yml"],
        patch_key=archive.put("patches/scene.patch", _PATCH),
    )
    Check.objects.create(
        candidate=conflict,
        criterion=criterion,
        commit="a" * 40,
        command="python3 -m unittest",
        verdict="failed",
        exit_code=1,
        output="F\x1b[31mFAILED\x1b[0m (failures=1)\n",
        started_at=now,
        ended_at=now,
    )
    payers = make_payers(
        team.organization, project_id=project.pk, user_id=team.member.pk, change_id=running.pk, now=now
    )
    keep(make_hold(payers).reservation_id, reason="the answer was cut off", actor="scene")
    return {
        "running": running,
        "plan": plan,
        "planning": planning,
        "draft": draft,
        "failed": failed,
        "failed_task": failed_task,
        "failed_run": failed_run,
        "live_run": live,
        "conflict": conflict,
        "reopened": reopened,
    }


def _reopened(change: Change, team: Team, *, needs: Task, now: datetime) -> Task:
    """A Task in its second window: two attempts that no longer count, and one that published its work."""
    task = make_task(change, title="Round half to even", state=TaskState.DONE, needs=(needs,))
    hour = timedelta(hours=1)
    for number, end in ((1, EndReason.STUCK), (2, EndReason.RUN_CALL_CAP)):
        run = make_failed_run(
            task,
            end,
            started_at=now - 4 * hour + number * timedelta(minutes=5),
            context_hash="c" * 64,
            caps={"calls_max": 16, "reads_max": 12},
            note=HOSTILE[:90],
        )
        make_receipt(change, task=task, run=run, at=run.started_at)
    Reopening.objects.create(
        task=task,
        key="scene",
        by=team.admin,
        stop_limit="max_attempts_per_tier",
        reason=HOSTILE[:90],
        at=now - hour,
    )
    Task.objects.filter(pk=task.pk).update(attempts_reset_at=now - hour)
    run = make_run(
        task,
        state="succeeded",
        end_reason="completed",
        started_at=now - hour / 2,
        ended_at=now - hour / 3,
        context_hash="d" * 64,
        caps={"calls_max": 32, "reads_max": 12},
        packet_key=_packet(team),
    )
    detail = {"by": "classifier", "confidence": "0.83", "floor": "sonnet"}
    make_receipt(change, task=task, run=run, at=run.started_at, decision="sonnet", detail=detail)
    make_changeset(task, run=run, own_files=["tally/money.py"], files=["tally/ledger.py", "tally/money.py"])
    return task


def _packet(team: Team) -> str:
    """The key of a packet that a real attempt was told."""
    run = Task.objects.filter(
        change__organization=team.organization, runs__packet_key__startswith="context/"
    ).first()
    assert run is not None
    return str(run.runs.exclude(packet_key="context/none.json").values_list("packet_key", flat=True)[0])


_PATCH = (
    b"diff --git a/tally/ledger.py b/tally/ledger.py\n--- a/tally/ledger.py\n+++ b/tally/ledger.py\n"
    b"@@ -1,3 +1,4 @@\n def total(entries):\n-    return sum(entries)\n+    # \xe2\x80\xae hidden\n"
    b"+    return round(sum(entries), 2)\n \n"
    b"diff --git a/tests/test_ledger.py b/tests/test_ledger.py\n"
    b"--- a/tests/test_ledger.py\n+++ b/tests/test_ledger.py\n"
    b"@@ -1 +1 @@\n-assert total([1]) == 1\n+assert total([1])\n"
)
