"""The four wires over real sockets, buffered and streamed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

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
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.messages import (
    AssistantMessage,
    CachePlan,
    FilePart,
    ImagePart,
    ImageUrlPart,
    ModelReply,
    ModelRequest,
    StopKind,
    SystemMessage,
    Thinking,
    ThinkingMode,
    ToolMessage,
    Usage,
    UserMessage,
)
from providers.scenarios import ScriptedCall, Step
from providers.wire import INVALID_ARGUMENTS, HttpGateway
from tests.providers.conftest import ADAPTIVE, DONE, EDIT, KEY, MODELS, WIRES, MakeGateway, ask

SECONDS = 10.0
both = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "stream"])
every_wire = pytest.mark.parametrize("wire", WIRES)
CALL = Step(
    text="I edit.",
    tools=(ScriptedCall("edit_file", '{"path": "a.py",  "n": 1.0, "big": 12345678901234567890}'),),
)


def send(gateway: HttpGateway, request: ModelRequest) -> ModelReply:
    return gateway.send(request, seconds_max=SECONDS)


def failure(gateway: HttpGateway, request: ModelRequest, seconds: float = SECONDS) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        gateway.send(request, seconds_max=seconds)
    return caught.value


def turn(wire: str) -> dict[str, Any]:
    """Thinking where the wire takes it beside tools."""
    return {"tools": (EDIT, DONE), "thinking": ADAPTIVE if wire in ("anthropic", "google") else Thinking()}


@every_wire
@both
def test_a_text_answer_with_its_usage(
    wire: str, stream: bool, fake: FakeServer, gateway: MakeGateway
) -> None:
    usage = Usage(input_uncached=100, cache_read=40, output=20)
    fake.push(Play(step=Step(text="Grüße, wörld \u2603"), usage=usage))
    reply = send(gateway(wire, stream=stream), ask(wire))
    assert (reply.text, reply.stop, reply.model) == ("Grüße, wörld \u2603", StopKind.END, MODELS[wire])
    assert reply.usage is not None
    assert (reply.usage.input_uncached, reply.usage.cache_read, reply.usage.output) == (100, 40, 20)
    assert reply.request_id == "req_fake"
    assert len(fake.seen) == 1


@every_wire
@both
def test_tool_calls_come_with_exact_arguments_and_the_same_route_replays_its_turn(
    wire: str, stream: bool, fake: FakeServer, gateway: MakeGateway
) -> None:
    """Rows 81, 121: the whole turn goes back as it came, thinking included; the fake refuses any other."""
    account = gateway(wire, stream=stream)
    fake.push(Play(step=CALL, thinking="deep thought"), Play(step=Step(text="done")))
    first = send(account, ask(wire, **turn(wire)))
    assert first.stop is StopKind.TOOL_CALL
    (call,) = first.tool_calls
    assert json.loads(call.arguments) == {"path": "a.py", "n": 1.0, "big": 12345678901234567890}
    if wire in ("openai", "openrouter") or (wire == "anthropic" and stream):
        assert call.arguments == CALL.tools[0].arguments
    again = send(account, ask(wire, first.as_message(), ToolMessage(call.id, call.name, "ok"), **turn(wire)))
    assert again.text == "done"
    body = json.dumps(fake.seen[-1].body)
    assert "SIG" in body
    assert first.native is not None
    assert json.loads(json.dumps(first.native.content)) == first.native.content


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("other", WIRES)
def test_another_route_gets_text_and_tool_calls_only(
    wire: str, other: str, fake: FakeServer, gateway: MakeGateway
) -> None:
    """Row 121: no reasoning, no signatures; the tool's arguments stay exact. Another model is another route."""
    fake.push(Play(step=CALL, thinking="deep thought"))
    first = send(gateway(wire), ask(wire, **turn(wire)))
    (call,) = first.tool_calls
    more = (first.as_message(), ToolMessage(call.id, call.name, "ok"))
    given = turn(other) | (
        {} if other != wire else {"model": "claude-opus-5-5" if wire == "anthropic" else "gpt-4.1"}
    )
    if other == wire == "google":
        return  # one Google model is in the catalogue
    send(gateway(other), ask(other, *more, **given))
    body = json.dumps(fake.seen[-1].body)
    assert "SIG" not in body
    assert "[hidden]" not in body
    assert "12345678901234567890" in body


