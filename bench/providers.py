"""Processor time of one call: our adapter against raw httpx, to the same fake provider, in the same run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from statistics import median

import httpx

from bench.measured import Measured
from providers.account import Account, read_options
from providers.anthropic import AnthropicGateway
from providers.fake.server import FakeServer
from providers.messages import (
    AssistantMessage,
    CachePlan,
    Message,
    ModelRequest,
    SystemMessage,
    Thinking,
    ThinkingMode,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

CALLS = 100
ROUNDS = 5
TURNS = 12
RESULT_CHARACTERS = 3_000


def measure() -> Iterable[Measured]:
    """A talk of 12 tool turns and 8 tools, about 45 kB, as the loop sends it late in a run."""
    request = _late_request()
    with FakeServer() as fake:
        for name, stream in (("buffered", False), ("streamed", True)):
            account = Account(
                name="bench",
                base_url=fake.url("anthropic"),
                key="k",
                options=read_options({"stream": stream}),
            )
            gateway = AnthropicGateway(account)
            body = json.dumps(gateway.ask(request, stream=stream)[1]).encode()
            with httpx.Client(timeout=60) as client:

                def raw(client: httpx.Client = client, body: bytes = body) -> None:
                    client.post(
                        fake.url("anthropic") + "/v1/messages", content=body, headers={"x-api-key": "k"}
                    ).read()

                def ours(gateway: AnthropicGateway = gateway) -> None:
                    gateway.send(request, seconds_max=60)

                yield _in_turns(f"one {name} call, processor time of its thread", ours, raw)


def _in_turns(what: str, ours: Callable[[], None], theirs: Callable[[], None]) -> Measured:
    mine, other = [], []
    for _ in range(ROUNDS):
        mine.append(_processor_seconds(ours))
        other.append(_processor_seconds(theirs))
    a, b = median(mine), median(other)
    return Measured(
        what=what,
        ours=f"{a * 1000:.2f} ms",
        theirs=f"{b * 1000:.2f} ms raw httpx",
        ratio=a / b,
        aim="at most 3",
    )


def _processor_seconds(act: Callable[[], None]) -> float:
    """Of this thread alone: the fake provider runs in another."""
    started = time.thread_time()
    for _ in range(CALLS):
        act()
    return (time.thread_time() - started) / CALLS


def _late_request() -> ModelRequest:
    talk: list[Message] = [SystemMessage("You write code. " * 60), UserMessage.of("The packet. " * 300)]
    for turn in range(TURNS):
        call = ToolCall(f"toolu_{turn}", "read_file", json.dumps({"path": f"src/module_{turn}.py"}))
        talk += [
            AssistantMessage("I read on.", (call,)),
            ToolMessage(call.id, call.name, "x = 1\n" * (RESULT_CHARACTERS // 6)),
        ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = tuple(
        ToolSpec(name, f"The tool {name}.", schema)
        for name in ("read_file", *(f"tool_{n}" for n in range(7)))
    )
    return ModelRequest(
        model="claude-haiku-5-5",
        messages=tuple(talk),
        output_tokens_max=8_000,
        tools=tools,
        thinking=Thinking(ThinkingMode.ADAPTIVE, "low"),
        cache=CachePlan.AGENT,
    )
