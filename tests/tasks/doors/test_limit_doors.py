"""Issue 3, "Bad input", on each of the five doors that set a limit: two of REST, two of pages, one of the admin.

Amounts that are none are in test_limits.py. Here: another currency, no reason where the project wants one, a
person who may not, a key with another amount, and a meter of somebody else. A clear error, nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from budgets.keys import MeterKind
from budgets.limits import limit_of
from budgets.models import LimitChange, Meter
from budgets.money import Usd
from tasks.models import Change, Event, Reopening
from tasks.states import TaskState
from tenants.models import AuditEntry, Role, User
from tests.factories.tasks import make_change, make_stopped_task
from tests.factories.tenants import (
    bearer,
    make_member,
    make_organization,
    make_project,
    make_token,
    make_user,
)
from tests.tasks.money import give_budget

pytestmark = pytest.mark.django_db

DOORS = ("rest_limits", "rest_raises", "page_limits", "page_raise", "admin")
every_door = pytest.mark.parametrize("door", DOORS)


@dataclass(frozen=True)
class Answer:
    """What came back, over whichever door. `said` is what the person or client reads."""

    status: int
    said: str


@dataclass
class Doors:
    """The budget of one Change, at $1, whose Task stopped there; the admin of its organization asks for $5."""

    change: Change
    admin: User
    operator: User

    def ask(self, door: str, *, by: User | None = None, change: Change | None = None, **over: Any) -> Answer:
        """Press the button of that door. `over`: to, reason, key, currency, meter."""
        given = {"meter": "change", "to": "5", "reason": "asked by phone", "key": "k", **over}
        who = by or (self.operator if door == "admin" else self.admin)
        client = Client()
        client.force_login(who)
        answer = getattr(self, f"_{door}")(client, change or self.change, given)
        return Answer(answer.status_code, answer.content.decode())

    def _rest_limits(self, client: Client, change: Change, given: dict[str, Any]) -> Any:
        subject = str(change.pk) if given["meter"] == "change" else ""
        path = f"/api/v1/organizations/{self.change.organization_id}/limits"
        return self._send(client, path, {**given, "subject": given.get("subject", subject)})

    def _rest_raises(self, client: Client, change: Change, given: dict[str, Any]) -> Any:
        return self._send(client, f"/api/v1/changes/{change.pk}/raises", given)

    def _page_limits(self, client: Client, change: Change, given: dict[str, Any]) -> Any:
        fields = {**_typed(given), "of": f"{given['meter']}:{change.pk}", "set": ""}
        return client.post(f"/organizations/{self.change.organization_id}/limits", fields)

    def _page_raise(self, client: Client, change: Change, given: dict[str, Any]) -> Any:
        return client.post(f"/changes/{change.pk}/raise", {**_typed(given), "raise": ""})

    def _admin(self, client: Client, change: Change, given: dict[str, Any]) -> Any:
        fields = {**_typed(given), "action": "raise_limit", "_selected_action": [change.pk], "raise": "x"}
        return client.post(reverse("admin:tasks_change_changelist"), fields, follow=True)

    @staticmethod
    def _send(client: Client, path: str, given: dict[str, Any]) -> Any:
        body = {name: value for name, value in given.items() if name != "key"}
        return client.post(path, body, content_type="application/json", HTTP_IDEMPOTENCY_KEY=given["key"])


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    """As a person types it: there is no field for the currency, so it stands beside the amount."""
    currency = given.pop("currency", "")
    return {**given, "to": f"{given['to']} {currency}".strip()}


@pytest.fixture
def doors() -> Doors:
    change = make_change(make_project(make_organization()))
    make_stopped_task(change)
    give_budget(change, Usd.dollars("1"))
    admin = make_member(change.organization, Role.ADMIN)
    return Doors(change, admin, make_user(is_staff=True, is_superuser=True))


def state_of(change: Change) -> tuple[object, ...]:
    """Everything that a raise may write."""
    limit = limit_of(
        organization_id=change.organization_id,
        kind=MeterKind.CHANGE,
        subject=str(change.pk),
        now=timezone.now(),
    )
    return (
        limit,
        list(LimitChange.objects.order_by("pk").values_list("pk", flat=True)),
        list(Meter.objects.order_by("pk").values_list("name", "limit_usd", "limit_calls")),
        list(change.tasks.values_list("state", "attempts_reset_at")),
        Reopening.objects.count(),
        Event.objects.count(),
        AuditEntry.objects.count(),
    )


@every_door
def test_the_same_press_without_a_fault_does_raise(doors: Doors, door: str) -> None:
    """What the other tests refuse would work: each differs from this one in a single thing."""
    assert doors.ask(door).status in (200, 201, 302)
    assert state_of(doors.change)[0] == Usd.dollars("5")
    assert doors.change.tasks.get().state == TaskState.READY
    entry = AuditEntry.objects.filter(action="limit.set").latest("pk")
    assert (entry.actor, entry.reason) == (
        doors.operator if door == "admin" else doors.admin,
        "asked by phone",
    )


@every_door
@pytest.mark.parametrize("currency", ["EUR", "€", "usd cents"])
def test_another_currency_is_refused(doors: Doors, door: str, currency: str) -> None:
    before = state_of(doors.change)
    answer = doors.ask(door, currency=currency)
    assert answer.status == (200 if door == "admin" else 400), answer.said[:500]
    assert "US dollars" in answer.said
    assert state_of(doors.change) == before


@every_door
@pytest.mark.parametrize("reason", ["", "  "])
def test_a_raise_without_a_reason_is_refused_where_the_project_wants_one(
    doors: Doors, door: str, reason: str
) -> None:
    project = doors.change.project
    project.raise_needs_reason = True
    project.save()
    before = state_of(doors.change)
    answer = doors.ask(door, reason=reason)
    assert answer.status == (200 if door == "admin" else 400), answer.said[:500]
    assert "reason" in answer.said
    assert "ay why" in answer.said
    assert state_of(doors.change) == before


@every_door
@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
def test_a_person_who_may_not_is_refused(doors: Doors, door: str, role: Role) -> None:
    """In the admin: a member of the staff without the permission has no such act, one with it no role here."""
    before = state_of(doors.change)
    person = make_member(doors.change.organization, role, is_staff=door == "admin")
    if door == "admin":
        names = ["view_change", "change_change"] if role == Role.MEMBER else ["view_change"]
        person.user_permissions.set(Permission.objects.filter(codename__in=names))
    answer = doors.ask(door, by=person)
    if door != "admin":
        assert answer.status == 403
    elif role == Role.MEMBER:
        assert "this needs the role" in answer.said
    assert state_of(doors.change) == before


def test_an_admins_token_without_the_scope_is_refused(doors: Doors) -> None:
    api = bearer(make_token(doors.admin, doors.change.organization, scopes=["read", "changes:write"])[1])
    before = state_of(doors.change)
    body = {"meter": "change", "to": "5", "subject": str(doors.change.pk), "reason": "r"}
    for path in (
        f"/api/v1/organizations/{doors.change.organization_id}/limits",
        f"/api/v1/changes/{doors.change.pk}/raises",
    ):
        answer = Client().post(path, body, content_type="application/json", **api)
        assert (answer.status_code, "budgets:write" in answer.content.decode()) == (403, True)
    assert state_of(doors.change) == before


@every_door
def test_a_key_with_another_amount_is_refused(doors: Doors, door: str) -> None:
    assert doors.ask(door).status in (200, 201, 302)
    before = state_of(doors.change)
    again = doors.ask(door)
    assert again.status in (200, 201, 302), "the same press once more is the same act"
    assert state_of(doors.change) == before
    other = doors.ask(door, to="6")
    assert other.status == (200 if door == "admin" else 409), other.said[:500]
    assert "key" in other.said.lower()
    assert state_of(doors.change) == before


@every_door
def test_a_meter_of_another_organization_is_not_there(doors: Doors, door: str) -> None:
    """Row 1. An operator's screen is for the whole deployment: there the limit is that of the chosen Change alone."""
    theirs = make_change(make_project(make_organization()))
    give_budget(theirs, Usd.dollars("2"))
    before = state_of(doors.change), state_of(theirs)
    if door == "admin":
        answer = doors.ask(door, meter=f"change:{theirs.pk}")
        assert "Select a valid choice" in answer.said
    else:
        answer = doors.ask(door, change=theirs)
        assert answer.status == 404
        assert theirs.title not in answer.said
    assert (state_of(doors.change), state_of(theirs)) == before


@every_door
@pytest.mark.parametrize("meter", ["platform", "nonsense", ""])
def test_a_meter_that_is_not_the_organizations_to_set_is_refused(doors: Doors, door: str, meter: str) -> None:
    before = state_of(doors.change)
    answer = doors.ask(door, meter=meter)
    assert answer.status == (200 if door == "admin" else 400), answer.said[:500]
    assert state_of(doors.change) == before
