"""A Gateway that plays a script: the demo, tests and offline runs.

It keeps no state between calls: the step to play is the number of assistant turns in
the request. A crash, a second process or a repeated job changes nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

from providers.catalog import PriceCard
from providers.errors import (
    BadAnswer,
    ConnectionLost,
    GatewayFailed,
    NotSent,
    ProviderError,
    RateLimited,
    Rejected,
    RequestRefused,
    SpendLimited,
    TimedOut,
    Unavailable,
)
from providers.messages import AssistantMessage, ModelReply, ModelRequest, StopKind, ToolCall, Usage
from providers.parts import request_characters
from providers.scenarios import FAILURES, Entry, Step, choose, read_step

CHARACTERS_PER_TOKEN = 4
REQUESTS_KEPT_MAX = 1_000
_ERROR_OF: dict[str, type[ProviderError]] = {
    "rate_limited": RateLimited,
    "timeout": TimedOut,
    "transient": Unavailable,
    "spend_limited": SpendLimited,
    "bad_output": BadAnswer,
    "bad_request": Rejected,
    "gateway_failed": GatewayFailed,
    "connection_lost": ConnectionLost,
    "not_sent": NotSent,
}
assert set(_ERROR_OF) == set(FAILURES)


class ScriptedGateway:
    """Plays scenario entries. `requests` keeps what it was asked, for tests."""

    def __init__(self, entries: Sequence[Entry], *, account: str = "scripted") -> None:
        self._entries = tuple(entries)
        self._account = account
        self.requests: deque[ModelRequest] = deque(maxlen=REQUESTS_KEPT_MAX)

    @classmethod
    def playing(cls, *steps: Mapping[str, object], account: str = "scripted") -> ScriptedGateway:
        """One conversation for every request: each step as in a scenario file."""
        read = tuple(read_step(step, field_name=f"steps[{index}]") for index, step in enumerate(steps))
        return cls([Entry(source="inline", name="inline", steps=read)], account=account)

    @property
    def account(self) -> str:
        return self._account

    def fit(self, request: ModelRequest) -> ModelRequest:
        return request

    def price(self, model: str) -> PriceCard | None:  # noqa: ARG002  # a script costs what its models do
        return None

    def check(self, request: ModelRequest) -> None:
        self._step(request)

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        step = self._step(request)
        self.requests.append(request)
        if step.seconds > seconds_max:
            time.sleep(max(0.0, seconds_max))
            raise TimedOut(f"no answer within {seconds_max:g} s")
        time.sleep(step.seconds)
        if step.fails and _try_of(request) <= (step.times or _try_of(request)):
            message = step.message or f"the script says: {step.fails}"
            raise _ERROR_OF[step.fails](
                message, retry_after_seconds=step.retry_after_seconds, usage=step.usage
            )
        return _reply(step, request)

    def _step(self, request: ModelRequest) -> Step:
        entry = choose(self._entries, {**request.labels, "model": request.model})
        if entry is None:
            said = ", ".join(f"{key}={value}" for key, value in sorted(request.labels.items()))
            raise RequestRefused("no_scenario", f"no scenario entry fits the request ({said})")
        index = _turns(request)
        step = entry.step(index)
        if step is None:
            place = f"{entry.source}, {entry.name}"
            raise RequestRefused(
                "script_ended", f"{place}: has {len(entry.steps)} steps, asked for step {index + 1}"
            )
        return step


def _turns(request: ModelRequest) -> int:
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def _try_of(request: ModelRequest) -> int:
    """Which physical try of the same question this is: the label `try`, from 1."""
    said = request.labels.get("try", "1")
    return int(said) if said.isdecimal() else 1


def _reply(step: Step, request: ModelRequest) -> ModelReply:
    turn = _turns(request) + 1
    calls = tuple(
        ToolCall(f"call_{turn}_{number}", tool.name, tool.arguments)
        for number, tool in enumerate(step.tools, start=1)
    )
    stop = step.stop or (StopKind.TOOL_CALL if calls else StopKind.END)
    usage = (step.usage or _counted(step, request)) if step.usage_known else None
    return ModelReply(
        text=step.text,
        stop=stop,
        usage=usage,
        model=request.model,
        tool_calls=calls,
        response_id=f"scripted_{turn}",
    )


def _counted(step: Step, request: ModelRequest) -> Usage:
    said = len(step.text) + sum(len(tool.name) + len(tool.arguments) for tool in step.tools)
    return Usage(input_uncached=_tokens(request_characters(request)), output=_tokens(said))


def _tokens(characters: int) -> int:
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))
