"""What a model may be asked over a wire, decided before any IO."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from providers.account import read_options
from providers.caching import Marks, check_option, marks_for
from providers.catalog import profile_of
from providers.errors import RequestRefused
from providers.messages import (
    AssistantMessage,
    CachePlan,
    ModelRequest,
    Thinking,
    ThinkingMode,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from providers.profiles import check_request, check_routing, final_tool_choice, output_cap
from tests.providers.conftest import ADAPTIVE, EDIT, MODELS, ask


def refusal(request: ModelRequest, wire: str = "anthropic") -> str:
    with pytest.raises(RequestRefused) as caught:
        check_request(request, profile_of(request.model), wire=wire)
    return caught.value.code


def test_the_tiers_settings_are_accepted() -> None:
    """Rows 75 to 77."""
    for model, effort in (
        ("claude-haiku-5-5", "low"),
        ("claude-sonnet-5-5", "medium"),
        ("claude-opus-5-5", "high"),
    ):
        request = ask(
            "anthropic", model=model, tools=(EDIT,), thinking=Thinking(ThinkingMode.ADAPTIVE, effort)
        )
        check_request(request, profile_of(model), wire="anthropic")
    check_request(ask("anthropic"), profile_of("claude-haiku-5-5"), wire="anthropic")


@pytest.mark.parametrize(
    "given",
    [
        {"model": "claude-sonnet-5-5", "thinking": ADAPTIVE, "tools": (EDIT,), "tool_choice": "edit_file"},
        {"model": "claude-opus-5-5", "tools": (EDIT,), "tool_choice": "edit_file"},
    ],
)
def test_a_forced_tool_is_refused_where_the_vendor_refuses_it(given: dict[str, Any]) -> None:
    """Rows 82, 225: the last step is then asked with auto and enforced by the caller."""
    assert refusal(ask("anthropic", **given)) == "unsupported"
    assert final_tool_choice(profile_of(given["model"]), "complete_task") == "auto"
    assert final_tool_choice(profile_of("claude-haiku-5-5"), "complete_task") == "complete_task"


def test_sonnet_takes_no_budget_and_cannot_stop_thinking() -> None:
    """Row 82."""
    for thinking in (Thinking(), Thinking(ThinkingMode.BUDGET, budget_tokens=2_000)):
        code = refusal(
            ask("anthropic", model="claude-sonnet-5-5", thinking=thinking, output_tokens_max=8_000)
        )
        assert code in ("unsupported", "unsupported_thinking")


@pytest.mark.parametrize(
    ("budget", "fits"), [(1_023, False), (1_024, True), (3_999, True), (4_000, False), (None, False)]
)
def test_a_fixed_budget_lies_between_1024_and_the_output_cap(budget: int | None, fits: bool) -> None:
    """Row 170."""
    request = ask(
        "anthropic", thinking=Thinking(ThinkingMode.BUDGET, budget_tokens=budget), output_tokens_max=4_000
    )
    if fits:
        check_request(request, profile_of(request.model), wire="anthropic")
    else:
        assert refusal(request) == "unsupported_thinking"
    google = ask("google", thinking=Thinking(ThinkingMode.BUDGET, budget_tokens=128))
    check_request(google, profile_of(google.model), wire="google")


def test_an_unverified_model_takes_a_plain_question_only() -> None:
    """Rows 84, 85."""
    plain = ask("openai", model="somebody-elses-model")
    check_request(plain, profile_of(plain.model), wire="openai")
    assert refusal(replace(plain, tools=(EDIT,)), "openai") == "unsupported"
    assert refusal(replace(plain, output_schema={"type": "object"}), "openai") == "unsupported"


def test_chat_tools_go_with_reasoning_off() -> None:
    """Row 90."""
    request = ask("openrouter", tools=(EDIT,), thinking=ADAPTIVE)
    assert refusal(request, "openrouter") == "unsupported"
    check_request(replace(request, thinking=Thinking()), profile_of(request.model), wire="openrouter")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"model": "a b"}, "invalid_model"),
        ({"model": "x\nhost: y"}, "invalid_model"),
        ({"output_tokens_max": 0}, "invalid_output_cap"),
        ({"messages": ()}, "invalid_prompt"),
        ({"messages": (UserMessage(()),)}, "invalid_prompt"),
        ({"tools": (EDIT, EDIT)}, "invalid_tool"),
        ({"tools": (replace(EDIT, name="a b"),)}, "invalid_tool"),
        ({"tools": (EDIT,), "tool_choice": "other"}, "invalid_tool_choice"),
        ({"thinking": Thinking(ThinkingMode.ADAPTIVE, "enormous")}, "unsupported_thinking"),
    ],
)
def test_a_request_that_does_not_fit_names_its_code(given: dict[str, Any], code: str) -> None:
    assert refusal(ask("anthropic", **given)) == code


def test_history_is_whole() -> None:
    call = AssistantMessage("", (ToolCall("c1", "edit_file", "{}"),))
    answer = ToolMessage("c1", "edit_file", "ok")
    check_request(
        ask("anthropic", call, answer, tools=(EDIT,)), profile_of(MODELS["anthropic"]), wire="anthropic"
    )
    for talk in (
        (call,),
        (answer,),
        (call, UserMessage.of("x"), AssistantMessage("y")),
        (AssistantMessage("prefill"),),
    ):
        assert refusal(ask("anthropic", *talk, tools=(EDIT,))) == "malformed_history"


def test_the_smallest_cap_counts() -> None:
    """Row 96."""
    assert output_cap(16_000, None, 8_000) == 8_000


def test_routing_lists_hold_1_to_32_providers() -> None:
    """Row 92, acceptance 7a."""
    check_routing({"only": [f"p{number}" for number in range(32)], "allow_fallbacks": False})
    refused: tuple[dict[str, object], ...] = (
        {"only": [f"p{number}" for number in range(33)]},
        {"only": []},
        {"sort": "price"},
        {"order": "anthropic"},
        {"order": [""]},
        {"order": ["x" * 65]},
        {"allow_fallbacks": "no"},
    )
    for bad in refused:
        with pytest.raises(RequestRefused) as caught:
            check_routing(bad)
        assert caught.value.code == "unsupported_options"


def test_defaults_of_the_provider_are_refused() -> None:
    """Row 89, acceptance 7b."""
    read_options({"defaults": {}})
    with pytest.raises(RequestRefused, match="unsupported_options: provider_defaults"):
        read_options({"defaults": {"temperature": 0}})


@pytest.mark.parametrize(
    ("wire", "option", "fits"),
    [
        ("openrouter", {"ttl": "5m"}, True),
        ("openrouter", {"ttl": "1h"}, True),
        ("openrouter", {"ttl": "2h"}, False),
        ("openrouter", {"key": "k"}, False),
        ("openrouter", {"ttl": "5m", "key": "k"}, False),
        ("openai", {"key": "k"}, True),
        ("openai", {"key": ""}, False),
        ("openai", {"ttl": "5m"}, False),
        ("anthropic", {"ttl": "5m"}, False),
        ("google", {"ttl": "5m"}, False),
    ],
)
def test_prompt_cache_is_a_closed_option(wire: str, option: dict[str, str], fits: bool) -> None:
    """Rows 104 to 106."""
    request = ask(wire, prompt_cache=option)
    if fits:
        check_option(request, wire)
        return
    with pytest.raises(RequestRefused) as caught:
        check_option(request, wire)
    assert caught.value.code == "unsupported_prompt_cache"


def test_the_planes_own_marks() -> None:
    """Rows 107 to 109."""
    assert marks_for(ask("anthropic", cache=CachePlan.AGENT), "anthropic") == Marks(
        system=True, tools=True, newest=True
    )
    assert marks_for(ask("anthropic", cache=CachePlan.SYSTEM), "anthropic") == Marks(system=True)
    assert not marks_for(ask("anthropic"), "anthropic").any
    assert not marks_for(ask("openai", cache=CachePlan.AGENT), "openai").any


def test_no_mark_on_the_newest_message_of_a_google_route() -> None:
    request = ask("openrouter", model="google/gemini-2.5-flash", prompt_cache={"ttl": "5m"})
    assert marks_for(request, "openrouter") == Marks(system=True)
