"""Row 138, through the doors: an account prices models that no list knows, in cents per 1,000 tokens."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from agents.calls import call_model, gateway_for
from agents.errors import StopRun
from agents.pricing import prices_at
from agents.tab import Tab
from budgets.models import Reservation, ReservationState
from budgets.money import Usd
from budgets.prices import cost_of, estimate_of
from providers.errors import RequestRefused
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.messages import Usage
from providers.models import Connector
from providers.own_prices import RATE_CENTS_MAX, SOURCE, read_prices
from routing.words import EndReason
from tenants.models import AuditEntry, Organization, User
from tests.factories.agents import make_payers, make_request
from tests.factories.providers import make_connector
from tests.factories.tenants import bearer, make_project, make_token

pytestmark = pytest.mark.django_db
KEY = "sk-own-prices-0123456789abcdef"
DAY = date(2026, 11, 15)
MODEL = "qwen-house"
# Remit asks for its haiku; the house's server has one model for it. 0.0215 cents for 1,000 tokens are 0.215 µ$ each.
HOUSE: dict[str, Any] = {
    "models": {"claude-haiku-5-5": {"model": MODEL, "thinking": "off"}},
    "profiles": {MODEL: {"can": ["tools", "streaming", "thinking_off"], "output_tokens": 8_000}},
    "prices": {MODEL: {"input": "0.0215", "output": "0.06"}},
}


@pytest.fixture
def fake(server: FakeServer) -> FakeServer:
    server.reset()
    server.provider.key = KEY
    return server


@pytest.fixture
def api(organization: Organization, admin: User) -> dict[str, Any]:
    return bearer(make_token(admin, organization, scopes=["admin"])[1])


def address(organization: Organization) -> str:
    return f"/api/v1/organizations/{organization.pk}/connectors"


def body(fake: FakeServer, **config: Any) -> dict[str, Any]:
    return {"name": "main", "kind": "openai", "key": KEY, "base_url": fake.url("openai"), "config": config}


def without(*names: str) -> dict[str, Any]:
    rates = {name: rate for name, rate in HOUSE["prices"][MODEL].items() if name not in names}
    return {**HOUSE, "prices": {MODEL: rates}}


def test_a_price_goes_in_over_rest_and_holds_and_settles_the_next_call(
    organization: Organization, api: dict[str, Any], fake: FakeServer, client: Client
) -> None:
    """1,001 tokens in and 51 out: 1,001 x 0.215 + 51 x 0.6 = 245.815 µ$, rounded up once."""
    made = client.post(address(organization), body(fake, **HOUSE), content_type="application/json", **api)
    assert made.status_code == 201, made.content
    entry = AuditEntry.objects.get(action="connector.made")
    assert entry.after is not None
    assert entry.after["prices"] == HOUSE["prices"], "who stated which price is in the audit list"
    fake.push(Play(usage=Usage(input_uncached=1_001, output=51)))
    tried = client.post(f"{address(organization)}/{made.json()['id']}/test", **api).json()
    assert (tried["answered"], tried["cost"]) == (True, "0.000246"), tried
    call = Reservation.objects.get()
    assert call.rates == {
        "model": MODEL,
        "source": SOURCE,
        "since": None,
        "input": "0.2150",
        "output": "0.60",
        "cache_read": "0.2150",
        "cache_write_5m": None,
        "cache_write_1h": None,
    }
    assert call.hold_usd is not None
    assert Usd(0) < call.hold_usd, "held at its worst case before it left"


def test_without_a_price_the_same_call_is_refused_by_a_limit_and_nothing_leaves(
    organization: Organization, api: dict[str, Any], fake: FakeServer, client: Client
) -> None:
    """Row 136: unknown is not free. This is what the option is for."""
    row = make_connector(
        organization, kind="openai", base_url=fake.url("openai"), key=KEY, config={**HOUSE, "prices": {}}
    )
    tried = client.post(f"{address(organization)}/{row.pk}/test", **api).json()
    assert tried["answered"] is False
    assert fake.seen == []


@pytest.mark.parametrize("missing", ["input", "output"])
def test_a_missing_direction_is_unknown_before_the_call(
    organization: Organization, fake: FakeServer, missing: str
) -> None:
    """Also for a model that a list has by now: no list stands in, an error never falls back in silence."""
    make_connector(organization, kind="openai", base_url=fake.url("openai"), key=KEY, config=without(missing))
    payers = make_payers(make_project(organization))
    with pytest.raises(StopRun) as stopped:
        call_model(
            make_request(model="claude-haiku-5-5"),
            payers,
            gateway=gateway_for(payers),
            tab=Tab(calls_max=16, budget=Usd.dollars("5")),
        )
    assert stopped.value.end is EndReason.RUN_COST_CAP
    assert fake.seen == []
    assert not Reservation.objects.exists()


def test_a_rate_that_turns_out_to_be_missing_leaves_the_charge_unknown(
    organization: Organization, api: dict[str, Any], fake: FakeServer, client: Client
) -> None:
    """Tokens written to a cache that has no price: the worst case stays, and a list's price is not taken."""
    row = make_connector(
        organization, kind="openai", base_url=fake.url("openai"), key=KEY, config={**HOUSE, "stream": False}
    )
    fake.push(Play(usage=Usage(input_uncached=10, output=5, cache_write_5m=7)))
    tried = client.post(f"{address(organization)}/{row.pk}/test", **api).json()
    assert (tried["answered"], tried["cost"]) == (True, None)
    call = Reservation.objects.get()
    assert call.state == ReservationState.UNKNOWN
    assert call.usd == call.hold_usd


