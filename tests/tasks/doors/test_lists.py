"""Lists that people filter, look at as a board, and act on many at once."""

from __future__ import annotations

import pytest
from django.test import Client

from tasks.models import Change
from tasks.states import ChangeState
from tenants.models import Project, Role, User
from tenants.saved_views import SAVED_VIEWS_MAX
from tests.factories.tasks import make_change, make_criterion, make_event, make_trunk
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    project = make_project(make_organization())
    make_trunk(project)
    return project


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def member(project: Project) -> User:
    return make_member(project.organization, Role.MEMBER)


@pytest.fixture
def client(member: User) -> Client:
    return signed_in(member)


def titles(client: Client, query: str) -> set[str]:
    return {row.change.title for row in client.get(f"/changes?{query}").context["rows"]}


def test_a_group_holds_the_states_that_people_mean(client: Client, project: Project, member: User) -> None:
    make_change(project, title="stopped", state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget")
    make_change(project, title="runs", state=ChangeState.RUNNING, author=member)
    make_change(project, title="over", state=ChangeState.PROMOTED)
    assert titles(client, "group=waiting") == {"stopped"}
    assert titles(client, "group=working") == {"runs"}
    assert titles(client, "group=ended") == {"over"}
    assert titles(client, "author=me") == {"runs"}
    assert titles(client, "group=working&state=promoted") == set()
    assert client.get("/changes?group=nonsense").status_code == 400


def test_a_stop_holds_what_the_inbox_calls_so(client: Client, project: Project) -> None:
    for limit in ("change_budget", "max_attempts_per_tier", "stopped_by_person"):
        make_change(project, title=limit, state=ChangeState.BUDGET_BLOCKED, stop_limit=limit)
    assert titles(client, "stop=budget") == {"change_budget"}
    assert titles(client, "stop=replan") == {"max_attempts_per_tier"}
    assert titles(client, "state=budget_blocked&stop=stopped") == {"stopped_by_person"}
    assert 'name="stop" value="replan"' in client.get("/changes?stop=replan").content.decode()
    assert client.get("/changes?stop=nonsense").status_code == 400


def test_a_board_has_a_column_for_each_step(client: Client, project: Project) -> None:
    blocked = make_change(
        project, title="stopped", state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget"
    )
    make_criterion(blocked)
    columns = dict(client.get("/changes?layout=board").context["columns"])
    assert list(columns) == ["Draft", "Planning", "Running", "Blocked", "Candidate", "Promoted"]
    assert [row.change for row in columns["Blocked"]] == [blocked]


def test_many_are_paused_after_a_page_that_says_on_which(client: Client, project: Project) -> None:
    first = make_change(project, title="first", state=ChangeState.RUNNING)
    over = make_change(project, title="over", state=ChangeState.PROMOTED)
    chosen = {"act": "pause", "change": [str(first.pk), str(over.pk)]}
    asked = client.post("/changes/act", chosen).content.decode()
    assert "Pause 2 changes?" in asked
    assert Change.objects.get(pk=first.pk).paused_at is None
    page = client.post("/changes/act", {**chosen, "confirmed": "yes"}, follow=True).content.decode()
    assert Change.objects.get(pk=first.pk).paused_at is not None
    assert f"{first.key}: paused" in page
    assert f"{over.key} is promoted: nothing to pause there." in page


def test_acts_on_many_reach_nothing_of_another_organization(client: Client, project: Project) -> None:
    """Fault C80: a foreign id in the body is as if it were not there."""
    foreign = make_change(state=ChangeState.RUNNING)
    client.post("/changes/act", {"act": "cancel", "change": [str(foreign.pk)], "confirmed": "yes"})
    assert Change.objects.get(pk=foreign.pk).state == ChangeState.RUNNING
    viewer = signed_in(make_member(project.organization, Role.VIEWER))
    own = make_change(project, state=ChangeState.RUNNING)
    page = viewer.post(
        "/changes/act", {"act": "cancel", "change": [str(own.pk)], "confirmed": "yes"}, follow=True
    )
    assert "not a viewer" in page.content.decode()
    assert Change.objects.get(pk=own.pk).state == ChangeState.RUNNING


@pytest.mark.parametrize("body", [{"act": "start", "change": "x"}, {"act": "cancel", "change": "x"}, {}])
def test_an_act_that_is_none_is_refused(client: Client, body: dict[str, str]) -> None:
    assert client.post("/changes/act", body).status_code == 400


def test_a_history_reads_backwards_page_by_page(client: Client, project: Project) -> None:
    change = make_change(project)
    for number in range(105):
        make_event(change, kind="criterion.checked", data={"criterion": number, "verdict": "passed"})
    newest = client.get(f"/changes/{change.pk}/history")
    assert "Criterion 104: passed" in newest.content.decode()
    assert "Criterion 2: passed" not in newest.content.decode()
    older = client.get(f"/changes/{change.pk}/history?before={newest.context['more']}").content.decode()
    assert "Criterion 2: passed" in older
    assert client.get(f"/changes/{change.pk}/history?before=-1").status_code == 400


def test_a_person_names_filters_comes_back_to_them_and_forgets_them(client: Client) -> None:
    """pages.md D2: saved views."""
    path = "/changes/views"
    saved = client.post(path, {"name": "Mine at work", "group": "working", "author": "me", "layout": "board"})
    address = "/changes?group=working&author=me&layout=board"
    assert saved.headers["Location"] == address
    page = client.get(address).content.decode()
    assert 'aria-current="page">Mine at work</a>' in page
    assert "Forget" in page
    again = client.post(path, {"name": "Mine at work", "state": "failed"})
    assert again.headers["Location"] == "/changes?state=failed"
    assert 'href="/changes?state=failed"' in client.get("/changes").content.decode()
    client.post(path, {"name": "Mine at work", "act": "forget"})
    assert "Mine at work" not in client.get("/changes").content.decode()


@pytest.mark.parametrize("name", ["", "x" * 41, "a\u202eb"])
def test_a_view_without_a_good_name_is_not_kept_and_says_why(client: Client, name: str) -> None:
    answer = client.post("/changes/views", {"name": name, "state": "failed"}, follow=True)
    assert "The view was not saved" in answer.content.decode()
    assert answer.context["views"] == []


def test_a_person_keeps_so_many_views_and_each_their_own(client: Client) -> None:
    for number in range(SAVED_VIEWS_MAX + 1):
        answer = client.post("/changes/views", {"name": f"View {number}", "q": str(number)}, follow=True)
    assert "one view too many" in answer.content.decode()
    assert len(answer.context["views"]) == SAVED_VIEWS_MAX
    other = Client()
    other.force_login(make_member())
    assert other.get("/changes").context["views"] == []


def test_views_are_saved_over_rest_as_well(client: Client, member: User, project: Project) -> None:
    _, plain = make_token(member, project.organization, scopes=["changes:write"])
    asked = {"name": "Failed", "state": "failed"}
    saved = client.post("/api/v1/changes/views", asked, content_type="application/json", **bearer(plain))
    assert (saved.status_code, saved.json()) == (201, [{"name": "Failed", "query": "state=failed"}])
    assert client.get("/api/v1/changes/views", **bearer(plain)).json() == saved.json()
    wrong = client.post(
        "/api/v1/changes/views", {**asked, "state": "lost"}, content_type="application/json", **bearer(plain)
    )
    assert (wrong.status_code, wrong.json()["field"]) == (400, "state")
    assert client.delete("/api/v1/changes/views?name=Failed", **bearer(plain)).status_code == 204
    assert client.get("/api/v1/changes/views", **bearer(plain)).json() == []
