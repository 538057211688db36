"""Failure logs for the next attempt: compacted by a metered call, or kept at their end (rows 20, 21)."""

from __future__ import annotations

import pytest

from agents.compaction import Compaction, compact_log
from agents.errors import StopRun
from budgets.keys import MeterKind
from budgets.models import Reservation
from budgets.money import ZERO, Usd
from providers.scripted import ScriptedGateway
from routing.words import EndReason
from tests.factories.agents import TestClock, make_payers

pytestmark = pytest.mark.django_db

LONG = "".join(f"line {number:05}\n" for number in range(2_500))  # 27,500 characters, 6,875 tokens


def test_exactly_six_thousand_tokens_are_left_as_they_are() -> None:
    """Row 20."""
    gateway = ScriptedGateway.playing({"text": "short"})
    kept = compact_log("x" * 24_000, make_payers(), gateway=gateway)
    assert (kept.how, kept.cost, len(kept.text)) == (Compaction.NONE, ZERO, 24_000)
    assert not gateway.requests


def test_one_token_more_is_compacted_at_haiku() -> None:
    """Rows 20, 21, 142: the call is metered, and its cost is handed to the run that is being started."""
    gateway = ScriptedGateway.playing(
        {"text": "tried A, failed by B", "usage": {"input": 8_000, "output": 10}}
    )
    payers = make_payers(purpose="compaction")
    kept = compact_log("x" * 24_001, payers, gateway=gateway, clock=TestClock())
    assert (kept.how, kept.text, kept.cost) == (Compaction.DONE, "tried A, failed by B", Usd(805))
    assert gateway.requests[0].model == "claude-haiku-5-5"
    assert Reservation.objects.get().purpose == "compaction"


@pytest.mark.parametrize(
    "step", [{"fails": "timeout"}, {"fails": "bad_request"}, {"text": " "}, {"text": "x", "stop": "length"}]
)
def test_a_compaction_that_fails_keeps_the_last_tokens_verbatim(step: dict[str, object]) -> None:
    """Row 20."""
    kept = compact_log(LONG, make_payers(), gateway=ScriptedGateway.playing(step), clock=TestClock())
    assert kept.how is Compaction.FALLBACK
    assert kept.text == LONG[-24_000:]


def test_a_refused_budget_stops_the_start() -> None:
    """Row 20."""
    payers = make_payers(limits={MeterKind.ORGANIZATION: Usd(1)})
    with pytest.raises(StopRun) as stop:
        compact_log(LONG, payers, gateway=ScriptedGateway.playing({"text": "short"}))
    assert stop.value.end is EndReason.MONTHLY_BUDGET
