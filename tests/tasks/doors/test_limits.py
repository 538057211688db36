"""The limits of an organization through REST, page and admin: bad input changes nothing, good input reopens.

Issue 3, "Bad input": negative, NaN, 1e400, "5,00", 10^15, an unknown currency, no reason where one is
demanded, a member, the same key with another amount, a meter of another organization.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from budgets.keys import MeterKind
from budgets.limits import limit_of, return_expired
from budgets.models import LimitChange, Reservation
from budgets.money import Usd
from budgets.reservations import keep
from tasks.models import Change, Task
from tasks.states import ChangeState, TaskState
from tenants.models import Project, Role, User
from tests.factories.budgets import make_context, make_hold, make_payers
from tests.factories.tasks import make_change, make_stopped_task
from tests.factories.tenants import make_member, make_organization, make_project, make_user
from tests.tasks.money import give_budget

pytestmark = pytest.mark.django_db

BAD_AMOUNTS = [
    "-1",
    "NaN",
    "1e400",
    "5,00",
    "1000000000000000",
    "",
    " ",
    "5 EUR",
    "$5",
    "inf",
    "0x10",
    5.5,
    True,
    [1],
]
JSON_NUMBERS = ["1e400", "NaN", "-1", "5.0", "1e15"]


@pytest.fixture
def project() -> Project:
    return make_project(make_organization())


@pytest.fixture
def change(project: Project) -> Change:
    found = make_change(project)
    give_budget(found, Usd.dollars("1"))
    give_budget(found, Usd.dollars("20"), kind=MeterKind.PROJECT)
    return found


@pytest.fixture
def admin(project: Project) -> User:
    return make_member(project.organization, Role.ADMIN)


@pytest.fixture
def client(admin: User) -> Client:
    return signed_in(admin)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def address(project: Project) -> str:
    return f"/api/v1/organizations/{project.organization_id}/limits"


def send(client: Client, path: str, body: Any, key: str = "") -> Any:
    headers: dict[str, Any] = {"HTTP_IDEMPOTENCY_KEY": key} if key else {}
    return client.post(path, data=body, content_type="application/json", **headers)


def in_force(project: Project, now: datetime | None = None) -> object:
    return limit_of(
        organization_id=project.organization_id,
        kind=MeterKind.PROJECT,
        subject=str(project.pk),
        now=now or timezone.now(),
    )


def nothing_changed(project: Project, change: Change) -> bool:
    budget = limit_of(
        organization_id=project.organization_id,
        kind=MeterKind.CHANGE,
        subject=str(change.pk),
        now=timezone.now(),
    )
    by_people = LimitChange.objects.filter(by__isnull=False).count()
    return (in_force(project), budget, by_people) == (Usd.dollars("20"), Usd.dollars("1"), 0)


@pytest.mark.parametrize("to", BAD_AMOUNTS, ids=repr)
def test_a_bad_amount_is_named_over_rest_and_changes_nothing(
    client: Client, project: Project, change: Change, to: object
) -> None:
    body = {"meter": "project", "subject": str(project.pk), "to": to}
    raised = {"meter": "change", "to": to}
    for path, sent in [(address(project), body), (f"/api/v1/changes/{change.pk}/raises", raised)]:
        answer = send(client, path, sent)
        assert (answer.status_code, answer.json()["field"]) == (400, "to"), (path, answer.content)
    assert nothing_changed(project, change)


@pytest.mark.parametrize("number", JSON_NUMBERS)
def test_numbers_that_json_can_and_cannot_say_are_refused(
    client: Client, project: Project, change: Change, number: str
) -> None:
    body = f'{{"meter": "project", "subject": "{project.pk}", "to": {number}}}'
    answer = client.post(address(project), data=body, content_type="application/json")
    assert answer.status_code == 400, answer.content
    assert nothing_changed(project, change)


@pytest.mark.parametrize("to", [each for each in BAD_AMOUNTS if isinstance(each, str)], ids=repr)
def test_a_bad_amount_is_named_on_the_pages_and_changes_nothing(
    client: Client, project: Project, change: Change, to: str
) -> None:
    own = {"of": f"project:{project.pk}", "to": to, "key": "k", "set": ""}
    raised = {"meter": "change", "to": to, "key": "k", "raise": ""}
    for path, sent in [
        (f"/organizations/{project.organization_id}/limits", own),
        (f"/changes/{change.pk}/raise", raised),
    ]:
        answer = client.post(path, sent)
        assert answer.status_code == 400, path
        assert "to" in answer.context["form"].errors
    assert nothing_changed(project, change)


@pytest.mark.parametrize("to", [each for each in BAD_AMOUNTS if isinstance(each, str)], ids=repr)
def test_a_bad_amount_changes_nothing_in_the_admin(project: Project, change: Change, to: str) -> None:
    operator = signed_in(make_user(is_staff=True, is_superuser=True))
    path = reverse("admin:tasks_change_changelist")
    fields = {"meter": "change", "to": to, "reason": "", "key": "k", "raise": "x"}
    answer = operator.post(path, {"action": "raise_limit", "_selected_action": [change.pk], **fields})
    assert answer.status_code == 200
    assert answer.context["form"].errors["to"], "the page between comes back, and says it beside the field"
    assert nothing_changed(project, change)


def test_the_rest_of_bad_input_is_refused(client: Client, project: Project, change: Change) -> None:
    member = signed_in(make_member(project.organization, Role.MEMBER))
    foreign = make_project(make_organization())
    good = {"meter": "project", "subject": str(project.pk), "to": "30"}
    path = address(project)
    for sent, status, field in [
        ({**good, "currency": "EUR"}, 400, "to"),
        ({**good, "expires_at": "2020-01-01T00:00:00Z"}, 400, "expires_at"),
        ({**good, "expires_at": "soon"}, 400, "expires_at"),
        ({**good, "meter": "platform"}, 400, "meter"),
        ({**good, "limit": "30"}, 400, "limit"),
        ({"meter": "project", "subject": str(project.pk)}, 400, "to"),
        ({**good, "subject": str(foreign.pk)}, 404, None),
        ({**good, "subject": "no id"}, 404, None),
        ({**good, "meter": "change", "subject": str(make_change(foreign).pk)}, 404, None),
        ({**good, "meter": "user", "subject": str(make_user().pk)}, 404, None),
        ({**good, "meter": "organization", "subject": str(foreign.organization_id)}, 404, None),
        ({**good, "meter": "provider", "subject": "another\0"}, 400, "subject"),
        ({**good, "meter": "provider", "subject": "another"}, 404, None),
    ]:
        answer = send(client, path, sent)
        assert (answer.status_code, answer.json().get("field")) == (status, field), (sent, answer.content)
    assert send(member, path, good).status_code == 403
    assert member.post(f"/organizations/{project.organization_id}/limits", {}).status_code == 403
    project.raise_needs_reason = True
    project.save()
    for body in (good, {**good, "meter": "change", "subject": str(change.pk), "to": "9"}):
        answer = send(client, path, body)
        assert (answer.status_code, answer.json()["field"]) == (400, "reason")
    assert nothing_changed(project, change)


def test_a_key_sets_a_limit_once_and_with_another_amount_never(
    client: Client, project: Project, change: Change
) -> None:
    body = {"meter": "project", "subject": str(project.pk), "to": "30"}
    first, again = (send(client, address(project), body, key="k") for _ in range(2))
    assert (first.status_code, again.json()) == (201, first.json())
    other = send(client, address(project), {**body, "to": "31"}, key="k")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    # Another person's request with the same key meets the ledger's own memory.
    second = signed_in(make_member(project.organization, Role.OWNER))
    assert send(second, address(project), {**body, "to": "31"}, key="k").status_code == 409
    assert in_force(project) == Usd.dollars("30")
    assert LimitChange.objects.filter(by__isnull=False).count() == 1


def test_a_raise_over_rest_reopens_and_a_lower_limit_stops(
    client: Client, project: Project, change: Change
) -> None:
    task = make_stopped_task(change, "project_budget")
    Change.objects.filter(pk=change.pk).update(state=ChangeState.BUDGET_BLOCKED, stop_limit="project_budget")
    body = {"meter": "project", "subject": str(project.pk), "to": "30"}
    query = f"meter=project&subject={project.pk}"
    preview = client.get(f"{address(project)}/preview?{query}&to=30").json()
    assert (preview["is_raise"], [each["key"] for each in preview["reopens"]]) == (True, [task.key])
    lower = client.get(f"{address(project)}/preview?{query}&to=0").json()
    assert (lower["is_raise"], lower["stops_the_next_call"], lower["reopens"]) == (False, True, [])
    assert client.get(f"{address(project)}/preview?{query}").status_code == 400
    done = send(client, address(project), body).json()
    assert (done["before"], done["after"], done["is_raise"]) == ("20.000000", "30.000000", True)
    assert [each["key"] for each in done["reopened"]] == [task.key]
    assert Task.objects.get(pk=task.pk).state == TaskState.READY
    down = send(client, address(project), {**body, "to": "0.5"})
    assert (down.status_code, down.json()["is_raise"], in_force(project)) == (201, False, Usd.dollars("0.5"))
    free = send(client, address(project), {**body, "to": None})
    assert (free.status_code, in_force(project)) == (201, None)


def test_a_raise_for_a_time_returns(client: Client, project: Project, change: Change) -> None:
    until = timezone.now() + timedelta(hours=1)
    sent = {"meter": "change", "to": "5", "expires_at": until.isoformat()}
    assert send(client, f"/api/v1/changes/{change.pk}/raises", sent).status_code == 201
    page = {"meter": "project", "to": "50", "until": f"{until:%Y-%m-%d}", "key": "p", "raise": ""}
    assert client.post(f"/changes/{change.pk}/raise", page).status_code == 302
    assert in_force(project) == Usd.dollars("50")
    later = until + timedelta(days=2)
    return_expired(later)
    assert in_force(project, later) == Usd.dollars("20")


def test_the_page_shows_every_limit_previews_and_sets_it(
    client: Client, project: Project, change: Change
) -> None:
    path = f"/organizations/{project.organization_id}/limits"
    page = client.get(f"{path}?of=change:{change.pk}").content.decode()
    for said in (
        project.name,
        "$20.00",
        f"change:{change.pk}",
        "Classifier calls, today",
        "Provider account",
    ):
        assert said in page, said
    body = {"of": f"project:{project.pk}", "to": "0.10", "key": "k"}
    assert (
        "the next call would be refused"
        not in client.post(path, {**body, "to": "4", "preview": ""}).content.decode()
    )
    preview = client.post(path, {**body, "to": "0", "preview": ""}).content.decode()
    assert "the next call would be refused" in preview
    for _ in range(2):
        assert client.post(path, {**body, "set": ""}).status_code == 302
    assert in_force(project) == Usd.dollars("0.10")
    assert client.post(path, {**body, "to": "", "unlimited": "on", "key": "l", "set": ""}).status_code == 302
    assert in_force(project) is None
    foreign = make_change()
    assert client.get(f"{path}?of=change:{foreign.pk}").status_code == 404
    assert client.post(path, {**body, "of": f"project:{foreign.project_id}", "set": ""}).status_code == 400


def unknown_call(project: Project) -> Reservation:
    meters = make_payers(project.organization, project_id=project.pk)
    held = make_hold(meters, usd=2_000, context=make_context(meters))
    keep(held.reservation_id, reason="no_usage")
    return Reservation.objects.get(pk=held.reservation_id)


def test_an_admin_takes_an_unknown_charge_back_with_a_reason(client: Client, project: Project) -> None:
    """The role is the admin's; a reason is needed; a settled or foreign call is none of these."""
    call, other = unknown_call(project), unknown_call(project)
    rest = f"/api/v1/organizations/{project.organization_id}/ledger/{call.pk}/release"
    page = f"/organizations/{project.organization_id}/unknown"
    member = signed_in(make_member(project.organization, Role.MEMBER))
    assert send(member, rest, {"reason": "not billed"}).status_code == 403
    assert member.post(page, {"call": call.pk, "reason": "not billed"}).status_code == 403
    assert send(client, rest, {"reason": " "}).status_code == 400
    foreign = unknown_call(make_project(make_organization()))
    assert send(client, rest.replace(f"/{call.pk}/", f"/{foreign.pk}/"), {"reason": "x"}).status_code == 404
    assert client.post(page, {"call": foreign.pk, "reason": "x"}).status_code == 404
    assert {each.state for each in Reservation.objects.all()} == {"unknown"}
    answer = send(client, rest, {"reason": "the bill has no such call"})
    assert (answer.status_code, answer.json()["state"], answer.json()["charged"]) == (
        200,
        "refunded",
        "0.000000",
    )
    assert client.post(page, {"call": other.pk, "reason": ""}).status_code == 400
    assert "taken" not in client.get(page).content.decode()
    assert client.post(page, {"call": other.pk, "reason": "the bill has no such call"}).status_code == 302
    other.refresh_from_db()
    assert other.state == "refunded"
    assert "Every charge is known" in client.get(page).content.decode()


def test_a_held_call_is_not_taken_back(client: Client, project: Project) -> None:
    held = make_hold(make_payers(project.organization, project_id=project.pk))
    path = f"/api/v1/organizations/{project.organization_id}/ledger/{held.reservation_id}/release"
    assert send(client, path, {"reason": "in a hurry"}).status_code == 409
    assert Reservation.objects.get(pk=held.reservation_id).state == "held"


@pytest.mark.parametrize(
    "query",
    [
        "meters?kind=%00",
        "meters?period=%00",
        "ledger?until=9999-12-31",
        "ledger?purpose=%00",
        "ledger?meter=0",
    ],
)
def test_odd_filters_are_no_fault_of_ours(client: Client, project: Project, query: str) -> None:
    answer = client.get(f"/api/v1/organizations/{project.organization_id}/{query}")
    assert answer.status_code in (200, 400, 404)
