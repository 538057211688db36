"""Answers in the shapes of four wires: whole documents and stream events. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from providers.fake.play import Play
from providers.messages import StopKind, Usage

Json = dict[str, Any]
# Event name ("" for none) and data.
Event = tuple[str, Any]

_ANTHROPIC_STOPS = {StopKind.LENGTH: "max_tokens", StopKind.REFUSED: "refusal", StopKind.OTHER: "pause_turn"}
_OPENAI_STOPS = {StopKind.LENGTH: "length", StopKind.REFUSED: "content_filter", StopKind.OTHER: "other"}
_GOOGLE_STOPS = {StopKind.LENGTH: "MAX_TOKENS", StopKind.REFUSED: "SAFETY", StopKind.OTHER: "OTHER"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_GOOGLE_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
}


def signature(thinking: str) -> str:
    """What binds a thinking block: the fake provider knows its own blocks again by it."""
    return "SIG" + hashlib.sha256(thinking.encode()).hexdigest()[:24]


def whole(wire: str, play: Play, *, model: str, turn: int) -> Json:
    """The document of a buffered answer."""
    match wire:
        case "anthropic":
            return _anthropic(play, model, turn)
        case "google":
            return _google(play, model, turn)
        case _:
            return _openai(play, model, turn)


def events(wire: str, play: Play, *, model: str, turn: int) -> Iterator[Event]:
    """The events of a streamed answer; the last is the end marker."""
    document = whole(wire, play, model=model, turn=turn)
    match wire:
        case "anthropic":
            yield from _anthropic_events(document, play)
        case "google":
            yield from _google_events(document, play)
        case _:
            yield from _openai_events(document, play)


def refusal(wire: str, play: Play) -> Json:
    """An error body as this wire writes it."""
    if wire == "anthropic":
        kind = play.error_type or _ANTHROPIC_TYPES.get(play.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": play.message}, "request_id": "req_fake"}
    if wire == "google":
        word = play.error_type or _GOOGLE_WORDS.get(play.status, "INTERNAL")
        return {"error": {"code": play.status, "message": play.message, "status": word}}
    return {"error": {"message": play.message, "type": play.error_type or "server_error", "code": None}}


def _counts(play: Play, counts: Json) -> Json | None:
    match play.counts:
        case "absent":
            return None
        case "zero":
            return {key: 0 for key, value in counts.items() if isinstance(value, int)}
        case "text":
            return {key: str(value) for key, value in counts.items()}
        case _:
            return counts


def _anthropic(play: Play, model: str, turn: int) -> Json:
    content: list[Json] = []
    if play.thinking:
        content.append({"type": "thinking", "thinking": "", "signature": signature(play.thinking)})
    if play.step.text:
        content.append({"type": "text", "text": play.step.text})
    for number, call in enumerate(play.step.tools, start=1):
        content.append(
            {
                "type": "tool_use",
                "id": f"toolu_{turn}_{number}",
                "name": call.name,
                "input": _loose(call.arguments),
            }
        )
    stop = _ANTHROPIC_STOPS.get(play.step.stop or StopKind.END) or (
        "tool_use" if play.step.tools else "end_turn"
    )
    document: Json = {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": play.model or model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
    }
    counts = _counts(play, anthropic_counts(play.usage))
    return document if counts is None else document | {"usage": counts}


def anthropic_counts(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_uncached,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write_5m + usage.cache_write_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_5m,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "service_tier": "standard",
    }


def _anthropic_events(document: Json, play: Play) -> Iterator[Event]:
    start = {**document, "content": [], "stop_reason": None}
    if "usage" in document and not play.counts:
        start["usage"] = {**document["usage"], "output_tokens": 1}
    yield "message_start", {"type": "message_start", "message": start}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(document["content"]):
        yield from _block_events(index, block, play)
    delta: Json = {
        "type": "message_delta",
        "delta": {"stop_reason": document["stop_reason"], "stop_sequence": None},
    }
    if "usage" in document:
        delta["usage"] = (
            document["usage"] if play.counts else {"output_tokens": document["usage"]["output_tokens"]}
        )
    yield "message_delta", delta
    yield "message_stop", {"type": "message_stop"}


def _block_events(index: int, block: Json, play: Play) -> Iterator[Event]:
    opened = {**block}
    deltas: list[Json] = []
    match block["type"]:
        case "text":
            opened["text"] = ""
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], play)]
        case "thinking":
            opened |= {"thinking": "", "signature": ""}
            deltas = [{"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use":
            opened["input"] = {}
            call = next(
                call
                for call in play.step.tools
                if call.name == block["name"] and _loose(call.arguments) == block["input"]
            )
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in _pieces(call.arguments, play)
            ]
    yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": opened}
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _openai(play: Play, model: str, turn: int) -> Json:
    message: Json = {"role": "assistant", "content": play.step.text or None}
    if play.thinking:
        message["reasoning"] = "[hidden]"
        detail = {
            "type": "reasoning.text",
            "text": "[hidden]",
            "signature": signature(play.thinking),
            "index": 0,
        }
        message["reasoning_details"] = [detail]
    if play.step.tools:
        message["tool_calls"] = [
            {
                "id": f"call_{turn}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(play.step.tools, start=1)
        ]
    finish = _OPENAI_STOPS.get(play.step.stop or StopKind.END) or (
        "tool_calls" if play.step.tools else "stop"
    )
    document: Json = {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1760000000,
        "model": play.model or model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
    }
    counts = _counts(play, openai_counts(play.usage))
    return document if counts is None else document | {"usage": counts}


def openai_counts(usage: Usage) -> Json:
    written = usage.cache_write_5m + usage.cache_write_1h
    details = {"cached_tokens": usage.cache_read} | ({"cache_write_tokens": written} if written else {})
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
    }


def _openai_events(document: Json, play: Play) -> Iterator[Event]:
    head = {key: document[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    message = document["choices"][0]["message"]

    def chunk(delta: Json, finish: str | None = None) -> Event:
        return "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for key in ("reasoning", "reasoning_details"):
        if key in message:
            yield chunk({key: message[key]})
    for piece in _pieces(message["content"] or "", play):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        opened = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        yield chunk({"tool_calls": [opened]})
        for piece in _pieces(function["arguments"], play):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, document["choices"][0]["finish_reason"])
    if "usage" in document:
        yield "", head | {"choices": [], "usage": document["usage"]}
    yield "", "[DONE]"


def _google(play: Play, model: str, turn: int) -> Json:
    parts: list[Json] = []
    if play.thinking:
        parts.append({"text": "[hidden]", "thought": True})
    if play.step.text:
        parts.append({"text": play.step.text})
    for call in play.step.tools:
        parts.append({"functionCall": {"name": call.name, "args": _loose(call.arguments)}})
    if play.thinking and len(parts) > 1:
        parts[-1]["thoughtSignature"] = signature(play.thinking)
    finish = _GOOGLE_STOPS.get(play.step.stop or StopKind.END) or "STOP"
    document: Json = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}],
        "modelVersion": play.model or model,
        "responseId": f"g{turn}",
    }
    counts = _counts(play, google_counts(play.usage))
    return document if counts is None else document | {"usageMetadata": counts}


def google_counts(usage: Usage) -> Json:
    thoughts = usage.reasoning or 0
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": usage.cache_read,
        "totalTokenCount": usage.input + usage.output,
    }


def _google_events(document: Json, play: Play) -> Iterator[Event]:
    candidate = document["candidates"][0]
    head = {key: document[key] for key in ("modelVersion", "responseId")}
    for part in candidate["content"]["parts"]:
        pieces = [part]
        if "text" in part and "thought" not in part and "thoughtSignature" not in part:
            pieces = [{"text": piece} for piece in _pieces(part["text"], play)]
        for piece in pieces:
            yield "", head | {"candidates": [{"content": {"role": "model", "parts": [piece]}, "index": 0}]}
    last = {"content": {"role": "model", "parts": []}, "finishReason": candidate["finishReason"], "index": 0}
    counts = {"usageMetadata": document["usageMetadata"]} if "usageMetadata" in document else {}
    yield "", head | {"candidates": [last]} | counts


def _pieces(text: str, play: Play) -> list[str]:
    return [
        text[start : start + play.piece_characters] for start in range(0, len(text), play.piece_characters)
    ]


def _loose(arguments: str) -> Any:
    """A tool's arguments as an object; broken ones only exist in a stream."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {"broken": arguments}
