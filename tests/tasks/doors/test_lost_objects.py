"""A store that lost something (a backup without its objects): pages still open, and a download is a 404, no fault."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tasks.states import CandidateState, RunState
from tenants.models import Role
from tests.factories.tasks import make_candidate, make_change, make_changeset, make_run, make_task, make_trunk
from tests.factories.tenants import make_member

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows() -> dict[str, Any]:
    """Their keys name objects that nobody stored."""
    change = make_change()
    make_trunk(change.project)
    task = make_task(change, state="done")
    run = make_run(
        task, state=RunState.SUCCEEDED, end_reason="completed", tool_log_key="logs/none.json", detail={}
    )
    make_run(task, state=RunState.SUCCEEDED, end_reason="completed", detail={})
    changeset = make_changeset(task, run=run)
    candidate = make_candidate(change, state=CandidateState.PASSED, patch_key="patches/none.patch")
    return {
        "task": task.pk,
        "run": run.pk,
        "changeset": changeset.pk,
        "candidate": candidate.pk,
        "change": change,
    }


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tasks/{task}", 200),
        ("/runs/{run}", 200),
        ("/candidates/{candidate}", 200),
        ("/runs/{run}/packet", 404),
        ("/runs/{run}/log", 404),
        ("/runs/{run}/outputs/1", 404),
        ("/changesets/{changeset}/patch", 404),
        ("/candidates/{candidate}/patch", 404),
        ("/api/v1/changesets/{changeset}/patch", 404),
        ("/api/v1/candidates/{candidate}/patch", 404),
        ("/api/v1/runs/{run}/packet", 404),
        ("/api/v1/runs/{run}/log", 404),
    ],
)
def test_what_is_gone_from_the_store_is_no_fault(rows: dict[str, Any], path: str, status: int) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(make_member(rows["change"].organization, Role.OWNER))
    assert client.get(path.format(**rows)).status_code == status


@pytest.mark.parametrize("path", ["/tasks/{task}", "/candidates/{candidate}"])
def test_a_diff_that_is_gone_is_not_an_empty_one(rows: dict[str, Any], path: str) -> None:
    client = Client()
    client.force_login(make_member(rows["change"].organization, Role.OWNER))
    assert "is gone from the store" in client.get(path.format(**rows)).content.decode()
