"""call_model: the one metered door. Every model call of the product passes here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agents.clock import WALL, Clock, wait
from agents.errors import CallFailed, StopRun
from agents.metered import END_OF_KIND, Answered, call_once, end_of
from agents.spec import CALL_SECONDS_MAX, Noted, Payers, Supervisor
from agents.tab import Tab
from budgets.keys import MeterKey, MeterKind
from providers.connectors import connector_for, line_for
from providers.errors import ProviderError
from providers.fallback import FallbackGateway, FellBack, Happening, Retried, Target, Unfit
from providers.gateway import Gateway
from providers.messages import ModelReply, ModelRequest

__all__ = ["Answered", "Tell", "account_for", "call_model", "gateway_for", "tries_of"]

Tell = Callable[[Noted], None]


def call_model(
    request: ModelRequest,
    payers: Payers,
    *,
    gateway: Gateway,
    tab: Tab,
    supervisor: Supervisor | None = None,
    clock: Clock = WALL,
    seconds_max: float = CALL_SECONDS_MAX,
    tell: Tell = lambda _: None,
    latest: Callable[[], ModelRequest] | None = None,
) -> Answered:
    """One question: one physical call, or the tries of a connector's plan. Raises `StopRun`, or `CallFailed`.

    Each physical call passes `metered.call_once`: caps, a hold on every meter or none, send, settle. The
    run's own deadline bounds all of them and the waits between (rows 114, 126). `tell` hears of retries and
    switches; `latest` gives the request of a later try, which may be the run's last call.
    """
    if supervisor is not None:
        seconds_max = min(seconds_max, supervisor.seconds_left())
    if isinstance(gateway, FallbackGateway):
        questions = (lambda _: latest()) if latest is not None else (lambda given: given)
        line = replace(
            gateway,
            latest=questions,
            tell=lambda event: tell(_noted(event, payers, tab)),
            sleep=partial(wait, clock=clock, supervisor=supervisor),
            clock=clock.seconds,
        )
        return _along(
            line, request, payers, tab=tab, supervisor=supervisor, clock=clock, seconds_max=seconds_max
        )
    # Under the name that this account has for the model: it is priced as that.
    return call_once(
        gateway.fit(request),
        payers,
        gateway=gateway,
        tab=tab,
        supervisor=supervisor,
        clock=clock,
        seconds_max=seconds_max,
    )


def gateway_for(payers: Payers) -> Gateway:
    """The account that these payers' calls go to, with whoever stands in for it.

    Raises `StopRun` when there is none, before any IO (row 3).
    """
    try:
        return line_for(payers.organization_id, payers.connector)
    except ProviderError as error:
        raise _no_account(error) from error


def account_for(payers: Payers) -> Gateway:
    """That account alone, for whoever wants to know whether it answers. Raises `StopRun` when there is none."""
    try:
        return connector_for(payers.organization_id, payers.connector)
    except ProviderError as error:
        raise _no_account(error) from error


def tries_of(gateway: Gateway) -> int:
    """The physical calls that one question may become there."""
    return gateway.tries_max if isinstance(gateway, FallbackGateway) else 1


def _no_account(error: ProviderError) -> StopRun:
    return StopRun(END_OF_KIND[error.kind], f"{error.kind}: {error}")


def _along(
    line: FallbackGateway,
    request: ModelRequest,
    payers: Payers,
    *,
    tab: Tab,
    supervisor: Supervisor | None,
    clock: Clock,
    seconds_max: float,
) -> Answered:
    """Each try with a hold of its own, paid by the account that is asked. What is refused or cancelled ends all."""
    answered: list[Answered] = []

    def metered(target: Target, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        try:
            one = call_once(
                request,
                _paying(payers, target.connector),
                gateway=target.gateway,
                tab=tab,
                supervisor=supervisor,
                clock=clock,
                seconds_max=seconds_max,
            )
        except CallFailed as failed:
            if tab.calls_left == 0 or not isinstance(failed.__cause__, ProviderError):
                raise  # no call is left for another try: this failure is the run's end
            raise failed.__cause__ from None
        answered.append(one)
        return one.reply

    try:
        replace(line, attempt=metered).send(request, seconds_max=seconds_max)
    except ProviderError as error:
        # The plan has tried what it may: nobody asks once more beside it.
        failed = end_of(error)
        failed.again = False
        raise failed from error
    return answered[-1]


def _paying(payers: Payers, connector: str) -> Payers:
    """The same payers with another account: its own meter counts instead of the first one's."""
    if connector == payers.connector:
        return payers

    def at(key: MeterKey) -> MeterKey:
        return replace(key, subject=connector) if key.kind is MeterKind.PROVIDER else key

    return replace(payers, connector=connector, meters=tuple(at(key) for key in payers.meters))


def _noted(event: Happening, payers: Payers, tab: Tab) -> Noted:
    """For the domain's events (row 119): the number of the failed call, names and fixed words."""
    match event:
        case Retried():
            data = {
                "call": tab.calls,
                "connector": event.connector,
                "model": event.model,
                "because": event.kind,
                "wait_seconds": round(event.wait_seconds, 1),
            }
            return Noted("model.retry", f"{payers.key}:retry:{tab.calls}", data)
        case FellBack():
            data = {
                "call": tab.calls,
                "from": event.from_connector,
                "to": event.to_connector,
                "from_model": event.from_model,
                "to_model": event.to_model,
                "because": event.kind,
            }
            return Noted("model.fallback", f"{payers.key}:fallback:{tab.calls}", data)
        case Unfit():
            data = {"call": tab.calls, "to": event.connector, "because": event.code}
            return Noted("model.fallback.unfit", f"{payers.key}:unfit:{tab.calls}", data)
