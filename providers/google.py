"""Google GenerateContent: POST /v1beta/models/{model}:generateContent."""

from __future__ import annotations

import json
from typing import Any, assert_never

from providers.errors import RequestRefused
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
from providers.usage import google_usage
from providers.wire import Fold, HttpGateway, Json, decode, past_arguments, text_of

# Gemini rejects a foreign turn's first unsigned call; this is the documented value that passes.
FOREIGN_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
_STOPS = {
    "STOP": StopKind.END,
    "MAX_TOKENS": StopKind.LENGTH,
    "CONTINUATION": StopKind.LENGTH,  # more would come for a second request, which nobody admitted
    "SAFETY": StopKind.REFUSED,
    "RECITATION": StopKind.REFUSED,
    "BLOCKLIST": StopKind.REFUSED,
    "PROHIBITED_CONTENT": StopKind.REFUSED,
    "SPII": StopKind.REFUSED,
}
_BUDGET_OF_EFFORT = {"low": 1_024, "medium": 8_192, "high": 24_576}


class GoogleGateway(HttpGateway):
    """A Google AI account."""

    wire = "google"
    default_url = "https://generativelanguage.googleapis.com"
    counts_key = "usageMetadata"

    def check(self, request: ModelRequest) -> None:
        super().check(request)
        for message in request.messages:
            for index, part in enumerate(message.parts if isinstance(message, UserMessage) else ()):
                if isinstance(part, ImageUrlPart) and data_url(part.url) is None:
                    raise RequestRefused(
                        "unsupported_input", f"part {index}: Google takes images as data only"
                    )

    def authorization(self) -> dict[str, str]:
        return {"x-goog-api-key": self._account.key} if self._account.key else {}

    def ask(self, request: ModelRequest, *, stream: bool) -> tuple[str, Json]:
        settings: Json = {"maxOutputTokens": self.output_cap(request)} | self._thinking(request)
        if request.output_schema is not None:
            settings |= {
                "responseMimeType": "application/json",
                "responseJsonSchema": dict(request.output_schema),
            }
        body: Json = {"contents": self._contents(request), "generationConfig": settings}
        system = [
            {"text": message.text} for message in request.messages if isinstance(message, SystemMessage)
        ]
        if system:
            body["systemInstruction"] = {"parts": system}
        if request.tools:
            declared = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": dict(tool.schema),
                }
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
            body["toolConfig"] = {"functionCallingConfig": _calling(request.tool_choice)}
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{request.model}:{method}", body

    def usage(self, document: Json, request: ModelRequest) -> Usage | None:  # noqa: ARG002 - others need it
        return google_usage(document.get("usageMetadata"), candidates=len(document.get("candidates") or ()))

    def read(self, document: Json, request: ModelRequest) -> ModelReply:
        if document.get("error") is not None:
            raise stream_error(document, begun=False, secret=self._account.key)
        response_id = text_of(document.get("responseId") or "")
        model = text_of(document.get("modelVersion") or request.model)
        candidates = document.get("candidates") or []
        if not candidates:
            if "promptFeedback" not in document:
                raise KeyError("candidates")
            return ModelReply(
                text="", stop=StopKind.REFUSED, usage=None, model=model, response_id=response_id
            )
        content = candidates[0].get("content") or {"role": "model", "parts": []}
        text, calls = "", []
        for index, part in enumerate(content.get("parts") or ()):
            if part.get("thought"):
                continue
            if "functionCall" in part:
                calls.append(_call(part["functionCall"], f"call_{response_id or 'g'}_{index}"))
            elif part.get("text"):
                text += text_of(part["text"])
        stop = _STOPS.get(candidates[0].get("finishReason") or "", StopKind.OTHER)
        return ModelReply(
            text=text,
            stop=StopKind.TOOL_CALL if calls and stop is StopKind.END else stop,
            usage=None,
            model=model,
            tool_calls=tuple(calls),
            native=self.native(request, content),
            response_id=response_id,
        )

    def fold(self) -> Fold:
        return _ResponseFold(self._account.key)

    def _contents(self, request: ModelRequest) -> list[Json]:
        contents: list[Json] = []
        for message in request.messages:
            match message:
                case SystemMessage():
                    continue
                case UserMessage():
                    role, parts = "user", [_part(part) for part in message.parts]
                case ToolMessage():
                    role, parts = "user", [_function_response(message)]
                case AssistantMessage():
                    native = self.native_of(message, request.model)
                    role, parts = "model", native["parts"] if native is not None else _portable(message)
                case unknown:
                    assert_never(unknown)
            if not parts:
                continue
            if contents and contents[-1]["role"] == role:
                contents[-1]["parts"] = contents[-1]["parts"] + parts
            else:
                contents.append({"role": role, "parts": parts})
        return contents

    def _thinking(self, request: ModelRequest) -> Json:
        thinking = request.thinking
        match thinking.mode:
            case ThinkingMode.OFF:
                budget = (
                    0
                    if "thinking_off" in self.profile(request).can
                    and "thinking_budget" in self.profile(request).can
                    else None
                )
            case ThinkingMode.ADAPTIVE:
                budget = _BUDGET_OF_EFFORT.get(thinking.effort, -1)
            case ThinkingMode.BUDGET:
                budget = thinking.budget_tokens
            case unknown:
                assert_never(unknown)
        return {} if budget is None else {"thinkingConfig": {"thinkingBudget": budget}}


