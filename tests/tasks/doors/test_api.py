"""REST: what clients send, what they get, and what is refused with nothing changed."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents import archive
from budgets.keys import MeterKind
from budgets.limits import limit_of
from budgets.money import Usd
from tasks.models import Change, Task
from tasks.states import ChangeState, TaskState
from tenants.models import Project, Role, User
from tests.factories.tasks import make_change, make_event, make_run, make_stopped_task, make_task, make_trunk
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token
from tests.tasks.money import give_budget

pytestmark = pytest.mark.django_db

WANTED = {
    "title": "Export CSV",
    "goal": "People want their entries in a spreadsheet.",
    "criteria": [{"text": "the tests pass", "command": "python3 -m unittest"}, {"text": "it reads well"}],
    "budget": "5.00",
}


@pytest.fixture
def project() -> Project:
    project = make_project(make_organization())
    make_trunk(project)
    return project


@pytest.fixture
def admin(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN)


@pytest.fixture
def client(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def submit(client: Client, project: Project, body: Any, **headers: Any) -> Any:
    path = f"/api/v1/projects/{project.pk}/changes"
    return client.post(path, data=body, content_type="application/json", **headers)


def test_a_change_is_handed_over_with_its_criteria_and_its_budget(client: Client, project: Project) -> None:
    answer = submit(client, project, WANTED)
    assert answer.status_code == 201, answer.content
    data = answer.json()
    assert (data["key"], data["state"], data["title"]) == ("CH-1", "planning", "Export CSV")
    assert [each["position"] for each in data["criteria"]] == [1, 2]
    assert data["money"] == {
        "limit": "5.000000",
        "spent": "0.000000",
        "held": "0.000000",
        "left": "5.000000",
        "unknown_calls": 0,
    }
    assert client.get(f"/api/v1/changes/{data['id']}").json() == data


def test_the_same_idempotency_key_makes_one_change(client: Client, project: Project) -> None:
    first = submit(client, project, WANTED, HTTP_IDEMPOTENCY_KEY="k1")
    again = submit(client, project, WANTED, HTTP_IDEMPOTENCY_KEY="k1")
    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    other = submit(client, project, {**WANTED, "title": "Another"}, HTTP_IDEMPOTENCY_KEY="k1")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    assert Change.objects.count() == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"goal": ""}, "goal"),
        ({"goal": "x" * 1_000_000}, "goal"),
        ({"goal": 5}, "goal"),
        ({"title": ""}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"criteria": "the tests pass"}, "criteria"),
        ({"criteria": []}, "criteria"),
        ({"criteria": [{"text": ""}]}, "criteria[0].text"),
        ({"criteria": [7]}, "criteria[0]"),
        ({"criteria": [{"text": "x", "command": "a && b"}]}, "criteria[0].command"),
        ({"criteria": [{"text": "x", "run": "a"}]}, "criteria[0].run"),
        ({"budget": "-1"}, "budget"),
        ({"budget": "five"}, "budget"),
        ({"budget": "5,00"}, "budget"),
        ({"budget": "1e400"}, "budget"),
        ({"budget": "NaN"}, "budget"),
        ({"budget": "1000000000000000"}, "budget"),
        ({"budget": 5.5}, "budget"),
        ({"draft": "yes"}, "draft"),
        ({"colour": "red"}, "colour"),
    ],
    ids=str,
)
def test_what_cannot_be_a_change_is_refused_by_its_field(
    client: Client, project: Project, wrong: dict[str, Any], field: str
) -> None:
    """Issue: bad input is a clear error that names the field, and nothing is changed."""
    answer = submit(client, project, {**WANTED, **wrong})
    data = answer.json()
    assert (answer.status_code, data["field"]) == (400, field), data
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert data["remedy"]
    assert Change.objects.count() == 0


@pytest.mark.parametrize("body", ["[]", '"x"', "null", "7", "{", "", '{"title": "a", "title"', "\x00"])
def test_a_body_that_is_no_object_is_refused(client: Client, project: Project, body: str) -> None:
    answer = submit(client, project, body)
    assert answer.status_code == 400
    assert Change.objects.count() == 0


def test_a_project_without_a_repository_takes_no_change(client: Client, admin: User) -> None:
    bare = make_project(admin.memberships.get().organization)
    answer = submit(client, bare, WANTED)
    assert (answer.status_code, answer.json()["code"]) == (400, "no_repository")


def test_lists_are_filtered_and_read_page_by_page(client: Client, project: Project) -> None:
    for number in range(3):
        make_change(project, title=f"Change {number}", number=number + 1)
    page = client.get("/api/v1/changes?limit=2").json()
    assert len(page["results"]) == 2
    rest = client.get(page["next"]).json()["results"]
    titles = [each["title"] for each in [*page["results"], *rest]]
    assert titles == ["Change 2", "Change 1", "Change 0"]
    assert [each["key"] for each in client.get("/api/v1/changes?q=CH-2").json()["results"]] == ["CH-2"]
    assert client.get("/api/v1/changes?state=nonsense").status_code == 400
    assert client.get("/api/v1/changes?project=nonsense").status_code == 400


def test_the_query_count_of_a_list_does_not_grow(
    client: Client, project: Project, django_assert_max_num_queries: Any
) -> None:
    for number in range(20):
        make_task(make_change(project, number=number + 1))
    with django_assert_max_num_queries(12):
        assert len(client.get("/api/v1/changes").json()["results"]) == 20


def test_events_are_read_on_from_the_last_id(client: Client, project: Project) -> None:
    change = make_change(project)
    first, second = make_event(change, kind="one"), make_event(change, kind="two")
    path = f"/api/v1/changes/{change.pk}/events"
    assert [each["kind"] for each in client.get(path).json()["results"]] == ["one", "two"]
    assert [each["id"] for each in client.get(f"{path}?after={first.pk}").json()["results"]] == [second.pk]
    assert client.get(f"{path}?after=x").json()["field"] == "after"


def test_a_run_says_unknown_as_null_and_money_as_text(client: Client, project: Project) -> None:
    run = make_run(make_task(make_change(project)), cost=Usd(123_456), budget=None)
    data = client.get(f"/api/v1/runs/{run.pk}").json()
    assert (data["cost"], data["budget"], data["tier"]) == ("0.123456", None, "haiku")


def test_a_raise_reopens_what_the_limit_stopped_and_counts_once(
    client: Client, project: Project, admin: User
) -> None:
    """Rows 196 and 199, over REST."""
    task = make_stopped_task(
        make_change(project, state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget")
    )
    give_budget(task.change, Usd.dollars("1"))
    path = f"/api/v1/changes/{task.change_id}/raises"
    preview = client.get(f"{path}/preview?meter=change&to=7.50").json()
    assert (preview["is_raise"], [each["key"] for each in preview["reopens"]]) == (True, [task.key])
    body = {"meter": "change", "to": "7.50", "reason": "worth it"}
    answers = [
        client.post(path, data=body, content_type="application/json", HTTP_IDEMPOTENCY_KEY="r1")
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert [each["key"] for each in answers[0].json()["reopened"]] == [task.key]
    task.refresh_from_db()
    assert task.state == TaskState.READY
    assert task.reopenings.count() == 1


@pytest.mark.parametrize("to", ["-1", "1e5", "5,00", "NaN", "1000000000000000", "", "1"])
def test_a_raise_that_is_none_changes_nothing(client: Client, project: Project, admin: User, to: str) -> None:
    """Row 199: equal or lower is no raise; an empty text is no amount here, null is unlimited."""
    change = make_change(project)
    give_budget(change, Usd.dollars("1"))
    path = f"/api/v1/changes/{change.pk}/raises"
    answer = client.post(path, data={"meter": "change", "to": to}, content_type="application/json")
    assert (answer.status_code, answer.json()["field"]) == (400, "to")
    assert budget_of(change) == Usd.dollars("1")


def test_a_member_may_not_raise_and_an_unscoped_token_neither(
    client: Client, project: Project, admin: User
) -> None:
    change = make_change(project)
    give_budget(change, Usd.dollars("1"))
    path, body = f"/api/v1/changes/{change.pk}/raises", {"meter": "change", "to": "2"}
    _, plain = make_token(admin, project.organization, scopes=["read", "changes:write"])
    refused = Client().post(path, data=body, content_type="application/json", **bearer(plain))
    assert refused.status_code == 403
    assert budget_of(change) == Usd.dollars("1")


def test_a_stop_of_repeated_failures_is_reopened_by_a_member(project: Project) -> None:
    """Row 193: a person decides; no limit is raised."""
    change = make_change(project, state=ChangeState.BUDGET_BLOCKED, stop_limit="max_attempts_per_tier")
    task = make_stopped_task(change, "max_attempts_per_tier")
    client = Client()
    client.force_login(make_member(project.organization, Role.MEMBER))
    answer = client.post(
        f"/api/v1/tasks/{task.pk}/reopen", data={"reason": "tried by hand"}, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
    assert Task.objects.get(pk=task.pk).attempts_reset_at is not None


def test_an_act_that_does_not_fit_the_state_is_a_conflict(client: Client, project: Project) -> None:
    change = make_change(project, state=ChangeState.PROMOTED)
    answer = client.post(f"/api/v1/changes/{change.pk}/cancel")
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"CH-{change.number} is promoted and cannot become cancelled"
    assert Change.objects.get(pk=change.pk).state == ChangeState.PROMOTED


def budget_of(change: Change) -> Any:
    from django.utils import timezone

    return limit_of(
        organization_id=change.organization_id,
        kind=MeterKind.CHANGE,
        subject=str(change.pk),
        now=timezone.now(),
    )


def test_what_an_attempt_was_told_and_did_is_there_for_a_token(client: Client, project: Project) -> None:
    """The packet and the log, as their pages show them; 404 as long as nothing is kept."""
    run = make_run(make_task(make_change(project)))
    assert client.get(f"/api/v1/runs/{run.pk}/log").status_code == 404
    assert client.get(f"/api/v1/runs/{run.pk}/packet").status_code == 404
    rows = b'[{"position": 1, "tool": "read_file"}]'
    run.tool_log_key = archive.put("logs/of-a-test.json", rows)
    run.packet_key = archive.put_by_hash("packets", b'{"version": 1}', ".json")
    run.save()
    log = client.get(f"/api/v1/runs/{run.pk}/log")
    assert (log.json(), log.headers["Content-Type"]) == (
        [{"position": 1, "tool": "read_file"}],
        "application/json",
    )
    packet = client.get(f"/api/v1/runs/{run.pk}/packet")
    assert packet.json() == {"version": 1}
    again = client.get(f"/api/v1/runs/{run.pk}/packet", headers={"If-None-Match": packet.headers["ETag"]})
    assert again.status_code == 304
