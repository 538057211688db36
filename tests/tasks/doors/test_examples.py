"""Each request that the schema shows as an example is one that the server takes (issue 6, REST)."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from budgets.money import Usd
from tasks.states import ChangeState
from tenants.models import Project, Role
from tests.factories.tasks import make_allowance, make_change, make_stopped_task, make_trunk
from tests.factories.tenants import make_member, make_organization, make_project
from tests.tasks.money import give_budget

# What clients write most; a new one may only add to it.
SHOWN = {
    "changes_create",
    "changes_views_save",
    "raises_create",
    "limits_set",
    "tasks_reopen",
    "webhooks_create",
    "tokens_create",
    "invitations_create",
    "organizations_create",
    "projects_create",
    "connectors_create",
    "hooks_create",
    "imports_create",
    "preflights_create",
    "changes_approve_plan",
    "ledger_release",
    "approvals_decide",
    "approvals_reconcile",
    "allowances_create",
    "allowances_report",
    "questions_create",
}
# Send back needs finished work with a commit; a running attempt is stopped in its own tests, a command that waits is
# decided about in its own, and an unknown charge is released there.
# A preflight needs a repository.
NEEDS_A_WORLD = {
    "tasks_send_back",
    "runs_stop",
    "approvals_decide",
    "approvals_reconcile",
    "ledger_release",
    "preflights_create",
}


def examples() -> dict[str, tuple[str, str, list[Any]]]:
    """Operation id to method, path and the bodies shown."""
    out = StringIO()
    call_command("spectacular", "--format", "openapi-json", stdout=out)
    found = {}
    for path, methods in json.loads(out.getvalue())["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            shown = [each["value"] for each in content.get("examples", {}).values()]
            if shown:
                found[operation["operationId"]] = (method, path, shown)
    return found


def subjects(project: Project, name: str, *, number: int) -> dict[str, Any]:
    """A stopped Change with a stopped Task, or what else the operation is about, for it alone."""
    if name == "imports_create":
        return {"project_id": make_project(project.organization).pk}
    if name == "changes_approve_plan":
        waits = make_change(project, number=number, state=ChangeState.AWAITING_APPROVAL, plan={"tasks": []})
        return {"change_id": waits.pk}
    if name == "changes_retry":
        change = make_change(project, number=number, state=ChangeState.FAILED, failure="planning_failed")
        return {"change_id": change.pk}
    stop = {"state": ChangeState.BUDGET_BLOCKED, "stop_limit": "max_attempts_per_tier"}
    task = make_stopped_task(make_change(project, number=number, **stop), "max_attempts_per_tier")
    give_budget(task.change, Usd.dollars("1"))
    return {
        "project_id": project.pk,
        "organization_id": project.organization_id,
        "change_id": task.change_id,
        "task_id": task.pk,
        "allowance_id": make_allowance(project).pk,
    }


@pytest.mark.django_db
def test_the_server_takes_every_example() -> None:
    project = make_project(make_organization())
    make_trunk(project)
    client = Client()
    # A new organization is an operator's to make; everything else an owner's.
    client.force_login(make_member(project.organization, Role.OWNER, is_staff=True))
    own = {"organization": project.organization_id, "author": project.organization.memberships.get().user_id}
    shown = examples()
    assert set(shown) >= SHOWN
    refused = {}
    for number, name in enumerate(sorted(set(shown) - NEEDS_A_WORLD), start=100):
        method, path, bodies = shown[name]
        ids = subjects(project, name, number=number)
        address = re.sub(r"{(\w+)}", lambda found: str(ids[found[1]]), path)  # noqa: B023  # used at once
        for shown_body in bodies:
            body = shown_body | {field: str(own[field]) for field in shown_body if field in own}
            answer = getattr(client, method)(address, data=body, content_type="application/json")
            if answer.status_code not in (200, 201, 202):
                refused[name] = answer.content.decode()
    assert refused == {}