@every_wire
@both
def test_broken_arguments_are_handed_over_as_they_are(
    wire: str, stream: bool, fake: FakeServer, gateway: MakeGateway
) -> None:
    """Never repaired: the loop answers with an error, and the history can still be sent."""
    if wire == "google" or (wire == "anthropic" and not stream):
        return  # these send arguments as an object
    account = gateway(wire, stream=stream)
    fake.push(Play(step=Step(tools=(ScriptedCall("edit_file", '{"path": "a'),))), Play())
    first = send(account, ask(wire, tools=(EDIT,)))
    assert first.tool_calls[0].arguments == '{"path": "a'
    send(
        account,
        ask(
            wire,
            first.as_message(),
            ToolMessage(first.tool_calls[0].id, "edit_file", "bad JSON", True),
            tools=(EDIT,),
        ),
    )
    body = json.dumps(fake.seen[-1].body)
    assert (INVALID_ARGUMENTS in body) is (wire == "anthropic")


@pytest.mark.parametrize("other", ["anthropic", "google"])
def test_foreign_broken_arguments_become_an_object(
    other: str, fake: FakeServer, gateway: MakeGateway
) -> None:
    fake.push(Play(step=Step(tools=(ScriptedCall("edit_file", "[1"),))))
    first = send(gateway("openai"), ask("openai", tools=(EDIT,)))
    send(
        gateway(other),
        ask(other, first.as_message(), ToolMessage(first.tool_calls[0].id, "edit_file", "no"), tools=(EDIT,)),
    )
    assert INVALID_ARGUMENTS in json.dumps(fake.seen[-1].body)


@every_wire
@both
@pytest.mark.parametrize(("counts"), ["absent", "zero", "text"])
def test_usage_that_nobody_can_read_is_unknown(
    wire: str, stream: bool, counts: str, fake: FakeServer, gateway: MakeGateway
) -> None:
    """Rows 134, 136: the answer is not lost, its cost is unknown."""
    fake.push(Play(counts=counts))
    reply = send(gateway(wire, stream=stream), ask(wire))
    assert reply.text == "hello"
    assert reply.usage is None


@every_wire
@both
@pytest.mark.parametrize(
    ("stop", "kind"), [(StopKind.LENGTH, StopKind.LENGTH), (StopKind.REFUSED, StopKind.REFUSED)]
)
def test_a_cut_or_refused_answer_says_so(
    wire: str, stream: bool, stop: StopKind, kind: StopKind, fake: FakeServer, gateway: MakeGateway
) -> None:
    fake.push(Play(step=Step(text="cut o", stop=stop)))
    assert send(gateway(wire, stream=stream), ask(wire)).stop is kind


@every_wire
@both
@pytest.mark.parametrize(
    ("play", "kind", "billed"),
    [
        (Play(fault="status", status=400), Rejected, False),
        (Play(fault="status", status=402), SpendLimited, False),
        (Play(fault="status", status=429, headers={"retry-after": "7"}), RateLimited, False),
        (Play(fault="status", status=500), Unavailable, False),
        (Play(fault="status", status=502), GatewayFailed, True),
        (Play(fault="status", status=529), Unavailable, False),
        (Play(fault="redirect"), Rejected, False),
        (Play(fault="html"), BadAnswer, True),
        (Play(fault="bad_json"), BadAnswer, True),
        (Play(fault="nested"), BadAnswer, True),
        (Play(fault="drop"), ConnectionLost, True),
    ],
    ids=lambda value: value.fault + str(value.status) if isinstance(value, Play) else "",
)
def test_every_failure_has_its_class_and_is_one_request(
    wire: str,
    stream: bool,
    play: Play,
    kind: type[ProviderError],
    billed: bool,
    fake: FakeServer,
    gateway: MakeGateway,
) -> None:
    """Rows 112, 118, 123: no retry, no redirect, no second request hidden anywhere."""
    fake.push(play)
    error = failure(gateway(wire, stream=stream), ask(wire))
    assert type(error) is kind
    assert error.may_be_billed is billed
    assert error.retry_after_seconds == (7 if play.headers else None)
    assert len(fake.seen) == 1


@every_wire
@pytest.mark.parametrize("fault", ["cut", "late_cut", "stream_error", "first_error"])
def test_a_stream_without_its_end_is_never_complete(
    wire: str, fault: str, fake: FakeServer, gateway: MakeGateway
) -> None:
    """C50, C62; row 164: counts that came before the break are kept beside the failure."""
    usage = Usage(input_uncached=100, output=20)
    fake.push(Play(step=Step(text="a long enough answer"), fault=fault, status=529, usage=usage))
    error = failure(gateway(wire, stream=True), ask(wire))
    assert isinstance(error, ConnectionLost if "cut" in fault else Unavailable)
    assert error.may_be_billed is (fault != "first_error")
    assert error.kind == "transient"
    late = fault == "late_cut" and wire != "google"  # Google's last event is its end
    assert (error.usage is not None) is late
    assert error.output_began is (fault != "first_error")


