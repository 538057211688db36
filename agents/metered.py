"""One physical call on the meters: caps, a hold on every meter or none, send, and an end of the hold in every case."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.db import DatabaseError

from agents.allowances import Place, place_for
from agents.clock import Clock
from agents.errors import CallFailed, StopRun
from agents.models import CallState, ModelCall
from agents.spec import HELD, Payers, Supervisor
from agents.tab import Tab
from budgets import rows
from budgets.decisions import Amount
from budgets.errors import KeyReused, LedgerError
from budgets.meters import at_period
from budgets.money import ZERO, Usd
from budgets.prices import Priced, cost_of, usage_data, worst_case
from budgets.reservations import AlreadyHeld, CallContext, Held, Refused, keep, refund, reserve, settle
from providers.catalog import price_card
from providers.errors import DeadlineExceeded, NotSent, ProviderError, RequestRefused, SpendLimited
from providers.gateway import Gateway
from providers.messages import ModelReply, ModelRequest, Usage
from providers.parts import request_characters
from routing.words import EndReason

# A longer wait is not slept by a worker: the run ends, and the Task is scheduled anew (C63).
RETRY_AFTER_SECONDS_MAX = 60.0
# So long after its call must have ended, the ledger's reaper takes a hold for an unknown charge.
HOLD_GRACE_SECONDS = 120

END_OF_KIND = {
    "transient": EndReason.TRANSIENT,
    "timeout": EndReason.TIMEOUT,
    "rate_limited": EndReason.RATE_LIMITED,
    "spend_limited": EndReason.SPEND_LIMITED,
    "bad_output": EndReason.BAD_OUTPUT,
    "bad_request": EndReason.BAD_REQUEST,
    "connector_not_found": EndReason.BAD_REQUEST,
}
# A timeout has used the time of its question already; the next attempt asks again (rows 57, 112).
ASKED_AGAIN = frozenset({"transient", "rate_limited"})
# No byte left: under an allowance the call's slot comes back (row 155).
NEVER_LEFT = (NotSent, RequestRefused)
_ALWAYS_CLOSED = ("state", "ended_at", "usage", "cost", "rates")
_FIXED_NOTES = {SpendLimited: "provider_spend_limit", DeadlineExceeded: "deadline_exceeded"}  # rows 114, 118


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A reply and its exact cost; None when nobody could read it: it stays held at its worst case."""

    reply: ModelReply
    cost: Usd | None
    invocation_id: UUID | None = None  # its record under a ModelTask, where it has one


def call_once(
    request: ModelRequest,
    payers: Payers,
    *,
    gateway: Gateway,
    tab: Tab,
    supervisor: Supervisor | None,
    clock: Clock,
    seconds_max: float,
) -> Answered:
    """`request` is as this account takes it: it is priced as that. Raises `StopRun`, or `CallFailed`.

    Payers under an allowance take a place there first; a meter that refuses afterwards gives it back (row 155).

    Whatever happens after the hold, it ends as settled, refunded or unknown; a crash at any line
    leaves it held until the ledger's reaper makes it unknown. Nothing is refunded once the
    request may have left, unless the provider's answer says that it was not billed.
    """
    if supervisor is not None:
        supervisor.beat()  # a worker that lost its lease sends nothing
    amount = worst_case(
        request_characters(request),
        request.output_tokens_max,
        request.model,
        clock.now().date(),
        own=gateway.price(request.model),
    )
    tab.admit(amount.usd)
    try:
        gateway.check(request)
    except RequestRefused as refused:
        raise CallFailed(EndReason.BAD_REQUEST, str(refused), again=False) from refused
    call = _call(f"{payers.key}:{tab.calls + 1}", amount, request, payers, clock)
    with place_for(call.key, request, payers, own=gateway.price(request.model), clock=clock) as place:
        lease_seconds = math.ceil(seconds_max) + HOLD_GRACE_SECONDS
        held = _hold(call, amount, request, payers, clock=clock, lease_seconds=lease_seconds)
        return _send(
            request,
            held,
            call,
            gateway=gateway,
            tab=tab,
            place=place,
            clock=clock,
            seconds_max=seconds_max,
        )


def _send(
    request: ModelRequest,
    held: Held,
    call: ModelCall,
    *,
    gateway: Gateway,
    tab: Tab,
    place: Place,
    clock: Clock,
    seconds_max: float,
) -> Answered:
    """The call itself, and the end of its hold. What its place under an allowance needs to end is noted on it."""
    try:
        tab.calls += 1
        place.sent = True
        reply = gateway.send(request, seconds_max=seconds_max)
    except ProviderError as error:
        priced = _priced(error.usage, request.model, request.model, gateway, clock)
        place.sent = not isinstance(error, NEVER_LEFT)
        place.usage, place.cost, place.status = error.usage, priced.cost if priced else None, error.status
        raise _failed(error, priced, held=held, call=call, tab=tab, clock=clock) from error
    except BaseException:
        _interrupted(held, sent=place.sent)
        raise
    priced = _priced(reply.usage, reply.model, request.model, gateway, clock)
    place.usage, place.cost = reply.usage, priced.cost if priced else None
    closed = _closing(
        call, CallState.ANSWERED, reply.usage, priced, clock, stop=str(reply.stop), **_ids_of(reply)
    )
    _settle(held, reply.usage, priced, closed)
    tab.book(priced.cost if priced else None, at_worst=call.held)
    return Answered(reply=reply, cost=priced.cost if priced else None, invocation_id=place.invocation_id)


