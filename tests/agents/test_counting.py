"""What the server saw is what the meters admitted, over many calls with every fault (issue 4, point 2)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agents.calls import call_model, gateway_for
from agents.errors import StopRun
from agents.models import CallState, ModelCall
from agents.tab import Tab
from budgets.keys import MeterKind
from budgets.models import Meter, Reservation
from budgets.money import Usd
from providers.fake.play import Play
from providers.fake.server import FakeProvider, FakeServer
from tests.factories.agents import TestClock, make_payers, make_request
from tests.factories.providers import make_connector
from tests.factories.tenants import make_project

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
QUESTIONS = 1_000
REFUSED = 20
MODELS = {
    "anthropic": "claude-haiku-5-5",
    "openai": "gpt-4o-mini",
    "openrouter": "anthropic/claude-haiku-5.5",
    "google": "gemini-2.5-flash",
}


@pytest.mark.parametrize("wire", MODELS)
def test_the_server_saw_what_the_meters_admitted(wire: str) -> None:
    """With retries, a stand-in, every fault, and a budget that runs out in the end: one hold for each request."""
    dice = random.Random(f"{wire} 2")  # the seed is part of the test
    plays = [
        *[Play()] * 4,
        Play(counts="absent"),
        *(Play(fault="status", status=code) for code in (400, 402, 408, 429, 500, 502, 503, 529)),
        *(Play(fault=fault) for fault in ("html", "bad_json", "redirect", "drop", "cut", "late_cut")),
        *(Play(fault=fault, status=529) for fault in ("stream_error", "first_error")),
    ]
    project = make_project()
    with FakeServer(FakeProvider(choose_play=lambda _: dice.choice(plays))) as fake:
        given: dict[str, Any] = {"kind": wire, "base_url": fake.url(wire), "config": {}}
        plan = {"connectors": ["spare"], "max_retries": 1}
        make_connector(project.organization, fallback=plan, **given)
        make_connector(project.organization, name="spare", **given)
        payers = make_payers(project)
        tab, clock = Tab(calls_max=1_000_000), TestClock()
        month = Meter.objects.filter(kind=MeterKind.ORGANIZATION)

        def ask() -> bool:
            """Was it refused by a meter?"""
            request = make_request(model=MODELS[wire])
            try:
                call_model(request, payers, gateway=gateway_for(payers), tab=tab, clock=clock)
            except StopRun as end:
                return bool(end.refusals)
            return False

        assert not any(ask() for _ in range(QUESTIONS))
        month.update(limit_usd=month.get().spent_usd + Usd(1))
        assert all(ask() for _ in range(REFUSED))
        seen = len(fake.seen)
    assert seen == Reservation.objects.count() == ModelCall.objects.count() == tab.calls >= QUESTIONS
    assert not Reservation.objects.filter(state="held").exists()
    assert not ModelCall.objects.filter(state=CallState.SENT).exists()
    charged = sum(row.usd.micro for row in Reservation.objects.all() if row.usd is not None)
    assert (month.get().held_usd, month.get().spent_usd) == (Usd(0), Usd(charged))
