"""A worker that is killed in the middle of a call: the hold stays, and ends as an unknown charge."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from agents.calls import call_model
from agents.errors import StopRun
from agents.models import CallState, ModelCall
from agents.spec import Payers
from agents.tab import Tab
from budgets.models import Meter, Reservation
from budgets.money import ZERO, Usd
from budgets.reservations import reap
from providers.messages import ModelReply, ModelRequest
from providers.scripted import ScriptedGateway
from tests.factories.agents import TestClock, make_payers, make_request

pytestmark = pytest.mark.django_db(transaction=True)


class Killed(ScriptedGateway):
    """The process dies after the request left, before anything is known of the answer."""

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().send(request, seconds_max=seconds_max)


def in_another_process(work: Callable[[], object]) -> int:
    """Runs `work` in a fork of its own; the signal that killed it, or 0."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def large() -> ModelRequest:
    return make_request(100_000, output_tokens_max=16_000)


def send(payers: Payers, gateway: ScriptedGateway) -> None:
    call_model(large(), payers, gateway=gateway, tab=Tab(calls_max=16), clock=TestClock())


def test_a_killed_worker_leaves_its_hold_and_the_reaper_makes_it_unknown() -> None:
    """Row 145, and the first promise of the product: no refund of what may have left, also under kill -9."""
    payers = make_payers()
    killed = Killed.playing({"text": "hi"})
    assert in_another_process(lambda: send(payers, killed)) == signal.SIGKILL
    assert Reservation.objects.get().state == "held"
    assert ModelCall.objects.get().state == CallState.SENT
    assert reap(timezone.now()) == 0, "its lease still lives"
    assert set(Meter.objects.filter(held_calls=1).values_list("held_usd", flat=True)) == {Usd(260_000)}
    # Nobody may make this call again, whatever the broker delivers.
    again = ScriptedGateway.playing({"text": "hi"})
    with pytest.raises(StopRun, match="worker_lost"):
        send(payers, again)
    assert not again.requests


def test_a_lapsed_hold_becomes_an_unknown_charge_at_its_worst_case() -> None:
    payers = make_payers()
    in_another_process(lambda: send(payers, Killed.playing({"text": "hi"})))
    Reservation.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    assert reap(timezone.now()) == 1
    assert Reservation.objects.get().state == "unknown"
    rows = Meter.objects.filter(name__in=[key.name for key in payers.meters])
    assert {(row.spent_usd, row.held_usd) for row in rows} == {(Usd(260_000), ZERO)}
