"""The scripted gateway: stateless, chosen by labels, clear about what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from providers.errors import BadAnswer, ProviderError, RateLimited, RequestRefused, TimedOut
from providers.messages import AssistantMessage, Message, ModelRequest, StopKind, SystemMessage, UserMessage
from providers.scenarios import FAILURES, ScenarioError, load_scenarios, read_entries
from providers.scripted import ScriptedGateway


def ask(turns: int = 0, model: str = "claude-haiku-5-5", **labels: str) -> ModelRequest:
    talk: list[Message] = [SystemMessage("You write code."), UserMessage.of("Go")]
    for turn in range(turns):
        talk += [AssistantMessage(f"turn {turn}"), UserMessage.of("on")]
    return ModelRequest(model=model, messages=tuple(talk), output_tokens_max=100, labels=labels)


def said(gateway: ScriptedGateway, request: ModelRequest) -> str:
    return gateway.send(request, seconds_max=5).text


def test_the_step_is_the_number_of_assistant_turns_so_a_second_process_plays_on() -> None:
    steps: list[dict[str, Any]] = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    first, second = ScriptedGateway.playing(*steps), ScriptedGateway.playing(*steps)
    assert said(first, ask(0)) == "one"
    assert said(second, ask(1)) == "two"
    assert said(second, ask(1)) == "two"
    assert said(first, ask(2)) == "three"
    assert [len(one.requests) for one in (first, second)] == [2, 2]


def test_the_most_specific_entry_plays_and_of_equals_the_first() -> None:
    entries = read_entries(
        [
            {"steps": [{"text": "anything"}]},
            {"when": {"role": "agent"}, "steps": [{"text": "an agent"}]},
            {"when": {"role": "agent", "attempt": 2}, "steps": [{"text": "second attempt"}]},
            {"when": {"role": "agent", "attempt": [2, 3]}, "steps": [{"text": "too late in the file"}]},
            {"when": {"change": "Add *", "task": "T1", "tier": "haiku"}, "steps": [{"text": "T1"}]},
        ],
        source="x.yaml",
    )
    gateway = ScriptedGateway(entries)
    assert said(gateway, ask(role="planner")) == "anything"
    assert said(gateway, ask(role="agent", attempt="1")) == "an agent"
    assert said(gateway, ask(role="agent", attempt="2")) == "second attempt"
    assert said(gateway, ask(role="agent", attempt="3")) == "too late in the file"
    assert said(gateway, ask(role="agent", change="Add a greeting", task="T1", tier="haiku")) == "T1"


def test_usage_is_computed_explicit_or_unknown() -> None:
    gateway = ScriptedGateway.playing(
        {"text": "12345"},
        {"text": "x", "usage": {"input": 7, "output": 3, "cache_read": 2}},
        {"text": "x", "usage": "unknown"},
    )
    computed = gateway.send(ask(0), seconds_max=5).usage
    assert computed is not None
    assert (computed.input, computed.output) == (-(-len("You write code." + "Go") // 4), 2)
    explicit = gateway.send(ask(1), seconds_max=5).usage
    assert explicit is not None
    assert (explicit.input, explicit.cache_read) == (9, 2)
    assert gateway.send(ask(2), seconds_max=5).usage is None


def test_tool_calls_keep_their_exact_arguments() -> None:
    reply = ScriptedGateway.playing(
        {
            "tools": [
                {"name": "read_file", "arguments": {"path": "a b.py"}},
                {"name": "broken", "arguments": "{no json"},
            ]
        }
    ).send(ask(), seconds_max=5)
    assert reply.stop is StopKind.TOOL_CALL
    assert [call.arguments for call in reply.tool_calls] == ['{"path": "a b.py"}', "{no json"]
    assert len({call.id for call in reply.tool_calls}) == 2


@pytest.mark.parametrize("word", FAILURES)
def test_every_failure_class_can_be_played(word: str) -> None:
    gateway = ScriptedGateway.playing({"fails": word, "retry_after": 3})
    for _ in range(2):
        with pytest.raises(ProviderError) as caught:
            gateway.send(ask(), seconds_max=5)
        assert caught.value.retry_after_seconds == 3
    if word in ("rate_limited", "timeout", "transient", "spend_limited", "bad_output", "bad_request"):
        assert caught.value.kind == word


def test_a_failure_may_end_with_a_later_try_of_the_same_question() -> None:
    gateway = ScriptedGateway.playing({"fails": "rate_limited", "times": 2, "text": "at last"})
    for number in ("1", "2"):
        with pytest.raises(RateLimited):
            said(gateway, replace(ask(), labels={"try": number}))
    assert said(gateway, replace(ask(), labels={"try": "3"})) == "at last"


def test_a_paid_failure_carries_its_usage() -> None:
    with pytest.raises(BadAnswer) as caught:
        said(ScriptedGateway.playing({"fails": "bad_output", "usage": {"input": 5, "output": 1}}), ask())
    assert caught.value.usage is not None
    assert caught.value.may_be_billed


def test_a_pause_longer_than_the_call_may_take_is_a_timeout() -> None:
    with pytest.raises(TimedOut):
        ScriptedGateway.playing({"text": "late", "seconds": 5}).send(ask(), seconds_max=0.01)


def test_json_answers_and_stops() -> None:
    gateway = ScriptedGateway.playing(
        {"json": {"ok": True}}, {"text": "cut", "stop": "length"}, {"stop": "refused"}
    )
    assert json.loads(said(gateway, ask(0))) == {"ok": True}
    assert gateway.send(ask(1), seconds_max=1).stop is StopKind.LENGTH
    assert gateway.send(ask(2), seconds_max=1).stop is StopKind.REFUSED


def test_a_request_that_no_entry_fits_or_that_outlives_its_script_is_refused_by_name() -> None:
    entries = read_entries(
        [{"name": "greeting", "when": {"role": "agent"}, "steps": [{"text": "x"}]}], source="g.yaml"
    )
    gateway = ScriptedGateway(entries)
    with pytest.raises(RequestRefused, match="role=planner") as no_entry:
        gateway.check(ask(role="planner"))
    assert no_entry.value.code == "no_scenario"
    with pytest.raises(RequestRefused, match=r"g\.yaml, greeting: has 1 steps, asked for step 2") as ended:
        gateway.check(ask(1, role="agent"))
    assert ended.value.code == "script_ended"


def test_a_repeating_entry_never_ends() -> None:
    entries = read_entries([{"repeat": True, "steps": [{"text": "a"}, {"text": "b"}]}], source="r.yaml")
    assert [said(ScriptedGateway(entries), ask(turn)) for turn in range(5)] == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("[]", "x.yaml, scenarios: give a list"),
        ("scenarios: {}", "x.yaml, scenarios: give a list"),
        ("other: 1", "x.yaml: unknown key 'other'"),
        ("scenarios: [3]", "x.yaml, entry 1: an entry is a mapping"),
        ("scenarios: [{steps: []}]", "x.yaml, entry 1, steps: give a list"),
        ("scenarios: [{steps: {a: 1}}]", "x.yaml, entry 1, steps: give a list"),
        (
            "scenarios: [{name: n, when: {tsak: T1}, steps: [{text: x}]}]",
            "x.yaml, n, when: unknown key 'tsak'",
        ),
        ("scenarios: [{name: n, steps: [{txt: x}]}]", "x.yaml, n, steps[0]: unknown key 'txt'"),
        ("scenarios: [{name: n, steps: [{}]}]", "x.yaml, n, steps[0]: a step needs"),
        (
            "scenarios: [{name: n, steps: [{fails: always}]}]",
            "x.yaml, n, steps[0].fails: 'always' is none of",
        ),
        (
            "scenarios: [{name: n, steps: [{text: x, usage: {input: -1, output: 0}}]}]",
            "x.yaml, n, steps[0].usage",
        ),
        ("scenarios: [{name: n, steps: [{text: x, usage: lots}]}]", "x.yaml, n, steps[0].usage"),
        ("scenarios: [{name: n, steps: [{text: x, stop: soon}]}]", "x.yaml, n, steps[0].stop"),
        ("scenarios: [{name: n, steps: [{text: x, seconds: -1}]}]", "x.yaml, n, steps[0].seconds"),
        ("scenarios: [{name: n, steps: [{text: x, times: 1}]}]", "x.yaml, n, steps[0].times"),
        ("scenarios: [{name: n, steps: [{text: {a: 1}}]}]", "x.yaml, n, steps[0].text"),
        ("scenarios: [{name: n, steps: [{tools: {name: x}}]}]", "x.yaml, n, steps[0].tools"),
        ("scenarios: [{name: n, steps: [{tools: [{nam: x}]}]}]", "x.yaml, n, steps[0].tools[0]"),
        (
            "scenarios: [{name: n, steps: [{tools: [{name: x, arguments: [1]}]}]}]",
            "steps[0].tools[0].arguments",
        ),
        ("scenarios: [{name: n, steps: [{fails: [timeout]}]}]", "x.yaml, n, steps[0].fails"),
        ("scenarios: [{name: n, steps: [{text: x, stop: [length]}]}]", "x.yaml, n, steps[0].stop"),
        ("scenarios: [{name: n, steps: [{text: x, usage: {input: [], output: {}}}]}]", "steps[0].usage"),
        ("scenarios: [{name: n, steps: [{json: {day: 2026-11-30}}]}]", "x.yaml, n, steps[0].json: cannot be"),
        ("scenarios: [{name: n, steps: [{json: {part: .nan}}]}]", "x.yaml, n, steps[0].json: cannot be"),
        (
            "scenarios: [{name: n, steps: [{tools: [{name: x, arguments: {day: 2026-11-30}}]}]}]",
            "steps[0].tools[0].arguments: cannot be",
        ),
        (
            "scenarios: [{name: n, name: m, steps: [{text: x}]}]",
            "x.yaml: not readable as YAML: the key 'name'",
        ),
        ("scenarios: " + "[" * 5_000 + "]" * 5_000, "x.yaml: not readable as YAML: it nests too deeply"),
        ("scenarios: [", "x.yaml: not readable as YAML"),
    ],
)
def test_a_file_that_does_not_fit_says_where(document: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(document)
    with pytest.raises(ScenarioError) as caught:
        load_scenarios(path)
    assert words in str(caught.value)


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(f"scenarios: [{{steps: [{{text: from {name}}}]}}]")
    assert said(ScriptedGateway(load_scenarios(tmp_path)), ask()) == "from a"
    with pytest.raises(ScenarioError, match="no scenario file"):
        load_scenarios(tmp_path / "nothing.yaml")
