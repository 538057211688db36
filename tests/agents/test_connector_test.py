"""Trying a connector through its doors: metered, honest about what came back, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import ModelCall
from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.models import Reservation, ReservationState
from budgets.money import Usd
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.messages import Usage
from providers.models import Connector
from tenants.models import Organization, Role, User
from tests.factories.providers import make_connector
from tests.factories.tenants import make_member, make_organization

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "sk-connector-test-0123456789abcdef"


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        server.provider.key = KEY
        yield server


@pytest.fixture
def connector(organization: Organization, fake: FakeServer) -> Connector:
    return make_connector(
        organization, kind="anthropic", base_url=fake.url("anthropic"), key=KEY, config={"stream": False}
    )


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def rest(connector: Connector) -> str:
    return f"/api/v1/organizations/{connector.organization_id}/connectors/{connector.pk}/test"


def page(connector: Connector) -> str:
    return f"/organizations/{connector.organization_id}/connectors/{connector.pk}/test"


def test_an_answer_comes_with_its_tokens_and_its_exact_cost(
    connector: Connector, admin: User, fake: FakeServer
) -> None:
    """Issue 4: one metered request, whose charge is in the ledger like any other."""
    data = signed_in(admin).post(rest(connector)).json()
    assert (data["answered"], data["text"], data["end"]) == (True, "hello", "")
    assert (data["input_tokens"], data["output_tokens"]) == (2_400, 50)
    held = Reservation.objects.get()
    assert held.state == ReservationState.SETTLED
    assert (data["cost"], held.purpose, held.project_id) == ("0.000093", "connector_test", None)
    assert len(fake.seen) == 1
    assert ModelCall.objects.get().request_id == data["request_id"] == "req_fake"


SONNET = {"models": {"claude-haiku-5-5": {"model": "claude-sonnet-5-5", "thinking": "adaptive"}}}
HAIKU_CACHED = Usage(input_uncached=20_000, cache_read=70_000, output=1_000)


@pytest.mark.parametrize(
    ("wire", "config", "usage", "cost", "tokens"),
    [
        (
            "anthropic",
            SONNET,
            Usage(input_uncached=5_000, cache_read=30_000, cache_write_5m=4_000, output=1_200),
            "0.035000",
            (39_000, 1_200),
        ),
        ("anthropic", {}, replace(HAIKU_CACHED, cache_write_5m=10_000), "0.004450", (100_000, 1_000)),
        ("anthropic", {}, replace(HAIKU_CACHED, cache_write_5m=11_000), "0.022875", (101_000, 1_000)),
        ("google", {}, Usage(input_uncached=900, output=270, reasoning=60), "0.000945", (900, 270)),
    ],
    ids=["12a", "12b_100000", "12b_101000", "12c"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "stream"])
def test_the_worked_examples_of_prices_come_out_of_the_door(
    organization: Organization,
    admin: User,
    fake: FakeServer,
    wire: str,
    config: dict[str, object],
    usage: Usage,
    cost: str,
    tokens: tuple[int, int],
    stream: bool,
) -> None:
    """Worked examples 12a, 12b and 12c; rows 130, 132, 135: from the wire's own counts to the ledger."""
    row = make_connector(
        organization, kind=wire, base_url=fake.url(wire), key=KEY, config={**config, "stream": stream}
    )
    fake.push(Play(usage=usage))
    data = signed_in(admin).post(rest(row)).json()
    assert (data["cost"], data["input_tokens"], data["output_tokens"]) == (cost, *tokens)
    held = Reservation.objects.get()
    assert (held.state, held.cost) == (ReservationState.SETTLED, Usd.dollars(cost))
    if wire == "google":  # 12c: thoughts are output, and both public figures can still be told apart
        assert held.usage is not None
        assert (held.usage["output"] - held.usage["reasoning"], held.usage["reasoning"]) == (210, 60)


@pytest.mark.parametrize(
    ("play", "end"),
    [
        (Play(fault="status", status=401, message=f"bad key {KEY}"), "bad_request"),
        (Play(fault="status", status=402), "spend_limited"),
        (Play(fault="status", status=429), "rate_limited"),
        (Play(fault="html"), "bad_output"),
        (Play(fault="drop"), "transient"),
    ],
)
def test_what_went_wrong_is_said_without_the_key(
    connector: Connector, admin: User, fake: FakeServer, play: Play, end: str
) -> None:
    fake.push(play)
    answer = signed_in(admin).post(rest(connector))
    data = answer.json()
    assert (answer.status_code, data["answered"], data["end"]) == (200, False, end)
    assert data["problem"]
    assert KEY not in answer.content.decode()
    assert len(fake.seen) == 1, "one question: a test is not repeated by itself"


def test_a_meter_that_says_no_sends_nothing(
    organization: Organization, connector: Connector, admin: User, fake: FakeServer
) -> None:
    set_limit(
        organization_id=organization.pk, kind=MeterKind.ORGANIZATION, subject=str(organization.pk), to=Usd(1),
        by=admin, reason="nothing more", key=uuid4().hex, expires_at=None, now=timezone.now(),
    )  # fmt: skip
    data = signed_in(admin).post(rest(connector)).json()
    assert (data["answered"], data["end"]) == (False, "monthly_budget")
    assert fake.seen == []


def test_a_disabled_connector_is_not_found(connector: Connector, admin: User, fake: FakeServer) -> None:
    connector.enabled = False
    connector.save()
    data = signed_in(admin).post(rest(connector)).json()
    assert "connector_not_found" in data["problem"]
    assert fake.seen == []


def test_the_page_shows_a_fragment_or_a_message(connector: Connector, admin: User, fake: FakeServer) -> None:
    client = signed_in(admin)
    shown = client.get(f"/organizations/{connector.organization_id}/connectors/{connector.pk}")
    assert page(connector) in shown.content.decode()
    fragment = client.post(page(connector), headers={"HX-Request": "true"}).content.decode()
    assert "hello" in fragment
    assert "<html" not in fragment
    fake.push(Play(fault="status", status=500))
    whole = client.post(page(connector), follow=True).content.decode()
    assert "main did not answer" in whole


def test_only_admins_of_this_organization_may_ask(
    organization: Organization, connector: Connector, fake: FakeServer
) -> None:
    member, stranger = make_member(organization, Role.MEMBER), make_member(make_organization(), Role.OWNER)
    for path in (rest(connector), page(connector)):
        assert signed_in(member).post(path).status_code == 403
        assert signed_in(stranger).post(path).status_code == 404
        assert Client().post(path).status_code in (302, 401, 403)
        assert signed_in(member).get(path).status_code in (403, 405)
    assert fake.seen == []