@every_wire
def test_a_dripping_server_is_cut_at_the_total(wire: str, fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 125: headers at once, then a byte now and then, for 30 s if nobody cuts it."""
    for stream in (False, True):
        fake.push(Play(fault="drip", seconds=30))
        began = time.monotonic()
        error = failure(gateway(wire, stream=stream), ask(wire), seconds=0.4)
        assert isinstance(error, TimedOut)
        assert 0.35 < time.monotonic() - began < 10


def test_a_silent_server_is_cut_at_the_receive_clock(fake: FakeServer, gateway: MakeGateway) -> None:
    """Rows 124, 127."""
    fake.push(Play(fault="hang", seconds=30))
    began = time.monotonic()
    assert isinstance(failure(gateway("anthropic", receive_seconds=0.3), ask("anthropic")), TimedOut)
    assert time.monotonic() - began < 10


def test_no_time_left_means_no_request(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 126."""
    error = failure(gateway("anthropic"), ask("anthropic"), seconds=0)
    assert isinstance(error, NotSent)
    assert "deadline_exceeded" in str(error)
    assert not fake.seen


def test_no_server_means_not_sent(
    fake: FakeServer, gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C64: before and after dispatch are told apart."""
    monkeypatch.setattr(fake, "port", 1)
    error = failure(gateway("anthropic"), ask("anthropic"))
    assert isinstance(error, NotSent)
    assert not error.may_be_billed


def test_an_answer_of_40_megabytes_is_refused(fake: FakeServer, gateway: MakeGateway) -> None:
    fake.push(Play(fault="huge"))
    error = failure(gateway("openai", stream=False), ask("openai"), seconds=30)
    assert isinstance(error, BadAnswer)
    assert "32,000,000" in str(error)


def test_one_connection_serves_many_calls(fake: FakeServer, gateway: MakeGateway) -> None:
    for wire in WIRES:
        for stream in (False, True):
            fake.reset()
            account = gateway(wire, stream=stream)
            for _ in range(3):
                send(account, ask(wire))
            assert len({seen.port for seen in fake.seen}) == 1, (wire, stream)


def test_a_wrong_key_is_rejected_and_in_no_error(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 4: the fake repeats the key that it got."""
    wrong = "sk-wrong-key-9876543210"
    error = failure(gateway("anthropic", key=wrong), ask("anthropic"))
    assert error.status == 401
    assert wrong not in str(error)
    assert wrong not in repr(error)


@pytest.mark.parametrize("wire", WIRES)
def test_what_a_model_cannot_take_is_refused_without_a_request(
    wire: str, fake: FakeServer, gateway: MakeGateway
) -> None:
    pdf = UserMessage((FilePart("JVBERg==", "application/pdf", "report.pdf"),))
    if wire == "openai":
        with pytest.raises(RequestRefused):
            send(gateway(wire), ask(wire, pdf))
        assert not fake.seen
        return
    send(gateway(wire), ask(wire, pdf))
    assert "JVBERg==" in json.dumps(fake.seen[0].body)


def test_images_take_each_wires_own_shape(fake: FakeServer, gateway: MakeGateway) -> None:
    image = ImagePart("AAAA", "image/png")
    inside = ImageUrlPart("data:image/png;base64,BBBB")
    for wire in WIRES:
        send(gateway(wire), ask(wire, UserMessage((image, inside))))
    anthropic, openai, openrouter, google = (seen.body for seen in fake.seen)
    blocks = anthropic["messages"][0]["content"][1:]
    assert [block["source"]["data"] for block in blocks] == ["AAAA", "BBBB"]
    for body in (openai, openrouter):
        urls = [part["image_url"]["url"] for part in body["messages"][-1]["content"]]
        assert urls == ["data:image/png;base64,AAAA", "data:image/png;base64,BBBB"]
    assert [part["inlineData"]["data"] for part in google["contents"][0]["parts"][1:]] == ["AAAA", "BBBB"]
    with pytest.raises(RequestRefused, match="as data only"):
        send(gateway("google"), ask("google", UserMessage((ImageUrlPart("https://x/y.png"),))))


def test_anthropic_sends_the_planes_settings(fake: FakeServer, gateway: MakeGateway) -> None:
    """Rows 75, 83, 107: three marks, adaptive thinking with its text omitted, headers."""
    account = gateway("anthropic", headers={"anthropic-workspace-id": "ws_1"})
    send(account, ask("anthropic", tools=(EDIT, DONE), thinking=ADAPTIVE, cache=CachePlan.AGENT))
    seen = fake.seen[0]
    assert seen.path == "/v1/messages"
    assert (seen.headers["x-api-key"], seen.headers["anthropic-workspace-id"]) == (KEY, "ws_1")
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.body["thinking"] == {"type": "adaptive", "display": "omitted"}
    assert seen.body["output_config"] == {"effort": "low"}
    assert seen.body["stream"] is True
    marked = [seen.body["system"][-1], seen.body["tools"][-1], seen.body["messages"][-1]["content"][-1]]
    assert all(block["cache_control"] == {"type": "ephemeral"} for block in marked)
    assert json.dumps(seen.body).count("cache_control") == 3
    assert "labels" not in json.dumps(seen.body)
    assert not [name for name in seen.headers if "label" in name]


def test_complete_marks_the_system_prompt_only_and_switches_thinking_off(
    fake: FakeServer, gateway: MakeGateway
) -> None:
    """Rows 75, 108."""
    send(gateway("anthropic"), ask("anthropic", cache=CachePlan.SYSTEM))
    body = fake.seen[0].body
    assert body["thinking"] == {"type": "disabled"}
    assert "cache_control" in body["system"][-1]
    assert json.dumps(body).count("cache_control") == 1


def test_openrouter_marks_the_last_system_and_the_newest_message(
    fake: FakeServer, gateway: MakeGateway
) -> None:
    """Row 104, acceptance 9a: system[1] and message[2], on the next turn message[4]."""
    talk: list[Any] = [SystemMessage("one"), SystemMessage("two"), UserMessage.of("a"), AssistantMessage("b")]
    talk.append(UserMessage.of("c"))
    for more in ((), (AssistantMessage("d"), UserMessage.of("e"))):
        fake.reset()
        request = ask("openrouter", messages=(*talk, *more), prompt_cache={"ttl": "1h"})
        send(gateway("openrouter"), request)
        messages = fake.seen[0].body["messages"]
        marked = [index for index, message in enumerate(messages) if "cache_control" in json.dumps(message)]
        assert marked == [1, len(messages) - 1]
        assert messages[1]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_openai_takes_a_stable_cache_key_and_one_output_cap(fake: FakeServer, gateway: MakeGateway) -> None:
    """Rows 93, 105."""
    send(gateway("openai"), ask("openai", prompt_cache={"key": "task:1"}))
    body = fake.seen[0].body
    assert body["prompt_cache_key"] == "task:1"
    assert [key for key in body if "max" in key] == ["max_tokens"]
    send(gateway("openai", output_cap_field="max_completion_tokens"), ask("openai"))
    assert "max_completion_tokens" in fake.seen[1].body


def test_openrouter_sends_its_routing_and_titles(fake: FakeServer, gateway: MakeGateway) -> None:
    """Rows 92, 93."""
    routing = {"only": ["anthropic"], "allow_fallbacks": False}
    profiles = {"x/y": {"can": ["thinking_off"], "efforts": ["none", "low"]}}
    account = gateway(
        "openrouter",
        routing=routing,
        app_title="Remit",
        app_referer="https://r",
        reasoning="none",
        profiles=profiles,
    )
    send(account, ask("openrouter", model="x/y"))
    seen = fake.seen[0]
    assert seen.body["provider"] == routing
    assert seen.body["reasoning"] == {"effort": "none"}
    assert (seen.headers["x-title"], seen.headers["http-referer"]) == ("Remit", "https://r")
    with pytest.raises(RequestRefused, match="reasoning switched off"):
        send(account, ask("openrouter"))


def test_the_final_step_keeps_tools_declared_and_not_callable(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 225."""
    for wire in WIRES:
        send(gateway(wire), ask(wire, UserMessage.of("last step"), tools=(EDIT, DONE), tool_choice="none"))
        send(gateway(wire), ask(wire, tools=(EDIT, DONE), tool_choice="complete_task"))
    choices = [
        seen.body.get("tool_choice") or seen.body["toolConfig"]["functionCallingConfig"] for seen in fake.seen
    ]
    named = {"type": "function", "function": {"name": "complete_task"}}
    assert choices == [
        {"type": "none"},
        {"type": "tool", "name": "complete_task"},
        "none",
        named,
        "none",
        named,
        {"mode": "NONE"},
        {"mode": "ANY", "allowedFunctionNames": ["complete_task"]},
    ]


def test_a_native_schema_goes_out_in_each_wires_words(fake: FakeServer, gateway: MakeGateway) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    for wire in WIRES:
        send(gateway(wire), ask(wire, output_schema=schema))
    anthropic, openai, _, google = (seen.body for seen in fake.seen)
    assert anthropic["output_config"]["format"] == {"type": "json_schema", "schema": schema}
    assert openai["response_format"]["json_schema"]["schema"] == schema
    assert google["generationConfig"]["responseJsonSchema"] == schema


def test_a_named_model_is_asked_under_its_own_name(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 86: an account says what it calls our models, and with which thinking."""
    account = gateway("openai", models={"claude-haiku-5-5": {"model": "gpt-4o-mini", "thinking": "off"}})
    ours = ask("openai", model="claude-haiku-5-5", thinking=ADAPTIVE, tools=(EDIT,))
    fitted = account.fit(ours)
    assert (fitted.model, fitted.thinking) == ("gpt-4o-mini", Thinking())
    send(account, fitted)
    assert account.fit(fitted) == fitted


def test_a_local_server_is_described_by_its_owner(fake: FakeServer, gateway: MakeGateway) -> None:
    """Rows 85, 86: any OpenAI-compatible server works by its base URL."""
    profile = {"can": ["tools", "thinking_off"], "input_tokens": 32_000, "output_tokens": 500}
    account = gateway("openai", key="", profiles={"qwen": profile})
    fake.provider.key = ""
    send(account, ask("openai", model="qwen", tools=(EDIT,)))
    seen = fake.seen[0]
    assert "authorization" not in seen.headers
    assert seen.body["max_tokens"] == 500
    assert "stream" not in seen.body


def test_another_routes_history_may_be_refused(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 94."""
    account = gateway("openrouter", foreign_history="reject")
    with pytest.raises(RequestRefused) as caught:
        send(account, ask("openrouter", AssistantMessage("hi"), UserMessage.of("on")))
    assert caught.value.code == "history_mismatch"
    assert not fake.seen


def test_google_budgets_and_efforts(fake: FakeServer, gateway: MakeGateway) -> None:
    for thinking in (Thinking(), ADAPTIVE, Thinking(ThinkingMode.BUDGET, budget_tokens=128)):
        send(gateway("google"), ask("google", thinking=thinking))
    budgets = [seen.body["generationConfig"]["thinkingConfig"]["thinkingBudget"] for seen in fake.seen]
    assert budgets == [0, 1_024, 128]


def test_hostile_text_goes_out_as_json(fake: FakeServer, gateway: MakeGateway) -> None:
    hostile = '\x00 \ud800 \u2028 \U0001f600 "}]} data: [DONE]\n\nevent: error'
    for wire in WIRES:
        fake.push(Play(step=Step(text="data: x\n\n\r\r\n: y")))
        reply = send(gateway(wire), ask(wire, UserMessage.of(hostile)))
        assert reply.text == "data: x\n\n\r\r\n: y"
        assert "\\ud800" in json.dumps(fake.seen[-1].body)


@every_wire
def test_answers_of_another_shape_are_bad_answers(wire: str, fake: FakeServer, gateway: MakeGateway) -> None:
    shapes: tuple[Any, ...] = (
        {},
        [],
        {"content": 5, "choices": 5, "candidates": 5},
        {"choices": []},
        {"choices": [{"message": None}]},
        {"content": [{"type": "text"}], "choices": [{"message": {"content": 5}, "finish_reason": 1}]},
        {"content": [5], "candidates": [5], "choices": [5]},
        {"content": [{"type": "tool_use", "id": 1, "name": 2, "input": 3}], "stop_reason": "x"},
    )
    for shape in shapes:
        fake.push(Play(fault="status", status=200, body=shape))
        assert isinstance(failure(gateway(wire, stream=False), ask(wire)), BadAnswer), shape


def test_an_error_in_a_200_is_an_error(fake: FakeServer, gateway: MakeGateway) -> None:
    """OpenRouter answers so."""
    for code, kind in ((402, SpendLimited), (429, RateLimited), (502, GatewayFailed)):
        fake.push(Play(fault="status", status=200, body={"error": {"code": code, "message": "x"}}))
        assert type(failure(gateway("openrouter", stream=False), ask("openrouter"))) is kind


def test_a_key_reaches_no_log(
    fake: FakeServer,
    gateway: MakeGateway,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Row 4, at the loudest level."""
    caplog.set_level("DEBUG")
    for wire in WIRES:
        send(gateway(wire), ask(wire))
        fake.push(Play(fault="drop"))
        error = failure(gateway(wire), ask(wire))
        chain: BaseException | None = error
        while chain is not None:
            assert KEY not in repr(chain)
            assert KEY not in str(chain)
            chain = chain.__cause__
    out = capsys.readouterr()
    assert KEY not in caplog.text + out.out + out.err