def test_a_listed_model_that_answers_under_an_unlisted_name_keeps_its_listed_price(
    organization: Organization, api: dict[str, Any], fake: FakeServer, client: Client
) -> None:
    """Vendors answer with names of their own; a price of nothing for one made every call of the model free."""
    alias = "gpt-4o-mini-preview"
    config = {"prices": {alias: {"input": "0", "output": "0"}}}
    made = client.post(address(organization), body(fake, **config), content_type="application/json", **api)
    assert made.status_code == 201, made.content
    fake.push(Play(usage=Usage(input_uncached=1_000, output=10), model=alias))
    tried = client.post(f"{address(organization)}/{made.json()['id']}/test", **api).json()
    assert tried["answered"] is True
    listed = cost_of(Usage(input_uncached=1_000, output=10), "gpt-4o-mini", DAY)
    assert listed is not None
    assert Reservation.objects.get().cost == listed.cost
    assert listed.cost > Usd(0)


@pytest.mark.parametrize("tokens", [900_000_000_000, 2**53 - 1])
def test_a_report_of_absurdly_many_cached_tokens_is_unknown_and_no_crash(
    organization: Organization, api: dict[str, Any], fake: FakeServer, client: Client, tokens: int
) -> None:
    """At the dearest price, what they saved was too large for its column: the charge could not be booked at all."""
    prices = {MODEL: {"input": str(RATE_CENTS_MAX), "output": "0", "cache_read": "0"}}
    row = make_connector(
        organization, kind="openai", base_url=fake.url("openai"), key=KEY, config={**HOUSE, "prices": prices}
    )
    fake.push(Play(usage=Usage(input_uncached=1, cache_read=tokens - 1, output=1)))
    tried = client.post(f"{address(organization)}/{row.pk}/test", **api).json()
    assert (tried["answered"], tried["cost"]) == (True, None), tried
    call = Reservation.objects.get()
    assert (call.state, call.usd) == (ReservationState.UNKNOWN, call.hold_usd)


def test_what_an_account_states_wins_over_a_list() -> None:
    own = read_prices({"gpt-4o-mini": {"input": "1", "output": "2", "cache_write": "0"}})["gpt-4o-mini"]
    usage = Usage(input_uncached=1_000, cache_read=1_000, output=1_000)
    stated, listed = cost_of(usage, "gpt-4o-mini", DAY, own=own), cost_of(usage, "gpt-4o-mini", DAY)
    assert stated is not None
    assert listed is not None
    assert (stated.cost, stated.cost > listed.cost) == (Usd(40_000), True)
    only_in = read_prices({"gpt-4o-mini": {"input": "1"}})["gpt-4o-mini"]
    assert cost_of(usage, "gpt-4o-mini", DAY, own=only_in) is None
    assert estimate_of(1_000, 10, "gpt-4o-mini", DAY, own=only_in) is None
    asked_only = cost_of(Usage(input_uncached=1_000, output=0), "gpt-4o-mini", DAY, own=only_in)
    assert asked_only is not None
    assert asked_only.cost == Usd(10_000), "a direction that the call does not use needs no rate"