class _ResponseFold(Fold):
    """Pieces of one response; the one with a finish reason ends it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._head: Json = {}
        self._content: Json = {"role": "model", "parts": []}
        self._finish: str | None = None

    def take(self, data: str) -> bool:
        piece = decode(data)
        if piece.get("error") is not None:
            raise stream_error(piece, begun=self.begun, secret=self._secret)
        keys = ("usageMetadata", "modelVersion", "responseId", "promptFeedback")
        self._head |= {key: piece[key] for key in keys if piece.get(key) is not None}
        for candidate in piece.get("candidates") or ():
            if candidate.get("index", 0) != 0:
                continue
            self.begun = True
            self._content["parts"] += (candidate.get("content") or {}).get("parts") or []
            self._finish = candidate.get("finishReason") or self._finish
        return False  # this wire ends with its last byte

    def document(self) -> Json | None:
        if self._finish is not None:
            return self._head | {"candidates": [{"content": self._content, "finishReason": self._finish}]}
        return self._head if "promptFeedback" in self._head and not self.begun else None

    def terminal_counts(self) -> object:
        return self._head.get("usageMetadata") if self._finish is not None else None


def _part(part: Part) -> Json:
    match part:
        case TextPart():
            return {"text": part.text}
        case ImageUrlPart():
            media_type, data = data_url(part.url) or ("", "")
            return {"inlineData": {"mimeType": media_type, "data": data}}
        case ImagePart() | FilePart():
            return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
        case unknown:
            assert_never(unknown)


def _portable(message: AssistantMessage) -> list[Json]:
    parts: list[Json] = [{"text": message.text}] if message.text.strip() else []
    for index, call in enumerate(message.tool_calls):
        part: Json = {"functionCall": {"name": call.name, "args": past_arguments(call.arguments)}}
        parts.append(part | ({"thoughtSignature": FOREIGN_SIGNATURE} if index == 0 else {}))
    return parts


def _function_response(message: ToolMessage) -> Json:
    key = "error" if message.is_error else "output"
    return {"functionResponse": {"name": message.name, "response": {key: message.text}}}


def _calling(choice: str) -> Json:
    if choice in ("auto", "none"):
        return {"mode": choice.upper()}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _call(call: Any, fallback_id: str) -> ToolCall:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolCall(text_of(call.get("id") or fallback_id), text_of(call["name"]), arguments)
