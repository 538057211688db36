"""What the fake provider refuses, as the real ones do: keys, shapes, unanswered calls, foreign thinking."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
CACHE_MARKS_MAX = 4
NO_FORCED_TOOL = ("claude-sonnet-5-5", "claude-opus-5-5")


def why_refused(wire: str, body: Json, *, signatures: set[str]) -> str:
    """The words of a 400; "" when the request is well formed."""
    match wire:
        case "anthropic":
            return _anthropic(body, signatures)
        case "google":
            return _google(body, signatures)
        case _:
            return _openai(body)


def turns_of(wire: str, body: Json) -> int:
    """How many turns of the model the request carries: which step of a scenario comes next."""
    if wire == "google":
        return sum(content.get("role") == "model" for content in body.get("contents", ()))
    return sum(message.get("role") == "assistant" for message in body.get("messages", ()))


def _anthropic(body: Json, signatures: set[str]) -> str:
    if type(body.get("max_tokens")) is not int or not body.get("messages"):
        return "max_tokens and messages are needed"
    if body["messages"][0]["role"] != "user" or body["messages"][-1]["role"] != "user":
        return "the first and the last message are the user's"
    if str(body).count("'cache_control'") > CACHE_MARKS_MAX:
        return f"at most {CACHE_MARKS_MAX} blocks with cache_control"
    if body.get("tool_choice", {}).get("type") == "tool" and body["model"].startswith(NO_FORCED_TOOL):
        return "this model takes no forced tool choice"
    open_calls: set[str] = set()
    role = ""
    for message in body["messages"]:
        if message["role"] == role:
            return "roles take turns"
        role = message["role"]
        for block in message["content"]:
            problem = _anthropic_block(block, open_calls, signatures)
            if problem:
                return problem
        if role == "user" and open_calls:
            return "tool_use without its tool_result"
    return ""


def _anthropic_block(block: Json, open_calls: set[str], signatures: set[str]) -> str:
    match block["type"]:
        case "text" if not block["text"].strip():
            return "text content blocks must contain non-whitespace text"
        case "tool_use":
            if not isinstance(block["input"], dict):
                return "tool_use.input is an object"
            open_calls.add(block["id"])
        case "tool_result":
            if block["tool_use_id"] not in open_calls:
                return "tool_result without its tool_use"
            open_calls.discard(block["tool_use_id"])
        case "thinking" if block["signature"] not in signatures:
            return "Invalid `signature` in `thinking` block"
    return ""


def _openai(body: Json) -> str:
    caps = [key for key in ("max_tokens", "max_completion_tokens") if key in body]
    if len(caps) != 1 or not body.get("messages"):
        return "one output cap and messages are needed"
    open_calls: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return "a tool message without its call"
            open_calls.discard(message["tool_call_id"])
        elif open_calls:
            return "a tool call without its answer"
        open_calls |= {call["id"] for call in message.get("tool_calls") or ()}
    return "a tool call without its answer" if open_calls else ""


def _google(body: Json, signatures: set[str]) -> str:
    if not body.get("contents"):
        return "contents are needed"
    role = ""
    for content in body["contents"]:
        if content["role"] == role:
            return "roles take turns"
        role = content["role"]
        if not content["parts"]:
            return "a content needs parts"
        for part in content["parts"]:
            known = part.get("thoughtSignature")
            if known is not None and known.startswith("SIG") and known not in signatures:
                return "Thought signature is not valid"
    return ""