def test_fractions_are_kept_to_the_twelfth_place() -> None:
    card = read_prices({"m": {"input": "0.000000000001", "output": str(RATE_CENTS_MAX)}})["m"]
    assert card.rates_for(1).input == Decimal("0.00000000001")
    priced = cost_of(Usage(input_uncached=1, output=0), "m", DAY, own=card)
    assert priced is not None
    assert priced.cost == Usd(1), "and the sum is rounded up once"


@pytest.mark.parametrize(
    "prices",
    [
        5,
        [],
        {"m": 5},
        {"m": {}},
        {"m": {"input": 0.02, "output": "1"}},
        {"m": {"input": "-1"}},
        {"m": {"input": "NaN"}},
        {"m": {"input": "1e400"}},
        {"m": {"input": "5,00"}},
        {"m": {"input": "10000"}},
        {"m": {"input": "0.0000000000001"}},
        {"m": {"input": "1\n"}},
        {"m": {"input": "١"}},
        {"m": {"inputs": "1"}},
        {"m": {"reasoning": "1"}},
        {f"m{number}": {"input": "1"} for number in range(101)},
    ],
    ids=str,
)
def test_a_price_that_is_none_is_named_and_not_stored(
    organization: Organization,
    admin: User,
    api: dict[str, Any],
    fake: FakeServer,
    client: Client,
    prices: object,
) -> None:
    with pytest.raises(RequestRefused, match=r"config\.prices"):
        read_prices(prices)
    answer = client.post(
        address(organization), body(fake, prices=prices), content_type="application/json", **api
    )
    assert (answer.status_code, answer.json()["field"]) == (400, "config")
    assert "config.prices" in answer.json()["detail"]
    client.force_login(admin)
    typed = {**body(fake), "headers": "", "config": json.dumps({"prices": prices})}
    page = client.post(f"/organizations/{organization.pk}/connectors", typed)
    assert "config.prices" in str(page.context["form"].errors["config"]).lower()
    assert not Connector.objects.exists()


def test_the_price_of_a_listed_model_is_the_operators_to_state(
    organization: Organization, api: dict[str, Any], fake: FakeServer, client: Client
) -> None:
    """An organization cannot price a known model down to nothing, and so past the deployment's own limit."""
    config = {"prices": {"claude-sonnet-5-5": {"input": "0", "output": "0"}}}
    answer = client.post(address(organization), body(fake, **config), content_type="application/json", **api)
    assert (answer.status_code, answer.json()["code"]) == (400, "price_known")
    assert not Connector.objects.exists()
    # One that was there before a list learned the model stays, and stops no other change.
    row = make_connector(organization, kind="openai", config=config)
    changed = client.patch(
        f"{address(organization)}/{row.pk}",
        {"config": {**config, "stream": False}},
        content_type="application/json",
        **api,
    )
    assert changed.status_code == 200, changed.content


def test_estimates_go_by_the_name_and_the_price_that_the_account_has(organization: Organization) -> None:
    """A plan's estimate and the room for a first call; without an own price both are the list's."""
    listed = prices_at(organization.pk, "main")
    assert listed.estimate(1_000, 10, "claude-haiku-5-5") == estimate_of(1_000, 10, "claude-haiku-5-5")
    make_connector(organization, kind="openai", config=HOUSE)
    own = prices_at(organization.pk, "main")
    # 1,000 characters are 400 tokens: 400 x 0.215 + 10 x 0.6 = 92 µ$.
    assert own.estimate(1_000, 10, "claude-haiku-5-5") == Usd(92)
    assert own.worst_case(1_000, 10, "claude-haiku-5-5").usd == Usd(92)
    assert own.estimate(1_000, 10, "claude-sonnet-5-5") == listed.estimate(1_000, 10, "claude-sonnet-5-5")
    make_connector(organization, name="half", kind="openai", config=without("output"))
    assert prices_at(organization.pk, "half").estimate(1_000, 10, "claude-haiku-5-5") is None
