"""OpenAI Chat Completions, and OpenRouter's dialect of it; any server that speaks it, by base URL."""

from __future__ import annotations

from typing import Any, ClassVar, assert_never

from providers.caching import Marks, marks_for
from providers.errors import BadAnswer, RequestRefused
from providers.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    ImageUrlPart,
    Message,
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
from providers.statuses import stream_error
from providers.usage import openai_usage
from providers.wire import Fold, HttpGateway, Json, decode, text_of

_STOPS = {
    "stop": StopKind.END,
    "tool_calls": StopKind.TOOL_CALL,
    "function_call": StopKind.TOOL_CALL,
    "length": StopKind.LENGTH,
    "content_filter": StopKind.REFUSED,
}


class OpenAIGateway(HttpGateway):
    """An OpenAI account, or a server that speaks its chat wire (vLLM, Ollama and the like)."""

    wire = "openai"
    default_url = "https://api.openai.com/v1"
    # OpenAI wants the newer name; the servers that copy its wire know the older one.
    own_cap_field: ClassVar[str] = "max_completion_tokens"
    cap_field: ClassVar[str] = "max_tokens"

    def authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._account.key}"} if self._account.key else {}

    def ask(self, request: ModelRequest, *, stream: bool) -> tuple[str, Json]:
        own = self._url == self.default_url
        field = self._account.options.output_cap_field or (self.own_cap_field if own else self.cap_field)
        body: Json = {
            "model": request.model,
            "messages": [self._message(message, request.model) for message in request.messages],
            field: self.output_cap(request),
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.schema),
                    },
                }
                for tool in request.tools
            ]
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.output_schema is not None:
            schema = {"name": "output", "schema": dict(request.output_schema), "strict": False}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body |= self.extras(request)
        self.mark(body, marks_for(request, self.wire))
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return "/chat/completions", body

    def extras(self, request: ModelRequest) -> Json:
        """What this dialect adds: caching key, reasoning."""
        extra: Json = {}
        if request.prompt_cache:
            extra["prompt_cache_key"] = request.prompt_cache["key"]
        if request.thinking.mode is not ThinkingMode.OFF and request.thinking.effort:
            extra["reasoning_effort"] = request.thinking.effort
        return extra

    def mark(self, body: Json, marks: Marks) -> None:
        """Put the cache marks on; OpenAI caches by itself."""

    def usage(self, document: Json, request: ModelRequest) -> Usage | None:
        return openai_usage(document.get("usage"), ttl=(request.prompt_cache or {}).get("ttl", "5m"))

    def read(self, document: Json, request: ModelRequest) -> ModelReply:
        if document.get("error") is not None:  # OpenRouter sends refusals in a 200
            raise stream_error(document, begun=bool(document.get("choices")), secret=self._account.key)
        choice = document["choices"][0]
        message = choice["message"]
        calls = tuple(
            ToolCall(
                _call_id(call, index),
                text_of(call["function"]["name"]),
                text_of(call["function"]["arguments"]),
            )
            for index, call in enumerate(message.get("tool_calls") or ())
        )
        stop = _STOPS.get(choice["finish_reason"], StopKind.OTHER)
        if message.get("refusal"):
            stop = StopKind.REFUSED
        elif calls and stop is StopKind.END:
            stop = StopKind.TOOL_CALL  # some servers end a turn with calls as "stop"
        return ModelReply(
            text=_content_text(message.get("content")),
            stop=stop,
            usage=None,
            model=text_of(document.get("model") or request.model),
            tool_calls=calls,
            native=self.native(request, message),
            response_id=text_of(document.get("id") or ""),
        )

    def fold(self) -> Fold:
        return _ChunkFold(self._account.key)

    def _message(self, message: Message, model: str) -> Json:
        match message:
            case SystemMessage():
                return {"role": "system", "content": message.text}
            case UserMessage():
                return {"role": "user", "content": [_block(part) for part in message.parts]}
            case ToolMessage():
                return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
            case AssistantMessage():
                native = self.native_of(message, model)
                return native if native is not None else _portable(message)
            case unknown:
                assert_never(unknown)


