"""The ledger through its doors: rows, CSV, sums and the Spend page; a member sees their own."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from budgets.models import Reservation
from budgets.money import Usd
from budgets.reservations import Held, keep, refund, settle
from providers.messages import Usage
from tasks.pictures.timeline import SCALE
from tasks.states import ChangeState
from tenants.models import Organization, Role, User
from tests.factories.budgets import make_context, make_hold, make_payers
from tests.factories.tasks import make_change, make_failed_run, make_task
from tests.factories.tenants import make_member, make_organization, make_project

pytestmark = pytest.mark.django_db
USAGE = Usage(input_uncached=10, output=10)


@pytest.fixture
def organization() -> Organization:
    return make_organization()


@pytest.fixture
def admin(organization: Organization) -> User:
    return make_member(organization, Role.ADMIN)


@pytest.fixture
def member(organization: Organization) -> User:
    return make_member(organization, Role.MEMBER)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def calls(organization: Organization, admin: User, member: User) -> None:
    charge(organization, member, 500, purpose="planner", tier="haiku")
    charge(organization, admin, None, purpose="agent", tier="sonnet")


def charge(
    organization: Organization, user: User, cost: int | None, *, change: Any = None, **call: Any
) -> Held:
    """A call that was held for $0.002 on its payer's meters; `cost` None: nobody could read the bill."""
    change_id = change.pk if change else uuid4()
    meters = make_payers(organization, user_id=user.pk, change_id=change_id)
    held = make_hold(meters, usd=2_000, context=make_context(meters, **call))
    if cost is None:
        keep(held.reservation_id, reason="no_usage")
    else:
        settle(held.reservation_id, cost=Usd(cost), usage=USAGE, rates={})
    return held


def test_an_admin_sees_every_call_and_a_member_their_own(
    organization: Organization, admin: User, member: User, calls: None
) -> None:
    path = f"/api/v1/organizations/{organization.pk}/ledger"
    rows = signed_in(admin).get(path).json()["results"]
    assert {(row["purpose"], row["cost"]) for row in rows} == {("planner", "0.000500"), ("agent", None)}
    own = signed_in(member).get(path).json()["results"]
    assert [row["purpose"] for row in own] == ["planner"]


def test_sums_keep_unknown_beside_what_is_known(organization: Organization, admin: User, calls: None) -> None:
    """Promise 2: unknown is never zero."""
    path = f"/api/v1/organizations/{organization.pk}/spend?by=tier"
    data = signed_in(admin).get(path).json()
    assert (data["total"]["known"], data["total"]["unknown_calls"]) == ("0.000500", 1)
    assert data["total"]["unknown_at_most"] == "0.002000"
    assert {group["group"][0]: group["known"] for group in data["groups"]} == {
        "haiku": "0.000500",
        "sonnet": "0.000000",
    }


def test_the_csv_is_the_ledger(organization: Organization, admin: User, calls: None) -> None:
    answer = signed_in(admin).get(f"/organizations/{organization.pk}/ledger.csv?purpose=agent")
    rows = list(csv.DictReader(StringIO(answer.getvalue().decode())))
    assert [(row["purpose"], row["charged_usd_micro"], row["known_cost_usd_micro"]) for row in rows] == [
        ("agent", "2000", "")
    ]


def test_the_month_burns_down_alike_however_the_page_is_narrowed(
    organization: Organization, admin: User
) -> None:
    """D7: the figures of the days are shared where the page shows the whole month, and read anew where not."""
    now = timezone.now()
    for hours in (1, 20, 50, 100, 200, 500):
        held = charge(organization, admin, None if hours == 50 else 5_000 * hours)
        at = now - timedelta(hours=hours)
        Reservation.objects.filter(pk=held.reservation_id).update(created_at=at, closed_at=at)
    client = signed_in(admin)
    first = f"{now.replace(day=1):%Y-%m-%d}"
    page = client.get(f"/spend?since={first}").context
    narrowed = client.get(f"/spend?since={first}&tier=opus").context
    *steps, here = page["burn"].line.split()
    assert steps == narrowed["burn"].line.split()[:-1]  # the last one is where this moment stands
    month = Reservation.objects.filter(created_at__gte=f"{first}T00:00Z")
    left = page["month"].limit - sum((call.usd or Usd(0) for call in month), Usd(0))
    height = SCALE - left.micro * SCALE // page["month"].limit.micro
    assert here.endswith(f",{height}")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=yesterday", "since"),
        ("since=2026-01-01&until=2024-01-01", "until"),
        ("since=2020-01-01&until=2026-01-01", "until"),
        ("change=7", "change"),
        ("state=lost", "state"),
    ],
)
def test_a_filter_that_does_not_fit_is_named(
    organization: Organization, admin: User, query: str, field: str
) -> None:
    answer = signed_in(admin).get(f"/api/v1/organizations/{organization.pk}/ledger?{query}")
    assert (answer.status_code, answer.json()["field"]) == (400, field)


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize("name", ["since", "until"])
def test_a_day_at_the_end_of_the_calendar_is_refused_everywhere(
    organization: Organization, admin: User, name: str, day: str
) -> None:
    client = signed_in(admin)
    own = f"/organizations/{organization.pk}"
    for path in (f"/api/v1{own}/spend", f"/api/v1{own}/ledger", f"{own}/ledger.csv", "/spend"):
        assert client.get(f"{path}?{name}={day}").status_code == 400, path


