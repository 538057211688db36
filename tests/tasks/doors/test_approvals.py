"""Approvals over REST and on their page: who decides, what is bound, and what a mismatch answers (rows 228, 229)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from agents import archive
from agents.continuation import Mismatch
from agents.models import Approval, ApprovalState
from tasks.approvals import approval_for, decide
from tasks.models import Task, TaskRun
from tasks.states import RunState, TaskState
from tenants.models import AuditEntry, Project, Role, Scope
from tests.factories.agents import NOON, make_approval
from tests.factories.tasks import make_change, make_run, make_task
from tests.factories.tenants import make_member, make_project, make_token

pytestmark = pytest.mark.django_db

PATCH = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old = 1\n+new = 2\n"


@pytest.fixture
def project(db: None) -> Project:
    return make_project()


@pytest.fixture
def approval(project: Project) -> Approval:
    """One that waits, with the Task that it stops; its hash is right."""
    from agents.continuation import payload_hash

    change = make_change(project)
    task = make_task(change, state=TaskState.BLOCKED, stop_limit="approval_needed")
    run = make_run(task, state=RunState.PAUSED, ended_at=None)
    made = make_approval(
        project.organization,
        project_id=project.pk,
        change_id=change.pk,
        task_id=task.pk,
        run_id=run.pk,
        patch_key=archive.put("patches/approval.patch", PATCH),
    )
    detail = {
        "at": NOON.isoformat(),
        "limit": "approval_needed",
        "refusals": [],
        "ways_out": [{"act": "decide", "role": "admin"}],
        "approval": str(made.pk),
        "argv": made.argv,
    }
    Task.objects.filter(pk=task.pk).update(stop_detail=detail)
    Approval.objects.filter(pk=made.pk).update(payload_hash=payload_hash(made, made.continuation))
    made.refresh_from_db()
    return made


def token(project: Project, role: Role, *scopes: Scope) -> Mapping[str, Any]:
    person = make_member(project.organization, role)
    _, plain = make_token(person, project.organization, scopes=[each.value for each in scopes])
    return {"Authorization": f"Bearer {plain}"}


def bound(approval: Approval, **over: Any) -> dict[str, Any]:
    plain = {
        "approve": True,
        "record": str(approval.continuation_id),
        "revision": approval.revision,
        "payload_hash": approval.payload_hash,
        "reason": "go",
    }
    return plain | over


def post(client: Client, approval: Approval, act: str, body: Any, headers: Mapping[str, Any]) -> Any:
    return client.post(
        f"/api/v1/approvals/{approval.pk}/{act}", body, content_type="application/json", headers=headers
    )


def page_of(client: Client, project: Project, role: Role, approval: Approval) -> str:
    client.force_login(make_member(project.organization, role))
    return client.get(f"/approvals/{approval.pk}").content.decode()


def test_what_rest_shows_is_what_a_decision_sends_back(
    client: Client, project: Project, approval: Approval
) -> None:
    headers = token(project, Role.ADMIN, Scope.READ, Scope.ADMIN)
    shown = client.get(f"/api/v1/approvals/{approval.pk}", headers=headers).json()
    assert (shown["argv"], shown["state"], shown["active_ms_left"]) == (
        ["make", "release"],
        "pending",
        880_000,
    )
    listed = client.get(f"/api/v1/changes/{shown['change']}/approvals", headers=headers).json()
    assert [each["id"] for each in listed["results"]] == [str(approval.pk)]
    patch = client.get(f"/api/v1/approvals/{approval.pk}/patch", headers=headers)
    assert patch.content == PATCH
    body = {name: shown[name] for name in ("record", "revision", "payload_hash")} | {"approve": True}
    answer = post(client, approval, "decide", body, headers)
    assert answer.status_code == 200
    assert answer.json()["state"] == "approved"
    assert Task.objects.get().state == TaskState.READY
    assert TaskRun.objects.get().state == RunState.PAUSED, "a decision runs nothing"


@pytest.mark.parametrize("over", [{"record": "x"}, {"revision": 7}, {"payload_hash": "f" * 64}])
def test_a_mismatch_is_a_conflict_without_effect(
    client: Client, project: Project, approval: Approval, over: dict[str, Any]
) -> None:
    """Row 228."""
    headers = token(project, Role.ADMIN, Scope.READ, Scope.ADMIN)
    answer = post(client, approval, "decide", bound(approval, **over), headers)
    assert answer.status_code == 409
    assert (answer.json()["code"], answer.json()["field"]) == ("approval_mismatch", next(iter(over)))
    approval.refresh_from_db()
    assert approval.state == ApprovalState.PENDING
    assert Task.objects.get().state == TaskState.BLOCKED
    assert not AuditEntry.objects.filter(action__startswith="approval.").exists()


def test_the_same_decision_again_answers_the_same_and_another_is_a_conflict(
    client: Client, project: Project, approval: Approval
) -> None:
    """Row 229, with the same key, with another, and with none."""
    headers = token(project, Role.ADMIN, Scope.READ, Scope.ADMIN)
    keyed = [{**headers, "Idempotency-Key": key} for key in ("one", "one", "two")]
    answers = [post(client, approval, "decide", bound(approval), each) for each in (*keyed, headers)]
    assert [each.status_code for each in answers] == [200] * 4
    assert all(each.json() == answers[0].json() for each in answers)
    other = post(client, approval, "decide", bound(approval, approve=False), headers)
    assert (other.status_code, other.json()["field"]) == (409, "state")
    assert AuditEntry.objects.filter(action="approval.approved").count() == 1


@pytest.mark.parametrize(
    ("role", "scopes", "status"),
    [
        (Role.MEMBER, (Scope.READ, Scope.ADMIN), 403),
        (Role.ADMIN, (Scope.READ, Scope.CHANGES_WRITE, Scope.BUDGETS_WRITE), 403),
        (Role.ADMIN, (Scope.READ, Scope.ADMIN), 200),
    ],
)
def test_a_yes_needs_an_admin_with_the_scope(
    client: Client, project: Project, approval: Approval, role: Role, scopes: tuple[Scope, ...], status: int
) -> None:
    headers = token(project, role, *scopes)
    assert post(client, approval, "decide", bound(approval), headers).status_code == status


def test_a_no_needs_a_reason_and_reconciling_needs_a_doubt(
    client: Client, project: Project, approval: Approval
) -> None:
    headers = token(project, Role.ADMIN, Scope.READ, Scope.ADMIN)
    answer = post(client, approval, "decide", bound(approval, approve=False, reason=" "), headers)
    assert (answer.status_code, answer.json()["field"]) == (400, "reason")
    answer = post(client, approval, "reconcile", {"took_effect": True, "reason": "looked"}, headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "approval_mismatch")


def test_the_page_shows_what_is_asked_and_only_admins_get_the_buttons(
    client: Client, project: Project, approval: Approval
) -> None:
    page = page_of(client, project, Role.ADMIN, approval)
    for said in ("make release", "It must be released.", "x.py", "Approve", "Decline", "880 of 900 s"):
        assert said in page
    page = page_of(client, project, Role.VIEWER, approval)
    assert "make release" in page
    assert 'name="decision"' not in page


def test_a_person_decides_on_the_page(client: Client, project: Project, approval: Approval) -> None:
    client.force_login(make_member(project.organization, Role.ADMIN))
    address = f"/approvals/{approval.pk}/decide"
    form = {**bound(approval), "decision": "decline", "reason": ""}
    assert client.post(address, form).status_code == 400
    assert client.post(address, {**form, "decision": "approve", "revision": 3}).status_code == 409
    approval.refresh_from_db()
    assert approval.state == ApprovalState.PENDING
    answer = client.post(address, {**form, "reason": "not today"}, follow=True)
    assert answer.status_code == 200
    assert "declined: the agent is told why" in answer.content.decode()
    assert "not today" in answer.content.decode()
    approval.refresh_from_db()
    assert (approval.state, approval.reason) == (ApprovalState.DECLINED, "not today")


def test_the_inbox_the_task_and_the_attempt_lead_there(
    client: Client, project: Project, approval: Approval
) -> None:
    from tasks.dependents import settle_dependents
    from tasks.models import Change

    settle_dependents(Change.objects.get(), now=NOON)
    client.force_login(make_member(project.organization, Role.ADMIN))
    run = TaskRun.objects.get()
    for address in ("/", f"/tasks/{run.task_id}", f"/runs/{run.pk}", f"/changes/{run.task.change_id}"):
        page = client.get(address).content.decode()
        assert f"/approvals/{approval.pk}" in page, address
        assert "make release" in page, address


def test_commands_that_need_a_yes_are_an_owners_setting(client: Client, project: Project) -> None:
    address = f"/api/v1/projects/{project.pk}"
    wanted = {"approval_commands": [["make", "release"], ["kubectl", "..."]]}
    for role, status in ((Role.ADMIN, 403), (Role.OWNER, 200)):
        headers = token(project, role, Scope.READ, Scope.ADMIN)
        answer = client.patch(address, wanted, content_type="application/json", headers=headers)
        assert answer.status_code == status
    assert answer.json()["approval_commands"] == wanted["approval_commands"]
    entry = AuditEntry.objects.get(action="project.changed")
    assert (entry.before, entry.after) == ({"approval_commands": []}, wanted)
    wrongs: tuple[Any, ...] = ([["..."]], [["make", "...", "x"]], [["./deploy"]], [[]], "make")
    for wrong in wrongs:
        answer = client.patch(
            address, {"approval_commands": wrong}, content_type="application/json", headers=headers
        )
        assert answer.status_code == 400
        assert answer.json()["field"].startswith("approval_commands")
    client.force_login(make_member(project.organization, Role.OWNER))
    assert "kubectl ..." in client.get(f"/projects/{project.pk}").content.decode()


@pytest.mark.django_db(transaction=True)
def test_of_many_who_decide_at_once_one_does(project: Project, approval: Approval) -> None:
    """Row 229: those who say the same hear of it, the others get a conflict."""
    people = [make_member(project.organization, Role.ADMIN) for _ in range(6)]
    gate = threading.Barrier(len(people))
    said: list[tuple[bool, object]] = []

    def say(number: int) -> None:
        asked, yes = approval_for(people[number], approval.pk), number % 2 == 0
        gate.wait()
        try:
            done: object = decide(
                asked, approves=yes, bound=bound(approval), by=people[number], reason="so", now=NOON
            )
        except Mismatch as late:
            done = late.field
        finally:
            connections.close_all()
        said.append((yes, done))

    threads = [threading.Thread(target=say, args=(number,)) for number in range(len(people))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [yes for yes, done in said if done is True]
    assert {done for yes, done in said if yes == winner} == {True, False}
    assert {done for yes, done in said if yes != winner} == {"state"}
    assert AuditEntry.objects.filter(action__startswith="approval.").count() == 1
