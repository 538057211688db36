"""The same scenario file plays over the scripted gateway and over real wires, with the same usage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from providers.errors import ProviderError
from providers.fake.server import FakeServer
from providers.gateway import Gateway
from providers.messages import ModelReply, ModelRequest, Thinking, ToolMessage
from providers.scenarios import read_entries
from providers.scripted import ScriptedGateway
from tests.providers.conftest import ADAPTIVE, DONE, EDIT, MODELS, MakeGateway, ask

SCRIPT: list[dict[str, Any]] = [
    {
        "when": {"role": "agent", "task": "T1"},
        "steps": [
            {
                "tools": [{"name": "edit_file", "arguments": {"path": "a.py"}}],
                "usage": {"input": 3000, "output": 50},
            },
            {"text": "Nearly.", "tools": [{"name": "edit_file", "arguments": {"path": "b.py"}}]},
            {"tools": [{"name": "complete_task", "arguments": {"intent": "done"}}], "usage": "unknown"},
        ],
    },
    {"when": {"role": "agent", "attempt": 2}, "steps": [{"fails": "rate_limited", "retry_after": 3}]},
    {"when": {"role": "planner"}, "steps": [{"json": {"tasks": []}}]},
]


def run(gateway: Gateway, request: ModelRequest) -> list[ModelReply]:
    """A small attempt: ask, answer each call, until the task is complete."""
    replies: list[ModelReply] = []
    for _ in range(5):
        reply = gateway.send(request, seconds_max=5)
        replies.append(reply)
        if any(call.name == "complete_task" for call in reply.tool_calls):
            break
        answers = tuple(ToolMessage(call.id, call.name, "ok") for call in reply.tool_calls)
        request = replace(request, messages=(*request.messages, reply.as_message(), *answers))
    return replies


@pytest.mark.parametrize("wire", ["anthropic", "openai", "openrouter", "google"])
@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "stream"])
def test_a_script_plays_over_a_wire_as_it_does_offline(
    wire: str, stream: bool, fake: FakeServer, gateway: MakeGateway
) -> None:
    entries = read_entries(SCRIPT, source="play.yaml")
    fake.provider.entries = entries
    thinking = ADAPTIVE if wire in ("anthropic", "google") else Thinking()
    request = ask(wire, tools=(EDIT, DONE), thinking=thinking, labels={"role": "agent", "task": "T1"})
    offline = run(ScriptedGateway(entries), request)
    online = run(gateway(wire, stream=stream, send_labels=True), request)
    assert [reply.text for reply in online] == [reply.text for reply in offline]
    for mine, theirs in zip(online, offline, strict=True):
        assert [(call.name, call.arguments) for call in mine.tool_calls] == [
            (call.name, call.arguments) for call in theirs.tool_calls
        ]
    usages = [reply.usage for reply in online]
    assert usages[0] is not None
    assert (usages[0].input, usages[0].output) == (3000, 50)
    assert usages[1] is not None
    assert usages[2] is None
    assert offline[1].usage is not None
    assert (usages[1].input, usages[1].output) == (offline[1].usage.input, offline[1].usage.output)
    assert len(fake.seen) == 3


def test_a_failing_step_fails_on_the_wire(fake: FakeServer, gateway: MakeGateway) -> None:
    fake.provider.entries = read_entries(SCRIPT, source="play.yaml")
    with pytest.raises(ProviderError) as caught:
        gateway("anthropic", send_labels=True).send(
            ask("anthropic", labels={"role": "agent", "attempt": "2"}), seconds_max=5
        )
    assert (caught.value.kind, caught.value.retry_after_seconds) == ("rate_limited", 3)


def test_a_request_that_no_entry_fits_is_told_so(fake: FakeServer, gateway: MakeGateway) -> None:
    fake.provider.entries = read_entries(SCRIPT, source="play.yaml")
    with pytest.raises(ProviderError, match="no scenario entry fits"):
        gateway("openai").send(ask("openai", labels={"role": "planner"}), seconds_max=5)


def test_labels_leave_for_this_machine_only(fake: FakeServer, gateway: MakeGateway) -> None:
    labels = {"role": "planner", "change": "Überfällig"}
    gateway("anthropic").send(ask("anthropic", labels=labels), seconds_max=5)
    gateway("anthropic", send_labels=True).send(ask("anthropic", labels=labels), seconds_max=5)
    assert ["x-remit-labels" in seen.headers for seen in fake.seen] == [False, True]
    assert MODELS["anthropic"] == fake.seen[0].body["model"]
