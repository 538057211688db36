"""The metered door: caps first, then a hold on every meter or none, one call, and an end of the hold in every case."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

import pytest

from agents.calls import Answered, call_model
from agents.errors import CallFailed, StopRun
from agents.models import CallState, ModelCall
from agents.spec import HELD, Payers
from agents.tab import Tab
from budgets.keys import MeterKind
from budgets.models import Meter, Reservation
from budgets.money import ZERO, Usd
from budgets.reservations import Amount, CallContext, reserve
from providers.errors import ConnectionLost
from providers.messages import AssistantMessage, ModelReply, ModelRequest
from providers.scripted import ScriptedGateway
from routing.words import EndReason
from tests.factories.agents import Onlooker, TestClock, make_payers, make_request

pytestmark = pytest.mark.django_db

KNOWN = {
    "input": 5_000,
    "cache_read": 30_000,
    "cache_write_5m": 4_000,
    "output": 1_200,
}  # 35,000 µ$, example 12a
LARGE = 100_000  # characters: 40,000 tokens, with 16,000 of output 260,000 µ$ on sonnet (example 13a)


def large() -> ModelRequest:
    return make_request(LARGE, output_tokens_max=16_000)


def call(
    payers: Payers,
    gateway: ScriptedGateway,
    request: ModelRequest | None = None,
    *,
    tab: Tab | None = None,
    **over: object,
) -> Answered:
    given = {"clock": TestClock(), "tab": tab or Tab(calls_max=16), **over}
    return call_model(request or make_request(), payers, gateway=gateway, **given)  # type: ignore[arg-type]  # by name


def spent_and_held(payers: Payers) -> set[tuple[Usd, Usd, int, int]]:
    rows = Meter.objects.filter(name__in=[key.name for key in payers.meters])
    return {(row.spent_usd, row.held_usd, row.spent_calls, row.held_calls) for row in rows}


def state_of(payers: Payers) -> str:
    return str(Reservation.objects.get(key__startswith=payers.key).state)


def test_a_call_is_held_sent_and_settled_to_its_exact_cost() -> None:
    """Rows 32, 143, 144; example 12a."""
    payers, tab = make_payers(), Tab(calls_max=16)
    gateway = ScriptedGateway.playing({"text": "hi", "usage": KNOWN})
    answered = call(payers, gateway, large(), tab=tab)
    assert (answered.reply.text, answered.cost) == ("hi", Usd(35_000))
    assert (tab.calls, tab.cost, tab.unknown_calls) == (1, Usd(35_000), 0)
    assert spent_and_held(payers) == {(Usd(35_000), ZERO, 1, 0)}
    row = ModelCall.objects.get()
    assert (row.state, row.cost, row.held, row.stop) == (CallState.ANSWERED, Usd(35_000), Usd(260_000), "end")
    assert row.usage is not None
    assert row.usage["cache_read"] == 30_000
    assert row.rates is not None


def test_no_prompt_and_no_answer_is_kept_in_a_row() -> None:
    """Rows 4, 238."""
    payers = make_payers()
    request = make_request(messages=make_request().messages, labels={"role": "agent"})
    call(payers, ScriptedGateway.playing({"text": "a secret answer"}), request)
    row = ModelCall.objects.get()
    stored = " ".join(str(getattr(row, field.attname)) for field in row._meta.concrete_fields)
    assert "secret" not in stored
    assert "xxxx" not in stored


def test_the_seventeenth_call_of_a_haiku_run_is_not_made() -> None:
    """Worked example 4a (row 50)."""
    payers, tab = make_payers(), Tab(calls_max=16)
    gateway = ScriptedGateway.playing({"text": "hi"})
    for _ in range(16):
        call(payers, gateway, tab=tab)
    before = spent_and_held(payers)
    with pytest.raises(StopRun) as stop:
        call(payers, gateway, tab=tab)
    assert stop.value.end is EndReason.RUN_CALL_CAP
    assert len(gateway.requests) == 16
    assert spent_and_held(payers) == before


def test_a_call_that_could_pass_the_share_of_the_task_is_not_made() -> None:
    """Worked example 4b (rows 51, 52): 60,000 + 260,000 is over 300,000; nothing is held."""
    payers, gateway = make_payers(), ScriptedGateway.playing({"text": "hi"})
    tab = Tab(calls_max=16, budget=Usd(300_000), cost=Usd(60_000))
    with pytest.raises(StopRun) as stop:
        call(payers, gateway, large(), tab=tab)
    assert stop.value.end is EndReason.RUN_COST_CAP
    assert not gateway.requests
    assert not Reservation.objects.exists()


def test_a_call_that_fits_the_share_exactly_is_made() -> None:
    """Worked example 4b: an estimate of 240,000 is dispatched."""
    tab = Tab(calls_max=16, budget=Usd(300_000), cost=Usd(60_000))
    call(
        make_payers(),
        ScriptedGateway.playing({"text": "hi"}),
        make_request(92_000, output_tokens_max=14_800),
        tab=tab,
    )
    assert tab.calls == 1


def test_an_unknown_charge_counts_at_its_worst_case_against_the_share() -> None:
    payers = make_payers()
    tab = Tab(calls_max=16, budget=Usd(300_000))
    answered = call(payers, ScriptedGateway.playing({"text": "hi", "usage": "unknown"}), large(), tab=tab)
    assert answered.cost is None
    assert (tab.cost, tab.unknown_calls, tab.unknown_at_worst) == (ZERO, 1, Usd(260_000))
    with pytest.raises(StopRun, match="run_cost_cap"):
        call(payers, ScriptedGateway.playing({"text": "hi"}), large(), tab=tab)


def test_a_model_without_a_price_is_not_called_by_a_run_with_a_share() -> None:
    gateway = ScriptedGateway.playing({"text": "hi"})
    with pytest.raises(StopRun, match="no known price"):
        call(make_payers(), gateway, make_request(model="nobody-1"), tab=Tab(calls_max=16, budget=Usd(1)))
    assert not gateway.requests


def test_a_meter_without_room_stops_the_run_with_its_name_and_figures() -> None:
    """Rows 22, 32, 143, 240."""
    change = uuid4()
    payers = make_payers(change_id=change, limits={MeterKind.CHANGE: Usd(259_999)})
    gateway = ScriptedGateway.playing({"text": "hi"})
    with pytest.raises(StopRun) as stop:
        call(payers, gateway, large())
    assert (stop.value.end, stop.value.note) == (EndReason.CHANGE_BUDGET, "")
    assert [(each["kind"], each["limit"]) for each in stop.value.refusals] == [("change", 259_999)]
    assert not gateway.requests
    assert not ModelCall.objects.exists()


def test_held_money_in_the_way_is_a_wait_and_not_a_stop() -> None:
    payers = make_payers(limits={MeterKind.PROJECT: Usd(300_000)})
    context = CallContext(organization_id=payers.organization_id, purpose="agent", model="m")
    reserve(
        key="other",
        meters=payers.meters,
        amount=Amount(Usd(100_000), 0, 1),
        context=context,
        owner="o",
        lease_seconds=60,
    )
    with pytest.raises(StopRun) as stop:
        call(payers, ScriptedGateway.playing({"text": "hi"}), large())
    assert (stop.value.end, stop.value.note) == (EndReason.PROJECT_BUDGET, HELD)
    assert stop.value.refusals[0]["waits"] is True


def test_a_worker_that_lost_its_lease_sends_nothing() -> None:
    """C66: the beat comes before everything else."""
    gateway = ScriptedGateway.playing({"text": "hi"})
    with pytest.raises(StopRun, match="worker_lost"):
        call(make_payers(), gateway, supervisor=Onlooker(ends_at=1, end=StopRun(EndReason.WORKER_LOST)))
    assert not gateway.requests
    assert not Reservation.objects.exists()


def test_a_call_is_never_made_twice_under_its_key() -> None:
    payers, gateway = make_payers(), ScriptedGateway.playing({"text": "hi"})
    call(payers, gateway)
    with pytest.raises(StopRun, match="worker_lost: this call was already made"):
        call(payers, gateway)
    with pytest.raises(StopRun, match="worker_lost: this call was already made"):
        call(payers, gateway, make_request(5_000))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    ("step", "end", "state", "again"),
    [
        ({"fails": "transient"}, EndReason.TRANSIENT, "refunded", True),
        ({"fails": "not_sent"}, EndReason.TRANSIENT, "refunded", True),
        ({"fails": "gateway_failed"}, EndReason.TRANSIENT, "unknown", True),
        ({"fails": "connection_lost"}, EndReason.TRANSIENT, "unknown", True),
        ({"fails": "rate_limited"}, EndReason.RATE_LIMITED, "refunded", True),
        ({"fails": "rate_limited", "retry_after": 61}, EndReason.RATE_LIMITED, "refunded", False),
        ({"fails": "timeout"}, EndReason.TIMEOUT, "unknown", False),
        ({"fails": "spend_limited"}, EndReason.SPEND_LIMITED, "refunded", False),
        ({"fails": "bad_request"}, EndReason.BAD_REQUEST, "refunded", False),
        ({"fails": "bad_output"}, EndReason.BAD_OUTPUT, "unknown", False),
        ({"fails": "bad_output", "usage": KNOWN}, EndReason.BAD_OUTPUT, "settled", False),
    ],
)
def test_a_failed_call_ends_its_hold_by_what_is_known_of_the_bill(
    step: dict[str, object], end: EndReason, state: str, again: bool
) -> None:
    """Rows 118, 123, 134; C62, C63, C64, C65."""
    payers, tab = make_payers(), Tab(calls_max=16)
    with pytest.raises(CallFailed) as failed:
        call(payers, ScriptedGateway.playing(step), large(), tab=tab)
    assert (failed.value.end, failed.value.again) == (end, again)
    assert state_of(payers) == state
    charged = {"refunded": ZERO, "unknown": Usd(260_000), "settled": Usd(35_000)}[state]
    assert spent_and_held(payers) == {(charged, ZERO, 0 if state == "refunded" else 1, 0)}
    assert tab.calls == 1
    assert (tab.cost, tab.unknown_calls) == (
        Usd(35_000) if state == "settled" else ZERO,
        int(state == "unknown"),
    )
    row = ModelCall.objects.get()
    assert (row.state, row.error) == (
        CallState.FAILED,
        step["fails"] if end is not EndReason.TRANSIENT else "transient",
    )
    assert row.cost == {"refunded": ZERO, "unknown": None, "settled": Usd(35_000)}[state]


def test_a_request_that_the_route_cannot_send_holds_nothing() -> None:
    payers = make_payers()
    ended = ScriptedGateway.playing({"text": "hi"})
    request = make_request(messages=(*make_request().messages, AssistantMessage("before")))
    with pytest.raises(CallFailed, match="has 1 steps"):
        call(payers, ended, request)
    assert not Reservation.objects.exists()


class Interrupted(BaseException):
    """What a worker gets that is being ended."""


class EndingGateway(ScriptedGateway):
    """Is interrupted after the request left."""

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        super().send(request, seconds_max=seconds_max)
        raise Interrupted


def test_an_interrupted_call_keeps_its_hold_as_an_unknown_charge() -> None:
    """Row 145: it may have left, so it is never refunded."""
    payers = make_payers()
    with pytest.raises(Interrupted):
        call(payers, EndingGateway.playing({"text": "hi"}), large())
    assert state_of(payers) == "unknown"
    assert spent_and_held(payers) == {(Usd(260_000), ZERO, 1, 0)}


class FailingClock(TestClock):
    """Raises when it is looked at for the n-th time: an interruption at each place between hold and settlement."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def now(self) -> datetime:
        self.left -= 1
        if self.left == 0:
            raise Interrupted
        return super().now()


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize(
    "step", [{"text": "hi", "usage": KNOWN}, {"fails": "timeout"}, {"fails": "transient"}]
)
def test_wherever_it_is_interrupted_no_hold_is_given_back_that_may_have_been_billed(
    step: dict[str, object], at: int
) -> None:
    """Row 145: after a crash at any line the hold stays, or says the truth."""
    payers, gateway = make_payers(), ScriptedGateway.playing(step)
    with contextlib.suppress(Interrupted, CallFailed):
        call(payers, gateway, large(), clock=FailingClock(at))
    states = list(Reservation.objects.filter(key__startswith=payers.key).values_list("state", flat=True))
    if not gateway.requests:
        assert set(states) <= {"refunded"}
    elif step == {"fails": "transient"}:
        assert set(states) <= {"held", "refunded"}
    else:
        assert len(states) == 1
        assert states[0] in {"held", "unknown", "settled"}
        ((spent, held, _, _),) = spent_and_held(payers)
        assert spent + held in (Usd(260_000), Usd(35_000))


