"""Soft thresholds reach the events: one per meter, period, unit and percent."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from budgets.keys import MeterKind
from budgets.money import Usd
from budgets.reservations import settle
from providers.messages import Usage
from tasks.models import Event
from tasks.thresholds import tell_thresholds
from tenants.models import Role, User
from tests.factories.budgets import NOON, limit, make_hold, make_payers
from tests.factories.tasks import make_change
from tests.factories.tenants import make_member, make_organization

pytestmark = pytest.mark.django_db


def test_a_threshold_is_told_once_to_the_change_or_to_the_organization() -> None:
    change = make_change()
    meters = make_payers(change.organization, change_id=change.pk, project_id=change.project_id)
    limit(meters[0], Usd(1_000))
    limit(next(key for key in meters if key.kind is MeterKind.ORGANIZATION), Usd(1_200))
    usage = Usage(input_uncached=10, output=10)
    settle(make_hold(meters, 600).reservation_id, cost=Usd(600), usage=usage, rates=None)
    assert tell_thresholds(NOON) == 2
    assert tell_thresholds(NOON) == 0
    told = Event.objects.filter(kind="budget.threshold").order_by("pk")
    assert {(event.data["meter"], event.data["percent"]) for event in told} == {
        ("change", 50),
        ("organization", 50),
    }
    assert {event.change_id for event in told} == {change.pk, None}
    assert {event.organization_id for event in told} == {change.organization_id}


def test_a_threshold_stands_in_the_inbox_of_those_whom_it_concerns() -> None:
    """One line a meter, the highest; gone when the limit was raised; nobody else's month is shown."""
    change = make_change()
    organization = change.organization
    meters = make_payers(organization, change_id=change.pk, user_id=change.author_id, now=timezone.now())
    for key in meters:
        if key.kind in (MeterKind.CHANGE, MeterKind.USER):
            limit(key, Usd(1_000), now=timezone.now())
    usage = Usage(input_uncached=10, output=10)
    settle(make_hold(meters, 900).reservation_id, cost=Usd(900), usage=usage, rates=None)
    shown = {
        who: inbox_of(make_member(organization, role)).count('<li><span class="num">80%</span> of')
        for who, role in (("admin", Role.ADMIN), ("member", Role.MEMBER))
    }
    assert shown == {"admin": 2, "member": 1}
    assert "80%" not in inbox_of(make_member(make_organization(), Role.OWNER))
    limit(meters[0], Usd(1_000_000), now=timezone.now())
    assert "80%" not in inbox_of(make_member(organization, Role.MEMBER))


def inbox_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.get("/").content.decode()
