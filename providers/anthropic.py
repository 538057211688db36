"""Anthropic Messages: POST /v1/messages (row 83)."""

from __future__ import annotations

import json
from typing import Any, assert_never

from providers.caching import Marks, marks_for
from providers.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    ImageUrlPart,
    ModelReply,
    ModelRequest,
    Part,
    StopKind,
    SystemMessage,
    TextPart,
    ThinkingMode,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from providers.parts import data_url
from providers.statuses import stream_error
from providers.usage import anthropic_usage
from providers.wire import (
    INVALID_ARGUMENTS,
    Fold,
    HttpGateway,
    Json,
    arguments_object,
    decode,
    past_arguments,
    text_of,
)

VERSION = "2023-06-01"
_STOPS = {
    "end_turn": StopKind.END,
    "stop_sequence": StopKind.END,
    "tool_use": StopKind.TOOL_CALL,
    "max_tokens": StopKind.LENGTH,
    "model_context_window_exceeded": StopKind.LENGTH,
    "refusal": StopKind.REFUSED,
}


class AnthropicGateway(HttpGateway):
    """An Anthropic account, or a server that speaks its wire."""

    wire = "anthropic"
    default_url = "https://api.anthropic.com"

    def authorization(self) -> dict[str, str]:
        version = {} if "anthropic-version" in self._account.headers else {"anthropic-version": VERSION}
        return version | ({"x-api-key": self._account.key} if self._account.key else {})

    def ask(self, request: ModelRequest, *, stream: bool) -> tuple[str, Json]:
        marks = marks_for(request, self.wire)
        body: Json = {
            "model": request.model,
            "max_tokens": self.output_cap(request),
            "messages": self._messages(request),
        }
        if marks.newest:
            _mark_last(body["messages"][-1]["content"], marks)
        system = [_text(message.text) for message in request.messages if isinstance(message, SystemMessage)]
        if system:
            body["system"] = _mark_last(system, marks) if marks.system else system
        if request.tools:
            tools = [_tool(tool.name, tool.description, dict(tool.schema)) for tool in request.tools]
            body["tools"] = _mark_last(tools, marks) if marks.tools else tools
            body["tool_choice"] = _tool_choice(request.tool_choice)
        body |= self._thinking(request)
        return "/v1/messages", body | ({"stream": True} if stream else {})

    def usage(self, document: Json, request: ModelRequest) -> Usage | None:  # noqa: ARG002 - others need it
        return anthropic_usage(document.get("usage"))

    def read(self, document: Json, request: ModelRequest) -> ModelReply:
        text, calls = "", []
        exact: dict[int, str] = document.get(_EXACT, {})
        for index, block in enumerate(document["content"]):
            if block["type"] == "text":
                text += text_of(block["text"])
            elif block["type"] == "tool_use":
                arguments = exact.get(index) or json.dumps(block["input"], ensure_ascii=False)
                calls.append(ToolCall(text_of(block["id"]), text_of(block["name"]), arguments))
        return ModelReply(
            text=text,
            stop=_STOPS.get(document["stop_reason"], StopKind.OTHER),
            usage=None,
            model=text_of(document.get("model", request.model)),
            tool_calls=tuple(calls),
            native=self.native(request, document["content"]),
            response_id=text_of(document.get("id", "")),
        )

    def fold(self) -> Fold:
        return _MessageFold(self._account.key)

    def _messages(self, request: ModelRequest) -> list[Json]:
        """The talk: neighbouring user and tool turns are one, as this wire wants them to take turns."""
        messages: list[Json] = []
        for message in request.messages:
            match message:
                case SystemMessage():
                    continue
                case UserMessage():
                    role, blocks = "user", [_block(part) for part in message.parts]
                case ToolMessage():
                    role, blocks = "user", [_tool_result(message)]
                case AssistantMessage():
                    role, blocks = "assistant", self._turn(message, request.model)
                case unknown:
                    assert_never(unknown)
            if not blocks:
                continue
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
        return messages

    def _turn(self, message: AssistantMessage, model: str) -> list[Json]:
        native = self.native_of(message, model)
        if native is not None:
            # An empty text block may come back, but may not be sent.
            return [block for block in native if block.get("type") != "text" or block.get("text")]
        blocks = [_text(message.text)] if message.text.strip() else []
        return blocks + [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": past_arguments(call.arguments)}
            for call in message.tool_calls
        ]

    def _thinking(self, request: ModelRequest) -> Json:
        output: Json = {}
        body: Json = {}
        match request.thinking.mode:
            case ThinkingMode.OFF:
                if "thinking_off" in self.profile(request).can:
                    body["thinking"] = {"type": "disabled"}
            case ThinkingMode.ADAPTIVE:
                body["thinking"] = {"type": "adaptive", "display": "omitted"}
            case ThinkingMode.BUDGET:
                body["thinking"] = {"type": "enabled", "budget_tokens": request.thinking.budget_tokens}
        if request.thinking.effort:
            output["effort"] = request.thinking.effort
        if request.output_schema is not None:
            output["format"] = {"type": "json_schema", "schema": dict(request.output_schema)}
        return body | ({"output_config": output} if output else {})