class Answering(ScriptedGateway):
    """Answers under another model's name."""

    name = ""

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        return replace(super().send(request, seconds_max=seconds_max), model=self.name)


@pytest.mark.parametrize(
    ("name", "cost"),
    [("claude-haiku-5-5", 1_000 * 0.1 + 100 * 0.5), ("claude-sonnet-5-5-nobody-knows", 1_000 * 2 + 100 * 10)],
)
def test_the_price_is_that_of_the_model_that_answered(name: str, cost: float) -> None:
    """Row 122; a name without a price is priced as the model that was asked for."""
    gateway = Answering.playing({"text": "hi", "usage": {"input": 1_000, "output": 100}})
    assert isinstance(gateway, Answering)
    gateway.name = name
    assert call(make_payers(), gateway).cost == Usd(int(cost))


class Renaming(ScriptedGateway):
    """An account that has its own name for a model."""

    def fit(self, request: ModelRequest) -> ModelRequest:
        return replace(request, model="claude-haiku-5-5")


def test_a_call_is_held_and_priced_under_the_accounts_own_name() -> None:
    call(make_payers(), Renaming.playing({"text": "hi", "usage": {"input": 1_000, "output": 100}}), large())
    row = ModelCall.objects.get()
    assert (row.model, row.cost) == ("claude-haiku-5-5", Usd(150))
    assert Reservation.objects.get().model == "claude-haiku-5-5"


