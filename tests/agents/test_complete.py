"""One question, one answer, always metered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents.complete import Question, ask
from agents.errors import StopRun
from agents.jsontext import NotFound, extract_object
from agents.models import ModelCall
from agents.spec import Payers
from budgets.models import Reservation
from budgets.money import ZERO, Usd
from providers.messages import CachePlan, SystemMessage, Thinking, ThinkingMode
from providers.scripted import ScriptedGateway
from routing.words import EndReason, Tier
from tests.factories.agents import Onlooker, TestClock, make_payers
from tests.factories.providers import make_connector

pytestmark = pytest.mark.django_db


def question(**over: object) -> Question:
    given = {
        "role": "planner",
        "system": "You plan.",
        "prompt": "Plan this.",
        "tier": Tier.HAIKU,
        "output_tokens_max": 500,
    }
    return Question(**{**given, **over})  # type: ignore[arg-type]  # by name


@pytest.fixture
def payers() -> Payers:
    return make_payers(purpose="planning", labels={"change": "Greet people"})


def test_an_answer_comes_with_its_exact_cost(payers: Payers) -> None:
    """Row 80: through the meters; haiku does not think in ask() (row 75), the system prompt is cached (row 108)."""
    gateway = ScriptedGateway.playing({"text": "a plan", "usage": {"input": 1_000, "output": 100}})
    answer = ask(question(), payers, gateway=gateway, clock=TestClock())
    assert (answer.text, answer.cost, answer.model, answer.cut_off) == (
        "a plan",
        Usd(150),
        "claude-haiku-5-5",
        False,
    )
    (request,) = gateway.requests
    assert (request.thinking, request.cache, request.output_tokens_max) == (Thinking(), CachePlan.SYSTEM, 500)
    assert request.messages[0] == SystemMessage("You plan.")
    assert request.labels == {
        "change": "Greet people", "role": "planner", "purpose": "planning", "tier": "haiku", "try": "1"
    }  # fmt: skip
    assert Reservation.objects.get().purpose == "planning"


def test_a_higher_tier_thinks(payers: Payers) -> None:
    gateway = ScriptedGateway.playing({"text": "a plan"})
    ask(question(tier=Tier.OPUS), payers, gateway=gateway, clock=TestClock())
    assert gateway.requests[0].model == "claude-sonnet-5-5"  # opus is off
    assert gateway.requests[0].thinking == Thinking(ThinkingMode.ADAPTIVE, effort="high")


def test_opus_answers_when_it_is_allowed(payers: Payers, with_plane: Callable[..., object]) -> None:
    with_plane(allow_opus=True)
    gateway = ScriptedGateway.playing({"text": "a plan"})
    assert (
        ask(question(tier=Tier.OPUS), payers, gateway=gateway, clock=TestClock()).model == "claude-opus-5-5"
    )


def test_a_passing_error_is_asked_once_more_after_two_seconds(payers: Payers) -> None:
    """Row 57: the second is another physical call with another hold."""
    gateway = ScriptedGateway.playing({"fails": "transient", "times": 1, "text": "ok"})
    clock = TestClock()
    assert ask(question(), payers, gateway=gateway, clock=clock).text == "ok"
    assert clock.slept == [2.0]
    assert [row.state for row in Reservation.objects.order_by("pk")] == ["refunded", "settled"]
    assert [row.error for row in ModelCall.objects.all()] == ["transient", ""]


def test_a_second_passing_error_ends_it(payers: Payers) -> None:
    with pytest.raises(StopRun) as stop:
        ask(question(), payers, gateway=ScriptedGateway.playing({"fails": "transient"}), clock=TestClock())
    assert stop.value.end is EndReason.TRANSIENT
    assert ModelCall.objects.count() == 2


def test_a_retry_after_a_charge_that_is_unknown_makes_the_cost_unknown(payers: Payers) -> None:
    """C64: the first call may have been billed, so the sum of both is not known."""
    gateway = ScriptedGateway.playing({"fails": "gateway_failed", "times": 1, "text": "ok"})
    answer = ask(question(), payers, gateway=gateway, clock=TestClock())
    assert (answer.cost, answer.unknown_calls) == (None, 1)


def test_a_short_retry_after_is_waited_for_and_a_long_one_is_handed_back(payers: Payers) -> None:
    """C63: no worker is held for more than a minute."""
    clock = TestClock()
    gateway = ScriptedGateway.playing({"fails": "rate_limited", "times": 1, "retry_after": 12, "text": "ok"})
    ask(question(), payers, gateway=gateway, clock=clock)
    assert sum(clock.slept) == 12
    long = ScriptedGateway.playing({"fails": "rate_limited", "retry_after": 90})
    with pytest.raises(StopRun) as stop:
        ask(question(), make_payers(), gateway=long, clock=clock)
    assert (stop.value.end, stop.value.retry_after_seconds) == (EndReason.RATE_LIMITED, 90)
    assert sum(clock.slept) == 12


def test_a_wait_hears_that_it_was_cancelled(payers: Payers) -> None:
    onlooker = Onlooker(ends_at=3, end=StopRun(EndReason.CANCELLED))
    gateway = ScriptedGateway.playing({"fails": "rate_limited", "retry_after": 60})
    clock = TestClock()
    with pytest.raises(StopRun, match="cancelled"):
        ask(question(), payers, gateway=gateway, clock=clock, supervisor=onlooker)
    assert sum(clock.slept) == 10


def test_an_answer_that_was_cut_off_says_so(payers: Payers) -> None:
    """C87: with the one reader of JSON, it is an error of its own."""
    gateway = ScriptedGateway.playing({"text": '{"a": 1}', "stop": "length"})
    answer = ask(question(), payers, gateway=gateway, clock=TestClock())
    assert answer.cut_off
    found = extract_object(answer.text, cut_off=answer.cut_off)
    assert isinstance(found, NotFound)
    assert found.problem == "cut_off"


def test_a_refusal_of_the_model_is_an_end(payers: Payers) -> None:
    with pytest.raises(StopRun, match="refused"):
        ask(question(), payers, gateway=ScriptedGateway.playing({"stop": "refused"}), clock=TestClock())


def test_a_schema_is_told_to_the_model(payers: Payers) -> None:
    gateway = ScriptedGateway.playing({"json": {"a": 1}})
    ask(question(schema={"type": "object"}), payers, gateway=gateway, clock=TestClock())
    assert '{"type": "object"}' in str(gateway.requests[0].messages[-1])


def test_a_follow_up_sends_the_whole_turn_again(payers: Payers) -> None:
    """Row 81."""
    gateway = ScriptedGateway.playing({"text": "first"}, {"text": "second"})
    first = ask(question(), payers, gateway=gateway, clock=TestClock())
    again = question(prompt="And then?", earlier=first.turns)
    assert ask(again, make_payers(), gateway=gateway, clock=TestClock()).text == "second"
    assert gateway.requests[1].messages[1:3] == first.turns


def test_a_connector_that_is_missing_is_said_before_anything_is_held() -> None:
    """Example 1a (row 3): another tenant's connector of that name is none of ours."""
    make_connector(name="helper")
    with pytest.raises(StopRun) as stop:
        ask(question(), make_payers(connector="helper"))
    assert stop.value.note.startswith("connector_not_found: ")
    assert "'helper'" in stop.value.note
    assert not Reservation.objects.exists()
    assert not ModelCall.objects.exists()


def test_the_connector_of_the_organization_is_asked() -> None:
    payers = make_payers()
    organization = payers.organization_id
    make_connector(None, organization_id=organization, steps=[{"text": "ours"}])
    assert ask(question(), payers).text == "ours"
    assert Reservation.objects.get().usd != ZERO
