"""A stand-in as people see it: events, a receipt, the page of the attempt, and REST (rows 116, 119)."""

from __future__ import annotations

import pytest
from django.test import Client

from routing.words import TaskKind, Tier
from tasks.asking import Role as ModelRole
from tasks.asking import ask_role
from tasks.models import TaskRun
from tasks.states import RunState
from tenants.models import Role
from tests.factories.providers import make_connector
from tests.factories.tenants import make_member
from tests.tasks.world import DONE, World, events, receipts

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    """Its own account lets nothing through; another one of the organization stands in."""
    world = World()
    world.play({"fails": "rate_limited", "retry_after": 4})
    world.connector.fallback = {"connectors": ["spare"], "max_retries": 1}
    world.connector.save()
    make_connector(world.project.organization, name="spare", config={"inline": [{"steps": [DONE]}]})
    return world


def test_a_run_that_a_stand_in_answered_tells_so_everywhere(world: World) -> None:
    task = world.task(kind=TaskKind.REVIEW)
    world.run_once(task)
    run = TaskRun.objects.get()
    assert (run.state, run.calls) == (RunState.SUCCEEDED, 3)
    (retry,), (switch,) = events("model.retry"), events("model.fallback")
    assert (retry.run, retry.data["connector"], retry.data["wait_seconds"]) == (run, "main", 4.0)
    assert (switch.data["from"], switch.data["to"], switch.data["because"]) == (
        "main",
        "spare",
        "rate_limited",
    )
    (receipt,) = receipts(task, "fallback")
    assert (receipt.run, receipt.decision, receipt.reasons) == (run, "stands_in", ["rate_limited"])
    reader = Client()
    reader.force_login(make_member(world.project.organization, Role.VIEWER))
    page = reader.get(f"/runs/{run.pk}").content.decode()
    for said in ("A call is tried once more", "spare stands in for main", "by spare", "rate limited"):
        assert said in page
    assert "The account let nothing through." in reader.get(f"/tasks/{task.pk}").content.decode()
    told = reader.get(f"/api/v1/changes/{world.change.pk}/events").json()["results"]
    assert [one["data"]["to"] for one in told if one["kind"] == "model.fallback"] == ["spare"]
    kinds = [
        one["kind"] for one in reader.get(f"/api/v1/changes/{world.change.pk}/receipts").json()["results"]
    ]
    assert kinds.count("fallback") == 1


def test_a_question_that_a_stand_in_answered_tells_so_too(world: World) -> None:
    """The planner, reviews and the others have no run; their Change has the events."""
    world.connector.config = {"inline": [{"steps": [{"fails": "transient"}]}]}
    world.connector.save()
    role = ModelRole(name="planner", system="Plan.", tier=Tier.SONNET, output_tokens_max=1_000)
    answer = ask_role(world.change, role, "What now?", now=world.clock.now())
    assert answer.cost is not None
    assert len(events("model.retry")) == len(events("model.fallback")) == 1
    assert world.change.receipts.get(kind="fallback").task is None