class OpenRouterGateway(OpenAIGateway):
    """OpenRouter: routing, cache marks and reasoning of its own."""

    wire = "openrouter"
    default_url = "https://openrouter.ai/api/v1"
    own_cap_field = "max_tokens"

    def check(self, request: ModelRequest) -> None:
        super().check(request)
        if self._account.options.reasoning == "none":
            profile = self.profile(request)
            if "none" not in profile.efforts or "thinking_off" not in profile.can:
                raise RequestRefused(
                    "unsupported", f"{request.model} is not known to have reasoning switched off"
                )

    def authorization(self) -> dict[str, str]:
        options = self._account.options
        named = {"x-title": options.app_title, "http-referer": options.app_referer}
        return super().authorization() | {name: value for name, value in named.items() if value}

    def extras(self, request: ModelRequest) -> Json:
        extra: Json = {"usage": {"include": True}}
        if self._account.options.routing:
            extra["provider"] = dict(self._account.options.routing)
        thinking = request.thinking
        if self._account.options.reasoning == "none":
            extra["reasoning"] = {"effort": "none"}
        elif thinking.mode is ThinkingMode.ADAPTIVE and thinking.effort:
            extra["reasoning"] = {"effort": thinking.effort}
        elif thinking.mode is ThinkingMode.BUDGET:
            extra["reasoning"] = {"max_tokens": thinking.budget_tokens}
        return extra

    def mark(self, body: Json, marks: Marks) -> None:
        if not marks.any:
            return
        systems = [message for message in body["messages"] if message["role"] == "system"]
        targets = (systems[-1:] if marks.system else []) + (body["messages"][-1:] if marks.newest else [])
        for message in targets:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
            if blocks[-1].get("text", "x"):  # an empty text takes no mark
                blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral", "ttl": marks.ttl}}
                message["content"] = blocks


class _ChunkFold(Fold):
    """Chunks of deltas, one with the finish reason, one with the counts, then [DONE]."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._head: Json = {}
        self._message: Json = {"role": "assistant", "content": None}
        self._calls: dict[int, Json] = {}
        self._finish: str | None = None
        self._done = False

    def take(self, data: str) -> bool:
        if data.strip() == "[DONE]":
            self._done = True
            return True
        chunk = decode(data)
        if chunk.get("error") is not None:
            raise stream_error(chunk, begun=self.begun, secret=self._secret)
        self._head |= {
            key: chunk[key] for key in ("id", "model", "provider", "usage") if chunk.get(key) is not None
        }
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            self.begun = True
            self._grow(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
        return False

    def document(self) -> Json | None:
        if not self._done or self._finish is None:
            return None
        calls = [self._calls[index] for index in sorted(self._calls)]
        message = self._message | ({"tool_calls": calls} if calls else {})
        return self._head | {"choices": [{"message": message, "finish_reason": self._finish}]}

    def terminal_counts(self) -> object:
        return self._head.get("usage")

    def _grow(self, delta: Json) -> None:
        for key, value in delta.items():
            if value is None or key in ("role", "index"):
                continue
            if key == "tool_calls":
                for call in value:
                    self._grow_call(call)
            elif key == "reasoning_details":
                _grow_details(self._message.setdefault(key, []), value)
            elif isinstance(value, str):
                self._message[key] = (self._message.get(key) or "") + value
            else:
                self._message[key] = value

    def _grow_call(self, piece: Json) -> None:
        call = self._calls.setdefault(
            int(piece.get("index", 0)),
            {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
        )
        if piece.get("id"):
            call["id"] = text_of(piece["id"])
        function = piece.get("function") or {}
        if function.get("name"):
            call["function"]["name"] += text_of(function["name"])
        call["function"]["arguments"] += text_of(function.get("arguments") or "")


def _grow_details(known: list[Json], pieces: list[Json]) -> None:
    """Reasoning details of one index and type are one; their texts grow, the rest is replaced."""
    for piece in pieces:
        same = [
            one
            for one in known
            if (one.get("index"), one.get("type")) == (piece.get("index"), piece.get("type"))
        ]
        if not same:
            known.append(dict(piece))
            continue
        for key, value in piece.items():
            if key in ("text", "summary", "data") and isinstance(value, str):
                same[0][key] = (same[0].get(key) or "") + value
            elif value is not None:
                same[0][key] = value


def _portable(message: AssistantMessage) -> Json:
    turn: Json = {"role": "assistant", "content": message.text or None}
    if message.tool_calls:
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    elif not message.text:
        turn["content"] = ""
    return turn


def _block(part: Part) -> Json:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImageUrlPart():
            return {"type": "image_url", "image_url": {"url": part.url}}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}
        case FilePart():
            data = f"data:{part.media_type};base64,{part.data}"
            return {"type": "file", "file": {"filename": part.filename or "document.pdf", "file_data": data}}
        case unknown:
            assert_never(unknown)


def _tool_choice(choice: str) -> Any:
    return choice if choice in ("auto", "none") else {"type": "function", "function": {"name": choice}}


def _call_id(call: Json, index: int) -> str:
    """The call's id; some servers leave it out."""
    return text_of(call.get("id") or f"call_{index}")


def _content_text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(text_of(part["text"]) for part in content if part.get("type") == "text")
    raise BadAnswer("the answer's content is neither text nor parts")
