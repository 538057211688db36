"""Lists that people filter, look at as a board, and act on many at once."""

from __future__ import annotations

import pytest
from django.test import Client

from tasks.models import Change
from tasks.states import ChangeState
from tenants.models import Project, Role, User
from tests.factories.tasks import make_change, make_criterion, make_event, make_trunk
from tests.factories.tenants import make_member, make_organization, make_project

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