def _hold(
    call: ModelCall,
    amount: Amount,
    request: ModelRequest,
    payers: Payers,
    *,
    clock: Clock,
    lease_seconds: int,
) -> Held:
    """On every meter, and the row of the call with it."""
    try:
        held = reserve(
            key=call.key,
            # A run may outlive a day or a month: each call is held in the period in which it is made.
            meters=at_period(payers.meters, now=clock.now()),
            amount=amount,
            context=_context(request, payers),
            owner=payers.key,
            lease_seconds=lease_seconds,
            beside=partial(rows.insert, call),
        )
    except KeyReused as error:
        raise _made_before() from error
    match held:
        case Held():
            return held
        case Refused():
            raise StopRun(
                EndReason(held.stop),
                HELD if held.waits else "",
                refusals=tuple(refusal.as_data() for refusal in held.refusals),
            )
        case AlreadyHeld():
            raise _made_before()


def _made_before() -> StopRun:
    """The key names one call of one run: another worker is making it, or made it. It is never made twice."""
    return StopRun(EndReason.WORKER_LOST, "this call was already made by another worker")


def _context(request: ModelRequest, payers: Payers) -> CallContext:
    return CallContext(
        organization_id=payers.organization_id,
        project_id=payers.project_id,
        user_id=payers.user_id,
        change_id=payers.change_id,
        task_id=payers.task_id,
        run_id=payers.run_id,
        purpose=payers.purpose,
        tier=payers.tier,
        model=request.model,
        connector=payers.connector,
    )


def _call(key: str, amount: Amount, request: ModelRequest, payers: Payers, clock: Clock) -> ModelCall:
    return ModelCall(
        organization_id=payers.organization_id,
        project_id=payers.project_id,
        change_id=payers.change_id,
        task_id=payers.task_id,
        run_id=payers.run_id,
        key=key,
        purpose=payers.purpose,
        tier=payers.tier,
        connector=payers.connector,
        model=request.model,
        held=amount.usd,
        started_at=clock.now(),
    )


def _priced(
    usage: Usage | None, answered_by: str, asked_for: str, gateway: Gateway, clock: Clock
) -> Priced | None:
    """The exact cost, at the price of the model that answered, or of the one asked for when no list has its name.

    What the account itself says of either wins over the lists, also where it lacks a rate (row 138). Not of a name
    under which a listed model answered: the price of that one is the operator's to state.
    """
    if usage is None:
        return None
    today = clock.now().date()
    own = gateway.price(asked_for)
    if own is not None or price_card(asked_for, today) is None:
        own = gateway.price(answered_by) or own
    if own is not None:
        return cost_of(usage, answered_by, today, own=own)
    return cost_of(usage, answered_by, today) or cost_of(usage, asked_for, today)


def _settle(held: Held, usage: Usage | None, priced: Priced | None, closed: Callable[[], None]) -> None:
    """To the exact cost; without one, the ledger keeps the worst case and whatever usage there is."""
    settle(
        held.reservation_id,
        cost=priced.cost if priced else None,
        usage=usage,
        rates=priced.rates if priced else None,
        beside=closed,
    )


def _failed(
    error: ProviderError, priced: Priced | None, *, held: Held, call: ModelCall, tab: Tab, clock: Clock
) -> CallFailed:
    """Ends the hold by what the error says of the bill (rows 123, 134), and names the end of the run."""
    refunded = error.usage is None and not error.may_be_billed
    cost = ZERO if refunded else priced.cost if priced else None
    closed = _closing(
        call,
        CallState.FAILED,
        error.usage,
        priced,
        clock,
        cost=cost,
        error=error.kind,
        status=error.status,
        request_id=error.request_id,
    )
    if error.usage is not None:
        _settle(held, error.usage, priced, closed)
    elif refunded:
        refund(held.reservation_id, reason=error.kind, beside=closed)
    else:
        keep(held.reservation_id, reason=error.kind, beside=closed)
    if not refunded:
        tab.book(cost, at_worst=call.held)
    return end_of(error)


def end_of(error: ProviderError) -> CallFailed:
    after = error.retry_after_seconds
    status = f" with status {error.status}" if error.status else ""
    note = _FIXED_NOTES.get(type(error)) or f"{type(error).__name__}{status}"
    return CallFailed(
        END_OF_KIND[error.kind],
        note,
        again=(
            error.kind in ASKED_AGAIN
            and not error.output_began  # part of an answer came, and is paid (row 115)
            and (after or 0.0) <= RETRY_AFTER_SECONDS_MAX
        ),
        retry_after_seconds=after,
    )


def _interrupted(held: Held, *, sent: bool) -> None:
    """The process is being ended, or a bug: say what is known of the money, and let it go on.

    When even that fails, the hold stays until the reaper finds it.
    """
    with contextlib.suppress(DatabaseError, LedgerError):
        if sent:
            keep(held.reservation_id, reason="interrupted")
        else:
            refund(held.reservation_id, reason="not_sent")


def _closing(
    call: ModelCall,
    state: CallState,
    usage: Usage | None,
    priced: Priced | None,
    clock: Clock,
    **columns: object,
) -> Callable[[], None]:
    """The end of the call's row, to be written with the end of its hold."""
    call.state = state
    call.ended_at = clock.now()
    call.usage = usage_data(usage) if usage else None
    call.cost = priced.cost if priced else None
    call.rates = priced.rates if priced else None
    for name, value in columns.items():
        setattr(call, name, value)
    return partial(rows.update, call, (*_ALWAYS_CLOSED, *(name for name in columns if name != "cost")))


def _ids_of(reply: ModelReply) -> dict[str, str]:
    return {"request_id": reply.request_id[:200], "response_id": reply.response_id[:200]}