class Breaking(ScriptedGateway):
    """Breaks off in the middle of its answer."""

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        raise ConnectionLost(output_began=True)


def test_an_answer_that_broke_off_is_not_asked_for_again() -> None:
    """Row 115: part of it came, and is paid."""
    payers = make_payers()
    with pytest.raises(CallFailed) as failed:
        call(payers, Breaking.playing({"text": "hi"}))
    assert not failed.value.again
    assert state_of(payers) == "unknown"


def test_a_call_is_held_in_the_month_in_which_it_is_made() -> None:
    """A run outlives midnight: the meters of its later calls are those of the new day."""
    payers, clock = make_payers(), TestClock()
    clock.time = datetime.fromisoformat("2026-12-01T00:00:01+00:00")
    call(payers, ScriptedGateway.playing({"text": "hi", "usage": KNOWN}), clock=clock)
    days = Meter.objects.filter(kind=MeterKind.DAILY_CALLS, spent_calls=1).values_list("period", flat=True)
    assert list(days) == ["2026-12-01"]
    assert spent_and_held(payers) == {(ZERO, ZERO, 0, 0)}


def test_the_words_of_a_failure_hold_nothing_of_the_vendor() -> None:
    """Row 160: no raw errors in what is stored."""
    step = {"fails": "bad_request", "message": "invalid key sk-123"}
    with pytest.raises(CallFailed) as failed:
        call(make_payers(), ScriptedGateway.playing(step))
    assert failed.value.note == "Rejected"
    assert "sk-123" not in str(ModelCall.objects.values().get())
