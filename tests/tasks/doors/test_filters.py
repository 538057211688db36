"""Lists over REST are narrowed by one value each; a value that is none is a 400 that names it (issue 6, REST)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from budgets.keys import MeterKind
from budgets.money import Usd
from tasks.models import Preflight, Task
from tasks.states import PreflightState, RunState, TaskState
from tenants.audit import note
from tenants.models import Project, Role, User
from tests.factories.providers import make_connector
from tests.factories.tasks import (
    make_allowance,
    make_candidate,
    make_change,
    make_event,
    make_import,
    make_preflight,
    make_receipt,
    make_run,
    make_task,
)
from tests.factories.tenants import make_invitation, make_member, make_organization, make_project
from tests.tasks.money import give_budget

pytestmark = pytest.mark.django_db

# Lists so short that nobody narrows them, or whose rows have nothing to narrow by.
WITHOUT = {
    "organizations_list",
    "tokens_list",
    "webhooks_list",
    "hooks_list",
    "hooks_deliveries_list",
}
PAGING = {"cursor", "limit"}


@pytest.fixture
def project() -> Project:
    return make_project(make_organization())


@pytest.fixture
def admin(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN)


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def test_every_list_is_read_by_cursor_and_can_be_narrowed() -> None:
    schema = SchemaGenerator(api_version="v1").get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    without = set()
    for methods in schema["paths"].values():
        operation = methods.get("get")
        if operation is None or "Paginated" not in str(operation["responses"].get("200", "")):
            continue
        query = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        assert query >= PAGING, operation["operationId"]
        if query == PAGING:
            without.add(operation["operationId"])
    assert without == WITHOUT


def of_tasks(project: Project, _: User) -> tuple[str, str, str]:
    change = make_change(project)
    wanted = make_task(change, state=TaskState.FAILED)
    make_task(change, state=TaskState.READY)
    return f"changes/{change.pk}/tasks?state=failed", str(wanted.pk), f"changes/{change.pk}/tasks?state=x"


def of_runs(project: Project, _: User) -> tuple[str, str, str]:
    task: Task = make_task(make_change(project))
    ended = {"ended_at": timezone.now(), "end_reason": "completed"}
    make_run(task, attempt=1, state=RunState.SUCCEEDED, **ended)
    wanted = make_run(task, attempt=2)
    return f"tasks/{task.pk}/runs?state=running", str(wanted.pk), f"tasks/{task.pk}/runs?state=x"


def of_receipts(project: Project, _: User) -> tuple[str, str, str]:
    change = make_change(project)
    wanted = make_receipt(change, kind="stop")
    make_receipt(change, kind="route")
    path = f"changes/{change.pk}/receipts?kind="
    return path + "stop", str(wanted.pk), path + "x"


def of_events(project: Project, _: User) -> tuple[str, str, str]:
    change = make_change(project)
    wanted = make_event(change, kind="task.ready")
    make_event(change, kind="change.planned")
    path = f"changes/{change.pk}/events?kind="
    return path + "task.ready", str(wanted.pk), path + "x"


def of_candidates(project: Project, _: User) -> tuple[str, str, str]:
    change = make_change(project)
    wanted = make_candidate(change)
    path = f"changes/{change.pk}/candidates?state="
    return path + str(wanted.state), str(wanted.pk), path + "x"


def of_preflights(project: Project, by: User) -> tuple[str, str, str]:
    wanted = make_preflight(project, by=by)
    ended = make_preflight(make_project(project.organization), by=by)
    Preflight.objects.filter(pk=ended.pk).update(
        project=project, state=PreflightState.CANCELLED, ended_at=timezone.now()
    )
    path = f"projects/{project.pk}/preflights?state="
    return path + str(wanted.state), str(wanted.pk), path + "x"


def of_imports(project: Project, by: User) -> tuple[str, str, str]:
    wanted = make_import(project, by=by)
    path = f"projects/{project.pk}/imports?state="
    return path + str(wanted.state), str(wanted.pk), path + "x"


def of_allowances(project: Project, _: User) -> tuple[str, str, str]:
    now = timezone.now()
    wanted = make_allowance(project, deadline=now + timedelta(hours=1))
    make_allowance(project, deadline=now)
    make_allowance(project, cancelled_at=now)
    path = f"projects/{project.pk}/allowances?state="
    return path + "open", str(wanted.pk), path + "x"


def of_members(project: Project, _: User) -> tuple[str, str, str]:
    wanted = make_member(project.organization, Role.VIEWER)
    path = f"organizations/{project.organization_id}/members?role="
    return path + "viewer", str(wanted.pk), path + "10"


def of_invitations(project: Project, by: User) -> tuple[str, str, str]:
    wanted, _ = make_invitation(project.organization, invited_by=by, role=Role.VIEWER)
    path = f"organizations/{project.organization_id}/invitations?role="
    return path + "viewer", str(wanted.pk), path + "boss"


def of_connectors(project: Project, _: User) -> tuple[str, str, str]:
    wanted = make_connector(project.organization, name="wire", kind="google", config={})
    make_connector(project.organization)
    path = f"organizations/{project.organization_id}/connectors?kind="
    return path + "google", str(wanted.pk), path + "x"


def of_limits(project: Project, _: User) -> tuple[str, str, str]:
    change = make_change(project)
    give_budget(change, Usd.dollars("1"))
    give_budget(change, Usd.dollars("2"), kind=MeterKind.PROJECT)
    path = f"organizations/{project.organization_id}/limit-changes?kind="
    return path + "project", str(project.pk), path + "x"


def of_acts(project: Project, by: User) -> tuple[str, str, str]:
    note(project.organization, by, "project.changed", "project wanted")
    note(project.organization, by, "token.made", "a token")
    note(project.organization, None, "project.changed", "project other")
    path = f"organizations/{project.organization_id}/audit?action=project.changed&actor={by.email.upper()}"
    return path, "project wanted", f"organizations/{project.organization_id}/audit?action=" + "x" * 61


ASKED = [
    of_tasks,
    of_runs,
    of_receipts,
    of_events,
    of_candidates,
    of_preflights,
    of_imports,
    of_allowances,
    of_members,
    of_invitations,
    of_connectors,
    of_limits,
    of_acts,
]


# Vocabularies that grow: a word that is not there yet finds nothing.
OPEN_WORDS = (of_receipts, of_events)


@pytest.mark.parametrize("make", ASKED, ids=lambda make: make.__name__)
def test_a_list_holds_what_was_asked_for_and_a_value_that_is_none_is_named(
    client: Client, project: Project, admin: User, make: Callable[[Project, User], tuple[str, str, str]]
) -> None:
    asked, wanted, wrong = make(project, admin)
    rows: list[dict[str, Any]] = client.get(f"/api/v1/{asked}").json()["results"]
    assert len(rows) == 1, rows
    assert wanted in str(rows[0])
    path, _, query = wrong.partition("?")
    refused = client.get(f"/api/v1/{wrong}")
    if make in OPEN_WORDS:
        assert (refused.status_code, refused.json()["results"]) == (200, [])
    else:
        assert (refused.status_code, refused.json()["field"]) == (400, query.partition("=")[0]), (
            refused.content
        )
    everything = client.get(f"/api/v1/{path}?{query.partition('=')[0]}=")
    assert everything.status_code == 200, "an empty filter is none"