# Under this key a folded stream keeps each tool's argument text exactly as it came, by block index.
_EXACT = "exact_arguments"


class _MessageFold(Fold):
    """message_start, content blocks with their deltas, message_delta, message_stop."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._message: Json = {}
        self._pieces: dict[int, list[str]] = {}
        self._exact: dict[int, str] = {}
        self._counted = self._stopped = False

    def take(self, data: str) -> bool:
        event = decode(data)
        match event.get("type"):
            case "message_start":
                self.begun = True
                self._message = {**event["message"], "content": []}
            case "content_block_start":
                self._open_block(event["index"], event["content_block"])
            case "content_block_delta":
                self._grow(event["index"], event["delta"])
            case "content_block_stop":
                self._close_block(event["index"])
            case "message_delta":
                self._message |= {key: value for key, value in event["delta"].items() if value is not None}
                if isinstance(event.get("usage"), dict):
                    first = self._message.get("usage")
                    self._message["usage"] = {**(first if isinstance(first, dict) else {}), **event["usage"]}
                    self._counted = True
            case "message_stop":
                self._stopped = True
            case "error":
                raise stream_error(event, begun=self.begun, secret=self._secret)
        return self._stopped

    def document(self) -> Json | None:
        if not self._stopped or self._message.get("stop_reason") is None:
            return None
        if not self._counted:
            self._message.pop("usage", None)  # the count at the start is a guess: unknown, not small
        return {**self._message, _EXACT: self._exact}

    def terminal_counts(self) -> object:
        return self._message.get("usage") if self._counted else None

    def _open_block(self, index: int, block: Json) -> None:
        if index != len(self._message["content"]):
            raise ValueError("blocks come in order")
        self._message["content"].append(dict(block))
        self._pieces[index] = []

    def _grow(self, index: int, delta: Json) -> None:
        block = self._message["content"][index]
        match delta.get("type"):
            case "text_delta":
                block["text"] += delta["text"]
            case "input_json_delta":
                self._pieces[index].append(text_of(delta["partial_json"]))
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]

    def _close_block(self, index: int) -> None:
        block = self._message["content"][index]
        pieces = "".join(self._pieces[index])
        if block["type"] == "tool_use" and pieces:
            self._exact[index] = pieces
            block["input"] = arguments_object(pieces)


def _block(part: Part) -> Json:
    match part:
        case TextPart():
            return _text(part.text)
        case ImageUrlPart():
            inside = data_url(part.url)
            if inside is None:
                return {"type": "image", "source": {"type": "url", "url": part.url}}
            return {"type": "image", "source": _source(inside[1], inside[0])}
        case ImagePart():
            return {"type": "image", "source": _source(part.data, part.media_type)}
        case FilePart():
            title = {"title": part.filename} if part.filename else {}
            return {"type": "document", "source": _source(part.data, part.media_type), **title}
        case unknown:
            assert_never(unknown)


def _source(data: str, media_type: str) -> Json:
    return {"type": "base64", "media_type": media_type, "data": data}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _tool(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "description": description, "input_schema": schema}


def _tool_choice(choice: str) -> Json:
    return {"type": choice} if choice in ("auto", "none") else {"type": "tool", "name": choice}


def _tool_result(message: ToolMessage) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}
    return result | ({"is_error": True} if message.is_error else {})


def _mark_last(blocks: list[Any], marks: Marks) -> list[Any]:
    """The same blocks, the last one marked; in place, so that the blocks before stay shared."""
    # Five minutes is the wire's own default and is not said.
    ttl = {} if marks.ttl == "5m" else {"ttl": marks.ttl}
    blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral", **ttl}}
    return blocks


assert INVALID_ARGUMENTS != _EXACT
