"""A call's place under its ModelTask: taken before the hold, settled or given back at its end (rows 149 to 156)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from agents.clock import Clock
from agents.errors import AllowanceRefused, StopRun
from agents.spec import Payers, UnderModelTask
from budgets.errors import ConflictingReport, PlanRefused
from budgets.model_tasks import (
    Admitted,
    CallPlan,
    Exhausted,
    PriceBound,
    admit,
    refund_attempt,
    settle_attempt,
)
from budgets.money import Usd
from providers.catalog import PriceCard, profile_of
from providers.messages import ModelRequest, Usage
from routing.words import EndReason
from tenants.apart import apart


@dataclass(slots=True, kw_only=True)
class Place:
    """What is known of the call when it ends. `invocation_id` is None for a call without an allowance."""

    invocation_id: UUID | None = None
    sent: bool = False  # from then on the call's slot is spent, whatever comes
    usage: Usage | None = None
    cost: Usd | None = None
    status: int | None = None


@contextmanager
def place_for(
    key: str, request: ModelRequest, payers: Payers, *, own: PriceCard | None, clock: Clock
) -> Iterator[Place]:
    """Raises `AllowanceRefused` where there is no room. However the block ends, the place ends with it.

    What was never sent comes back whole; what was sent without readable usage stays charged at its worst case.
    A crash leaves it admitted until a sweep makes it unknown.
    """
    place = Place()
    if payers.allowance is not None:
        plan = _plan(request, payers.allowance, own, clock)
        place.invocation_id = _admitted(key, plan, payers, payers.allowance, clock)
    try:
        yield place
    finally:
        # The answer is there, or an error is on its way: neither may get lost over a record.
        with apart("end_of_place", key=key):
            _end(place, clock)


def _plan(request: ModelRequest, under: UnderModelTask, own: PriceCard | None, clock: Clock) -> CallPlan:
    """The whole window of the model, not the estimate of the prompt (row 150)."""
    capacity = profile_of(request.model).input_tokens or under.input_capacity
    return CallPlan(
        model=request.model,
        input_capacity=capacity or 0,  # 0 is refused: nobody knows how much it takes
        output_tokens_max=request.output_tokens_max,
        price_bound=_bound(own),
        pricing_overrides=own is not None,  # no list stands in for a rate that it lacks (row 138)
        priced_on=clock.now().date(),
    )


def _bound(own: PriceCard | None) -> PriceBound | None:
    """The dearest rates of an account's own price; None: the list's, or unknown (row 157)."""
    if own is None:
        return None
    rates: tuple[Decimal | None, Decimal | None] = (own.highest_input(), own.highest().output)
    return None if rates[0] is None or rates[1] is None else PriceBound(rates[0], rates[1])


def _admitted(key: str, plan: CallPlan, payers: Payers, under: UnderModelTask, clock: Clock) -> UUID:
    try:
        found = admit(
            under.model_task_id,
            plan,
            key=key,
            purpose=payers.purpose,
            phase=under.phase,
            # The tries of one phase are one question; a repair is another (rows 160, 161).
            logical=f"{payers.key}:{under.phase}",
            parent=under.parent,
            connector=payers.connector,
            now=clock.now(),
        )
    except PlanRefused as refused:
        raise AllowanceRefused(refused.code, str(refused)) from refused
    except ConflictingReport as known:  # never made twice, as on the meters
        raise StopRun(EndReason.WORKER_LOST, "this call was already made by another worker") from known
    match found:
        case Admitted():
            return found.invocation_id
        case Exhausted():
            note = f"the allowance refuses this call: {found.dimension}"
            raise AllowanceRefused(found.dimension, note, at_least=found.at_least)


def _end(place: Place, clock: Clock) -> None:
    if place.invocation_id is None:
        return
    if place.sent:
        settle_attempt(
            place.invocation_id,
            usage=place.usage,
            cost=place.cost,
            http_status=place.status,
            now=clock.now(),
        )
    else:
        refund_attempt(place.invocation_id, now=clock.now())
