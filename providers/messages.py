"""The words of a model call: messages, tools, a request, a reply, usage. All frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImageUrlPart:
    """An image by http, https or data URL."""

    url: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image as base64."""

    data: str
    media_type: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """A document as base64."""

    data: str
    media_type: str
    filename: str = ""


Part = TextPart | ImageUrlPart | ImagePart | FilePart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call a model asks for. `arguments` is the JSON text exactly as it came: never repaired."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class NativeTurn:
    """An assistant turn as the provider sent it, with the route that may replay it byte for byte (row 121)."""

    route: str
    content: Any


@dataclass(frozen=True, slots=True)
class SystemMessage:
    text: str


@dataclass(frozen=True, slots=True)
class UserMessage:
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, text: str) -> UserMessage:
        return cls((TextPart(text),))


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    native: NativeTurn | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The answer to one tool call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call; `schema` is JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ThinkingMode(StrEnum):
    OFF = "off"
    ADAPTIVE = "adaptive"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Thinking:
    mode: ThinkingMode = ThinkingMode.OFF
    effort: str = ""  # low, medium, high; empty: the provider's default
    budget_tokens: int | None = None


class CachePlan(StrEnum):
    """The plane's own fixed cache policy (rows 107 to 109)."""

    NONE = "none"
    SYSTEM = "system"  # complete(): the system prompt only
    AGENT = "agent"  # system prompt, tool definitions, newest message


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class ModelRequest:
    """One logical question to one model.

    `labels` (role, tier, change, task, attempt) are for logs and scripts; no wire sends them.
    """

    model: str
    messages: tuple[Message, ...]
    output_tokens_max: int
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"  # auto, none, or the name of one tool
    output_schema: Mapping[str, Any] | None = None
    thinking: Thinking = Thinking()
    cache: CachePlan = CachePlan.NONE
    # The option of rows 104 to 106: {"ttl": "5m" | "1h"} or {"key": "..."}; most wires refuse it.
    prompt_cache: Mapping[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request in disjoint, non-negative buckets. Unknown usage is `None`, never this with zeros."""

    input_uncached: int
    output: int  # everything generated, thinking included, all candidates
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int | None = None  # a part of `output`, where reported
    candidates: int = 1
    quality: str = "reported"  # or "normalized"

    def __post_init__(self) -> None:
        counts = (self.input_uncached, self.output, self.cache_read, self.cache_write_5m, self.cache_write_1h)
        if any(type(count) is not int or count < 0 for count in counts):
            raise ValueError(f"token counts are whole and not negative: {counts}")

    @property
    def input(self) -> int:
        """All input tokens, cache reads and writes included (row 130)."""
        return self.input_uncached + self.cache_read + self.cache_write_5m + self.cache_write_1h


class StopKind(StrEnum):
    """Why a model stopped writing."""

    END = "end"
    TOOL_CALL = "tool_call"
    LENGTH = "length"  # cut off: never complete
    REFUSED = "refused"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What came back. `usage` is None when nobody could read it (row 134)."""

    text: str
    stop: StopKind
    usage: Usage | None
    model: str
    tool_calls: tuple[ToolCall, ...] = ()
    native: NativeTurn | None = None
    response_id: str = ""
    request_id: str = ""

    def as_message(self) -> AssistantMessage:
        return AssistantMessage(self.text, self.tool_calls, self.native)
