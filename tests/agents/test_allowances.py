"""A call's place under its ModelTask, inside the one metered door (rows 149, 153 to 157)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from agents.calls import call_model
from agents.errors import AllowanceRefused, CallFailed, StopRun
from agents.models import ModelCall
from agents.spec import Payers, UnderModelTask
from agents.tab import Tab
from budgets.keys import MeterKind
from budgets.model_task_views import TaskView, snapshot
from budgets.model_tasks import TaskLimits, open_task
from budgets.models import Invocation, Reservation
from budgets.money import Usd
from providers.messages import ModelReply, ModelRequest
from providers.own_prices import read_prices
from providers.scripted import ScriptedGateway
from tests.factories.agents import NOON, TestClock, make_payers, make_request
from tests.factories.tenants import make_project

pytestmark = pytest.mark.django_db

OK = {"text": "ok", "usage": {"input": 90, "output": 10}}
WORST = 1_000_000 + 1_000  # sonnet's window, and the output of `make_request`


def priced(rates: dict[str, str], model: str = "claude-sonnet-5-5") -> ScriptedGateway:
    """An account with prices of its own, in cents per 1,000 tokens."""
    gateway = ScriptedGateway.playing(OK)
    gateway.price = read_prices({model: rates}).get  # type: ignore[assignment, method-assign]  # as its connector says
    return gateway


def under(limits: TaskLimits, *, meters: dict[MeterKind, object] | None = None) -> tuple[UUID, Payers]:
    project = make_project()
    task = open_task(project.organization_id, limits, now=NOON)
    assert task is not None
    allowance = UnderModelTask(model_task_id=task, parent="a test")
    return task, make_payers(project, limits=meters, allowance=allowance)


def call(payers: Payers, gateway: ScriptedGateway, request: ModelRequest | None = None, **over: Any) -> None:
    given = {"tab": Tab(calls_max=9), "clock": TestClock(), **over}
    call_model(request or make_request(), payers, gateway=gateway, **given)


def charged(task: UUID) -> tuple[int, int]:
    totals = snapshot(task).totals
    return totals.calls, totals.charged_tokens


def only(view: TaskView) -> str:
    (row,) = view.invocations
    return row.state


def test_a_call_without_an_allowance_has_no_place() -> None:
    """Row 148: nothing changes for it."""
    call(make_payers(), ScriptedGateway.playing(OK))
    assert not Invocation.objects.exists()


def test_known_usage_is_what_stays() -> None:
    """Rows 153, 156."""
    task, payers = under(TaskLimits(calls_max=2))
    call(payers, ScriptedGateway.playing(OK))
    assert (only(snapshot(task)), charged(task)) == ("settled", (1, 100))


def test_no_room_means_no_hold_and_no_request() -> None:
    """Row 149: the dimension is named, and what its limit would have to be."""
    task, payers = under(TaskLimits(tokens_max=WORST - 1))
    gateway = ScriptedGateway.playing(OK)
    with pytest.raises(AllowanceRefused) as refused:
        call(payers, gateway)
    assert (refused.value.dimension, refused.value.at_least) == ("tokens", str(WORST))
    assert not gateway.requests
    assert not Reservation.objects.exists()
    assert not ModelCall.objects.exists()
    assert charged(task) == (0, 0)


def test_a_meter_that_refuses_gives_the_place_back() -> None:
    """Row 155."""
    task, payers = under(TaskLimits(calls_max=1), meters={MeterKind.PROJECT: Usd(1)})
    with pytest.raises(StopRun, match="project_budget"):
        call(payers, ScriptedGateway.playing(OK))
    assert (only(snapshot(task)), charged(task)) == ("refunded", (0, 0))


@pytest.mark.parametrize(
    ("fails", "state", "left"),
    [
        ("not_sent", "refunded", (0, 0)),  # row 155: no byte left
        ("rate_limited", "unknown", (1, WORST)),  # row 154, though the meters get it back
        ("timeout", "unknown", (1, WORST)),
        ("connection_lost", "unknown", (1, WORST)),
    ],
)
def test_a_failure_without_usage_keeps_its_worst_case_once_it_left(
    fails: str, state: str, left: tuple[int, int]
) -> None:
    task, payers = under(TaskLimits(calls_max=2))
    with pytest.raises(CallFailed):
        call(payers, ScriptedGateway.playing({"fails": fails}))
    assert (only(snapshot(task)), charged(task)) == (state, left)


def test_a_failure_with_usage_is_charged_by_it() -> None:
    """Row 164: terminal usage is kept once beside the failure."""
    task, payers = under(TaskLimits(calls_max=2))
    with pytest.raises(CallFailed):
        call(payers, ScriptedGateway.playing({"fails": "bad_output", "usage": OK["usage"]}))
    assert (only(snapshot(task)), charged(task)) == ("settled", (1, 100))


def test_a_worker_that_is_told_to_stop_leaves_an_unknown_charge() -> None:
    """Row 154."""

    class Stopped(ScriptedGateway):
        def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
            raise KeyboardInterrupt

    task, payers = under(TaskLimits(calls_max=2))
    with pytest.raises(KeyboardInterrupt):
        call(payers, Stopped.playing(OK))
    assert (only(snapshot(task)), charged(task)) == ("unknown", (1, WORST))


def test_an_accounts_own_price_bounds_the_call_and_is_what_it_cost() -> None:
    """Rows 138, 156, 157: 1 cent for 1,000 tokens is 10 µ$ each."""
    gateway = priced({"input": "1", "output": "2"})
    worst = 1_000_000 * 10 + 1_000 * 20
    task, payers = under(TaskLimits(cost_max=Usd(worst - 1)))
    with pytest.raises(AllowanceRefused) as refused:
        call(payers, gateway)
    assert (refused.value.dimension, refused.value.at_least) == ("cost", "10.020000")
    task, payers = under(TaskLimits(cost_max=Usd(worst)))
    call(payers, gateway)
    totals = snapshot(task).totals
    assert (totals.known_cost, totals.charged_cost) == (Usd(1_100), Usd(1_100))


def test_a_price_that_lacks_a_direction_bounds_nothing() -> None:
    """Rows 138, 157: no list stands in for it."""
    _, payers = under(TaskLimits(cost_max=Usd.dollars("100")))
    with pytest.raises(AllowanceRefused) as refused:
        call(payers, priced({"input": "1"}))
    assert refused.value.dimension == "price_bound_needed"


def test_a_model_of_unknown_capacity_needs_it_stated() -> None:
    """Row 95."""
    task, payers = under(TaskLimits(calls_max=2))
    request = make_request(model="house-model-1")
    with pytest.raises(AllowanceRefused, match="input_capacity"):
        call(payers, priced({"input": "1", "output": "2"}, "house-model-1"), request)
    assert charged(task) == (0, 0)


def test_one_key_is_admitted_once() -> None:
    """A worker that comes late under the same key sends nothing."""
    task, payers = under(TaskLimits(calls_max=9))
    call(payers, ScriptedGateway.playing(OK))
    late = ScriptedGateway.playing(OK)
    with pytest.raises(StopRun, match="already made"):
        call(payers, late)
    assert not late.requests
    assert charged(task) == (1, 100)


def test_the_deadline_is_asked_before_each_call() -> None:
    _, payers = under(TaskLimits(deadline=NOON + timedelta(seconds=1)))
    gateway = ScriptedGateway.playing(OK)
    call(payers, gateway)
    with pytest.raises(AllowanceRefused) as refused:
        call(payers, gateway, clock=TestClock(NOON + timedelta(seconds=1)))
    assert refused.value.dimension == "deadline"
