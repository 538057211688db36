"""May this model be asked this, over this wire? Pure, and before any IO (rows 82 to 96)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from providers.catalog import ModelProfile
from providers.errors import RequestRefused
from providers.messages import (
    AssistantMessage,
    ModelRequest,
    SystemMessage,
    Thinking,
    ThinkingMode,
    ToolMessage,
    UserMessage,
)
from providers.parts import check_history_size, check_modalities, check_parts

MODEL_NAME = re.compile(r"[A-Za-z0-9~][A-Za-z0-9._:/@~-]{0,199}")
TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
EFFORTS = ("low", "medium", "high")
ANTHROPIC_BUDGET_TOKENS_MIN = 1_024
GOOGLE_BUDGET_TOKENS_MIN = 1
ROUTING_PROVIDERS_MAX = 32
ROUTING_ID = re.compile(r"[A-Za-z0-9._/-]{1,64}")
_ROUTING_LISTS = frozenset({"order", "only", "ignore"})
_ROUTING_FLAGS = frozenset({"allow_fallbacks", "require_parameters"})


def check_request(request: ModelRequest, profile: ModelProfile, *, wire: str) -> None:
    """Raise `RequestRefused` with the first reason why this request cannot go out as it is."""
    if not MODEL_NAME.fullmatch(request.model):
        raise RequestRefused("invalid_model", "a model id has up to 200 letters, digits and ._:/@~-")
    if type(request.output_tokens_max) is not int or request.output_tokens_max < 1:
        raise RequestRefused("invalid_output_cap", "output_tokens_max is a whole number from 1")
    _check_history(request)
    _check_tools(request, profile, wire)
    if request.output_schema is not None:
        _need(profile, "native_output", "a schema for its answer")
    _check_thinking(request, profile, wire)
    for message in request.messages:
        if isinstance(message, UserMessage):
            check_parts(message.parts)
            check_modalities(message.parts, can=profile.can, pdf_wire=wire != "openai")
    check_history_size(request)


def output_cap(*caps: int | None) -> int:
    """The smallest of all caps that are set: never enlarged in silence (row 96)."""
    said = [cap for cap in caps if cap is not None]
    assert said, "at least one output cap is set"
    return min(said)


def final_tool_choice(profile: ModelProfile, tool: str) -> str:
    """How to ask for one tool on the last step: by force, or auto where the vendor refuses force (row 225).

    With auto the caller enforces it: any other tool's call is not executed.
    """
    return tool if "forced_tool" in profile.can else "auto"


def check_routing(routing: Mapping[str, object]) -> None:
    """OpenRouter's routing keys are a closed list (row 92, acceptance 7a)."""
    for key, value in routing.items():
        if key in _ROUTING_FLAGS:
            if not isinstance(value, bool):
                raise RequestRefused("unsupported_options", f"routing.{key} is true or false")
        elif key in _ROUTING_LISTS:
            if not isinstance(value, list) or not 1 <= len(value) <= ROUTING_PROVIDERS_MAX:
                raise RequestRefused(
                    "unsupported_options", f"routing.{key} lists 1 to {ROUTING_PROVIDERS_MAX} providers"
                )
            if not all(isinstance(one, str) and ROUTING_ID.fullmatch(one) for one in value):
                raise RequestRefused(
                    "unsupported_options", f"routing.{key} holds provider ids of 1 to 64 characters"
                )
        else:
            known = ", ".join(sorted(_ROUTING_LISTS | _ROUTING_FLAGS))
            raise RequestRefused("unsupported_options", f"routing.{key} is none of {known}")


def check_defaults(defaults: object) -> None:
    """Options that a provider would add by itself are refused; an empty mapping is none (row 89)."""
    if defaults not in (None, {}):
        raise RequestRefused("unsupported_options", "unsupported_options: provider_defaults")


def check_thinking_budget(budget: int | None, *, cap: int, wire: str) -> None:
    """A fixed budget lies under the output cap; Anthropic's is at least 1,024 (row 170)."""
    least = ANTHROPIC_BUDGET_TOKENS_MIN if wire == "anthropic" else GOOGLE_BUDGET_TOKENS_MIN
    if type(budget) is not int or not least <= budget < cap:
        raise RequestRefused(
            "unsupported_thinking", f"a thinking budget lies between {least:,} and the output cap {cap:,}"
        )


def _check_tools(request: ModelRequest, profile: ModelProfile, wire: str) -> None:
    names = [tool.name for tool in request.tools]
    for name in names:
        if not TOOL_NAME.fullmatch(name):
            raise RequestRefused("invalid_tool", f"{name[:64]!r} is no tool name")
    if len(set(names)) != len(names):
        raise RequestRefused("invalid_tool", "each tool has a name of its own")
    if names:
        _need(profile, "tools", "tools")
        if wire in ("openai", "openrouter") and request.thinking.mode is not ThinkingMode.OFF:
            # Profile "chat tools v1" (row 90): tools with reasoning off; others must be declared.
            _need(profile, "tools_with_reasoning", "tools together with reasoning on a chat wire")
    if request.tool_choice in ("auto", "none"):
        return
    if request.tool_choice not in names:
        raise RequestRefused(
            "invalid_tool_choice", f"{request.tool_choice!r} is none of this request's tools"
        )
    _need(profile, "forced_tool", "a forced tool choice")


def _check_thinking(request: ModelRequest, profile: ModelProfile, wire: str) -> None:
    thinking: Thinking = request.thinking
    match thinking.mode:
        case ThinkingMode.OFF:
            if profile.verified and "thinking_off" not in profile.can:
                raise RequestRefused(
                    "unsupported_thinking", f"{profile.name} cannot answer with thinking off"
                )
        case ThinkingMode.ADAPTIVE:
            _need(profile, "thinking_adaptive", "adaptive thinking")
        case ThinkingMode.BUDGET:
            _need(profile, "thinking_budget", "a thinking budget")
            check_thinking_budget(
                thinking.budget_tokens,
                cap=output_cap(request.output_tokens_max, profile.output_tokens),
                wire=wire,
            )
    if thinking.effort and thinking.effort not in (profile.efforts or EFFORTS):
        raise RequestRefused(
            "unsupported_thinking", f"effort is one of {', '.join(profile.efforts or EFFORTS)}"
        )


def _check_history(request: ModelRequest) -> None:
    """Every tool answer has its call and every call its answer; nothing is prefilled (row 82)."""
    if not any(isinstance(message, UserMessage | ToolMessage) for message in request.messages):
        raise RequestRefused("invalid_prompt", "a request needs a user message")
    open_calls: set[str] = set()
    for message in request.messages:
        match message:
            case AssistantMessage():
                if open_calls:
                    raise RequestRefused("malformed_history", "a tool call has no answer")
                open_calls = {call.id for call in message.tool_calls}
            case ToolMessage():
                if message.call_id not in open_calls:
                    raise RequestRefused("malformed_history", "a tool answer has no call")
                open_calls.discard(message.call_id)
            case SystemMessage() | UserMessage():
                pass
    if open_calls:
        raise RequestRefused("malformed_history", "a tool call has no answer")
    if isinstance(request.messages[-1], AssistantMessage):
        raise RequestRefused("malformed_history", "the newest message is not the model's own")


def _need(profile: ModelProfile, capability: str, what: str) -> None:
    if capability not in profile.can:
        known = profile.name if profile.verified else f"{profile.name} (not in the catalogue)"
        raise RequestRefused("unsupported", f"{known} is not known to take {what}")
