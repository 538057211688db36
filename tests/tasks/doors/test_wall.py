"""Every door of the domain, opened by people who may not: another organization, a stranger, too low a role.

Rows 1 and 240; faults C79 and C80: a foreign id looks like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from django.test import Client

from agents import archive
from agents.models import Approval
from budgets.models import ModelTask
from tasks.models import Candidate, Change, ChangeSet, HelperQuestion, Preflight, ProjectImport, Task, TaskRun
from tenants.models import Project, Role, User
from tests.factories.agents import make_approval
from tests.factories.budgets import make_hold, make_payers
from tests.factories.tasks import (
    make_allowance,
    make_candidate,
    make_change,
    make_changeset,
    make_import,
    make_preflight,
    make_question,
    make_run,
    make_task,
    make_trunk,
)
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class House:
    """One organization with one of everything."""

    project: Project
    change: Change
    task: Task
    run: TaskRun
    changeset: ChangeSet
    candidate: Candidate
    call: int
    preflight: Preflight
    project_import: ProjectImport
    approval: Approval
    allowance: ModelTask
    question: HelperQuestion
    member: User
    viewer: User
    admin: User

    def path(self, template: str) -> str:
        return template.format(
            organization=self.project.organization_id,
            project=self.project.pk,
            change=self.change.pk,
            task=self.task.pk,
            run=self.run.pk,
            changeset=self.changeset.pk,
            candidate=self.candidate.pk,
            call=self.call,
            preflight=self.preflight.pk,
            approval=self.approval.pk,
            allowance=self.allowance.pk,
            question=self.question.pk,
            **{"import": self.project_import.pk},
        )


@pytest.fixture
def house() -> House:
    organization = make_organization()
    project = make_project(organization)
    make_trunk(project)
    change = make_change(project)
    task = make_task(change)
    run = make_run(task)
    allowance = make_allowance(project)
    return House(
        allowance=allowance,
        question=make_question(allowance),
        project=project,
        change=change,
        task=task,
        run=run,
        changeset=make_changeset(task),
        candidate=make_candidate(change),
        call=make_hold(make_payers(organization, project_id=project.pk)).reservation_id,
        preflight=make_preflight(project),
        project_import=make_import(project),
        approval=make_approval(
            organization,
            project_id=project.pk,
            change_id=change.pk,
            task_id=task.pk,
            run_id=run.pk,
            patch_key=archive.put("patches/approval.patch", b"diff --git a/x b/x\n"),
        ),
        member=make_member(organization, Role.MEMBER),
        viewer=make_member(organization, Role.VIEWER),
        admin=make_member(organization, Role.ADMIN),
    )


READS = [
    "/api/v1/changes/{change}",
    "/api/v1/changes/{change}/tasks",
    "/api/v1/changes/{change}/receipts",
    "/api/v1/changes/{change}/events",
    "/api/v1/changes/{change}/events/stream",
    "/api/v1/organizations/{organization}/events/stream",
    "/api/v1/changes/{change}/candidates",
    "/api/v1/changes/{change}/meters",
    "/api/v1/changes/{change}/raises/preview?meter=change&to=9",
    "/api/v1/candidates/{candidate}",
    "/api/v1/candidates/{candidate}/patch",
    "/api/v1/tasks/{task}",
    "/api/v1/tasks/{task}/runs",
    "/api/v1/tasks/{task}/receipts",
    "/api/v1/runs/{run}",
    "/api/v1/runs/{run}/changeset",
    "/api/v1/runs/{run}/log",
    "/api/v1/runs/{run}/packet",
    "/api/v1/changesets/{changeset}/patch",
    "/changes/{change}",
    "/changes/{change}/plan",
    "/changes/{change}/history",
    "/tasks/{task}",
    "/runs/{run}",
    "/runs/{run}/log",
    "/runs/{run}/outputs/1",
    "/runs/{run}/packet",
    "/candidates/{candidate}",
    "/candidates/{candidate}/patch",
    "/changesets/{changeset}/patch",
    "/spend?organization={organization}",
    "/organizations/{organization}/ledger.csv",
    "/api/v1/organizations/{organization}/meters",
    "/api/v1/organizations/{organization}/ledger",
    "/api/v1/organizations/{organization}/ledger.csv",
    "/api/v1/organizations/{organization}/spend?by=day,tier",
    "/api/v1/organizations/{organization}/limit-changes",
    "/api/v1/organizations/{organization}/limits",
    "/api/v1/organizations/{organization}/limits/preview?meter=organization&to=9",
    "/api/v1/organizations/{organization}/spend/accepted",
    "/organizations/{organization}/limits",
    "/organizations/{organization}/unknown",
    "/api/v1/projects/{project}/preflights",
    "/api/v1/preflights/{preflight}",
    "/projects/{project}/preflights",
    "/preflights/{preflight}",
    "/api/v1/projects/{project}/imports",
    "/api/v1/imports/{import}",
    "/projects/{project}/repository",
    "/projects/{project}/repository/card",
    "/api/v1/changes/{change}/approvals",
    "/api/v1/approvals/{approval}",
    "/api/v1/approvals/{approval}/patch",
    "/approvals/{approval}",
    "/api/v1/projects/{project}/allowances",
    "/api/v1/allowances/{allowance}",
    "/api/v1/questions/{question}",
]
NAMES = (
    "organization",
    "project",
    "change",
    "task",
    "run",
    "changeset",
    "candidate",
    "preflight",
    "import",
    "approval",
    "allowance",
    "question",
)
# What moves something, with the lowest role that may try.
WRITES = [
    ("/api/v1/projects/{project}/changes", Role.MEMBER),
    ("/api/v1/changes/{change}/start", Role.MEMBER),
    ("/api/v1/changes/{change}/cancel", Role.MEMBER),
    ("/api/v1/changes/{change}/pause", Role.MEMBER),
    ("/api/v1/changes/{change}/resume", Role.MEMBER),
    ("/api/v1/changes/{change}/retry", Role.MEMBER),
    ("/api/v1/changes/{change}/plan/approve", Role.ADMIN),
    ("/api/v1/changes/{change}/raises", Role.ADMIN),
    ("/api/v1/organizations/{organization}/limits", Role.ADMIN),
    ("/api/v1/organizations/{organization}/ledger/{call}/release", Role.ADMIN),
    ("/organizations/{organization}/limits", Role.ADMIN),
    ("/organizations/{organization}/unknown", Role.ADMIN),
    ("/api/v1/candidates/{candidate}/promote", Role.ADMIN),
    ("/api/v1/tasks/{task}/reopen", Role.MEMBER),
    ("/api/v1/tasks/{task}/send-back", Role.MEMBER),
    ("/api/v1/runs/{run}/stop", Role.MEMBER),
    ("/projects/{project}/changes/new", Role.MEMBER),
    ("/changes/{change}/start", Role.MEMBER),
    ("/changes/{change}/pause", Role.MEMBER),
    ("/changes/{change}/resume", Role.MEMBER),
    ("/changes/{change}/cancel", Role.MEMBER),
    ("/changes/{change}/retry", Role.MEMBER),
    ("/changes/{change}/plan", Role.ADMIN),
    ("/changes/{change}/raise", Role.ADMIN),
    ("/tasks/{task}/reopen", Role.MEMBER),
    ("/tasks/{task}/send-back", Role.MEMBER),
    ("/runs/{run}/stop", Role.MEMBER),
    ("/candidates/{candidate}/promote", Role.ADMIN),
    ("/api/v1/projects/{project}/preflights", Role.ADMIN),
    ("/api/v1/preflights/{preflight}/cancel", Role.ADMIN),
    ("/projects/{project}/preflights", Role.ADMIN),
    ("/preflights/{preflight}/cancel", Role.ADMIN),
    ("/api/v1/projects/{project}/imports", Role.ADMIN),
    ("/api/v1/projects/{project}/imports/bundle", Role.ADMIN),
    ("/api/v1/imports/{import}/cancel", Role.ADMIN),
    ("/projects/{project}/repository", Role.ADMIN),
    ("/projects/{project}/repository/bundle", Role.ADMIN),
    ("/imports/{import}/cancel", Role.ADMIN),
    ("/api/v1/approvals/{approval}/decide", Role.ADMIN),
    ("/api/v1/approvals/{approval}/reconcile", Role.ADMIN),
    ("/approvals/{approval}/decide", Role.ADMIN),
    ("/approvals/{approval}/reconcile", Role.ADMIN),
    ("/api/v1/projects/{project}/allowances", Role.MEMBER),
    ("/api/v1/allowances/{allowance}/cancel", Role.MEMBER),
    ("/api/v1/allowances/{allowance}/reports", Role.MEMBER),
    ("/api/v1/allowances/{allowance}/questions", Role.MEMBER),
]
Open = Callable[[Client, str], int]


def opened(client: Client, path: str) -> int:
    return client.get(path).status_code


def posted(client: Client, path: str) -> int:
    return client.post(path, data={}, content_type="application/json").status_code


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("template", READS)
def test_another_organizations_member_sees_nothing(house: House, template: str) -> None:
    foreigner = make_member(make_organization(), Role.OWNER)
    assert opened(signed_in(foreigner), house.path(template)) == 404


@pytest.mark.parametrize(("template", "_role"), WRITES)
def test_another_organizations_owner_moves_nothing(house: House, template: str, _role: Role) -> None:
    before = Change.objects.get(pk=house.change.pk).updated_at
    foreigner = make_member(make_organization(), Role.OWNER)
    assert posted(signed_in(foreigner), house.path(template)) == 404
    assert Change.objects.get(pk=house.change.pk).updated_at == before


@pytest.mark.parametrize("template", READS)
def test_a_stranger_is_asked_to_sign_in(house: House, template: str) -> None:
    path = house.path(template)
    answer = Client().get(path)
    if path.startswith("/api/"):
        assert answer.status_code == 401
    else:
        assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/accounts/login/")


@pytest.mark.parametrize(("template", "role"), WRITES)
def test_a_role_that_does_not_reach_is_told_so(house: House, template: str, role: Role) -> None:
    too_low = house.viewer if role is Role.MEMBER else house.member
    assert posted(signed_in(too_low), house.path(template)) == 403


@pytest.mark.parametrize("template", READS)
def test_an_unknown_id_looks_like_a_foreign_one(house: House, template: str) -> None:
    path = template.format(**dict.fromkeys(NAMES, uuid4()))
    foreign = signed_in(make_member(make_organization(), Role.OWNER))
    unknown, hidden = foreign.get(path), foreign.get(house.path(template))
    assert unknown.status_code == hidden.status_code == 404
    if path.startswith("/api/"):
        assert unknown.json() == hidden.json()


def test_a_token_of_one_organization_does_not_open_the_other_of_the_same_person(house: House) -> None:
    other = make_organization(owner=house.admin)
    _, plain = make_token(house.admin, other, scopes=["read", "changes:write", "budgets:write"])
    client = Client()
    assert client.get(f"/api/v1/changes/{house.change.pk}", **bearer(plain)).status_code == 404
    listed = client.get("/api/v1/changes", **bearer(plain)).json()["results"]
    assert listed == []


def test_a_list_holds_only_ones_own(house: House) -> None:
    foreigner = make_member(make_organization(), Role.OWNER)
    assert signed_in(foreigner).get("/api/v1/changes").json()["results"] == []
    own = signed_in(house.viewer).get("/api/v1/changes").json()["results"]
    assert [UUID(each["id"]) for each in own] == [house.change.pk]


def test_a_foreign_project_in_a_filter_shows_nothing(house: House) -> None:
    foreigner = make_member(make_organization(), Role.OWNER)
    found = signed_in(foreigner).get(f"/api/v1/changes?project={house.project.pk}")
    assert found.json()["results"] == []


def test_every_route_of_the_domain_is_in_these_tables() -> None:
    """A new door without its tests fails here."""
    from budgets.api import urlpatterns as money
    from tasks.api.urls import urlpatterns as api
    from tasks.pages.urls import urlpatterns as pages

    tables = [*READS, *(template for template, _ in WRITES)]
    known = {template.split("?")[0].strip("/") for template in tables}
    lists = {
        "api/v1/changes",
        "api/v1/changes/views",
        "",
        "changes",
        "changes/new",
        "changes/act",
        "changes/views",
    }
    for prefix, patterns in (("api/v1/", [*api, *money]), ("", pages)):
        for pattern in patterns:
            shape = prefix + str(pattern.pattern)
            shape = shape.replace("<int:position>", "1").replace("<int:call_id>", "{call}")
            for name in NAMES:
                shape = shape.replace(f"<uuid:{name}_id>", f"{{{name}}}")
            if "<act:act>" in shape:
                continue  # its acts are listed one by one
            assert shape in known | lists, f"no test opens {shape}"
