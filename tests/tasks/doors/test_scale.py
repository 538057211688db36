"""The heavy doors over many rows: a bounded number of queries, and an index for every large table (issue 6, show 4).

`python -m bench doors` measures the same doors over a million events.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench import doors
from budgets.money import Usd
from budgets.reservations import settle
from providers.messages import Usage
from tasks.models import Change, Task, TaskRun
from tasks.states import ChangeState, RunState
from tenants.audit import note
from tenants.models import Project, Role, User
from tests.factories.budgets import make_context, make_hold, make_payers
from tests.factories.tasks import (
    make_change,
    make_criterion,
    make_event,
    make_receipt,
    make_run,
    make_task,
)
from tests.factories.tenants import make_member, make_organization, make_project

pytestmark = pytest.mark.django_db

CHANGES = 300
# What one door may ask the database. The Spend page gathers a dozen figures; no other has a reason to.
QUERIES_MAX = 26
QUERIES_OF_SPEND_MAX = 30


@pytest.fixture
def world() -> Iterator[doors.World]:
    with doors.product_with_bare_views():
        yield doors.fill(changes=CHANGES)


@pytest.mark.postgres
@pytest.mark.slow
def test_every_door_asks_a_bounded_number_of_times_and_by_an_index(world: doors.World) -> None:
    with connection.cursor() as cursor:
        # So few rows are read fastest from end to end; without that way, only what has no index still goes it.
        cursor.execute("SET LOCAL enable_seqscan = off")
    found = {}
    for door in doors.doors(world):
        queries, scans = doors.looked_into(doors.client_of(world, door), door.path(random.Random(1)))
        most = QUERIES_OF_SPEND_MAX if door.name.startswith("spend") else QUERIES_MAX
        if queries > most or scans:
            found[door.name] = (queries, scans)
    assert found == {}


@pytest.mark.postgres
@pytest.mark.slow
def test_a_search_of_a_plan_sees_what_has_no_index(world: doors.World) -> None:
    """The measure itself: it must be able to fail."""
    assert world.changes
    assert doors.scanned("SELECT count(*) FROM tasks_event WHERE data::text LIKE '%x%'") == {"tasks_event"}
    assert doors.scanned("SELECT 1 FROM tasks_event WHERE id = 5") == set()


def test_the_questions_of_a_page_do_not_grow_with_its_rows(client: Client) -> None:
    """Issue 6, show 4, on both databases: twice the rows, and not one query more."""
    organization = make_organization()
    admin = make_member(organization, Role.ADMIN)
    project = make_project(organization)
    client.force_login(admin)
    change, task, run = work_of(project, admin)
    for _ in range(3):  # what the inbox shows of a kind: beyond it, it asks once more how many there are
        work_of(project, admin)
    api = f"/api/v1/organizations/{organization.pk}"
    paths = [
        "/",
        "/changes",
        "/changes?layout=board",
        "/changes?group=waiting",
        "/spend",
        f"/spend?project={project.pk}",
        f"{api}/spend?by=day,tier",
        f"{api}/spend/accepted",
        f"{api}/ledger",
        f"{api}/audit",
        f"/organizations/{organization.pk}/audit",
        f"/organizations/{organization.pk}/limits",
        f"/changes/{change.pk}",
        f"/changes/{change.pk}/history",
        f"/api/v1/changes/{change.pk}/tasks",
        f"/api/v1/changes/{change.pk}/events",
        f"/api/v1/changes/{change.pk}/receipts",
        f"/tasks/{task.pk}",
        f"/runs/{run.pk}",
    ]
    before = {path: questions(client, path) for path in paths}
    for _ in range(2):
        work_of(project, admin)
        work_of(project, admin, change)
    assert {path: questions(client, path) for path in paths} == before


def work_of(project: Project, admin: User, change: Change | None = None) -> tuple[Change, Task, TaskRun]:
    """A Change that waits and another that works, each with what its pages list, and calls of both."""
    organization = project.organization
    stopped = make_change(project, state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget")
    change = change or make_change(project, state=ChangeState.RUNNING)
    for one in (stopped, change):
        make_criterion(one)
        task = make_task(one)
        run = make_run(task, state=RunState.RUNNING)
        make_event(one, task=task, kind="task.started", data={"attempt": 1})
        make_event(one, kind="spend_limited", data={"limit": "change_budget"})
        make_receipt(change=one, task=task)
        meters = make_payers(organization, project_id=project.pk, user_id=admin.pk, change_id=one.pk)
        held = make_hold(meters, 2_000, context=make_context(meters, run_id=run.pk, task_id=task.pk))
        settle(held.reservation_id, cost=Usd(1_000), usage=Usage(input_uncached=10, output=10), rates={})
    note(organization, admin, "budget.raised", change.key, reason="more to do")
    return change, task, run


def questions(client: Client, path: str) -> int:
    client.get(path)
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(path)
    assert answer.status_code == 200, path
    return len(seen)