def test_a_group_nobody_knows_is_named(organization: Organization, admin: User) -> None:
    answer = signed_in(admin).get(f"/api/v1/organizations/{organization.pk}/spend?by=colour")
    assert (answer.status_code, answer.json()["field"]) == (400, "by")


def test_a_meter_of_another_organization_is_not_there(organization: Organization, admin: User) -> None:
    foreign = make_organization()
    held = charge(foreign, make_member(foreign), 500)
    meter = Reservation.objects.get(pk=held.reservation_id).meters[0]
    answer = signed_in(admin).get(f"/api/v1/organizations/{organization.pk}/ledger?meter={meter}")
    assert answer.status_code == 404


def test_an_accepted_change_costs_its_share_of_all_work_by_hand(
    organization: Organization, admin: User, member: User
) -> None:
    """Three promoted ones bear what failed, too; held, refunded, before any Change and elsewhere is not in it."""
    project = make_project(organization)
    ended = datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC)
    first, second, third = (
        make_change(project, state=ChangeState.PROMOTED, author=member, ended_at=ended) for _ in range(3)
    )
    failed = make_change(project, state=ChangeState.FAILED, author=member)
    for change, cost in [(first, 1_000), (first, 500), (second, 700), (third, None), (failed, 301)]:
        charge(organization, member, cost, change=change)
    meters = make_payers(organization, user_id=member.pk, change_id=first.pk)
    make_hold(meters, 9_000)
    refund(make_hold(meters, 9_000).reservation_id, reason="429")
    before_a_change = make_payers(organization, user_id=member.pk, change_id=None)
    settle(make_hold(before_a_change, 9_000).reservation_id, cost=Usd(9_000), usage=USAGE, rates={})
    other = make_organization()
    charge(other, make_member(other), 9_000, change=make_change(make_project(other)))
    path = f"/api/v1/organizations/{organization.pk}/spend/accepted"
    found = signed_in(admin).get(path).json()
    # 1,000 + 500 + 700 + 2,000 (unknown, at its worst) + 301 = 4,501; a third of it, rounded up.
    assert found == {"changes": 3, "cost": "0.001501", "unknown_calls": 1}
    assert signed_in(member).get(path).json() == found
    assert signed_in(admin).get(f"{path}?since=2026-11-16").json()["changes"] == 0
    assert signed_in(admin).get(f"{path}?since=2026-11-15&until=2026-11-15").json()["changes"] == 3


def test_the_spend_page_shows_figures_charts_and_rankings(
    organization: Organization, admin: User, calls: None
) -> None:
    change = make_change(make_project(organization), title="Export CSV", state=ChangeState.PROMOTED)
    make_failed_run(make_task(change), cost=Usd(700))
    charge(organization, admin, 900, change=change, tier="haiku")
    page = signed_in(admin).get("/spend").content.decode()
    for said in ("Cost per promoted change", "Export CSV", "2 <small>of 3", "t-haiku", "unknown"):
        assert said in page, said


def test_a_person_without_an_organization_is_sent_to_make_one() -> None:
    from tests.factories.tenants import make_user

    assert signed_in(make_user()).get("/spend").status_code == 302


def test_meters_of_other_people_are_hidden_from_members(
    organization: Organization, admin: User, member: User, calls: Any
) -> None:
    path = f"/api/v1/organizations/{organization.pk}/meters?kind=user"
    subjects = {row["subject"] for row in signed_in(member).get(path).json()["results"]}
    assert subjects <= {str(member.pk)}
