"""Content parts: counted, and checked before any request (rows 97 to 103)."""

from __future__ import annotations

import json
from typing import assert_never

from providers.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    ImageUrlPart,
    Message,
    ModelRequest,
    Part,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)


def request_characters(request: ModelRequest) -> int:
    """All characters that a request sends: what estimates of its tokens start from (behaviours 0)."""
    tools = sum(
        len(tool.name) + len(tool.description) + len(json.dumps(tool.schema, ensure_ascii=False))
        for tool in request.tools
    )
    schema = len(json.dumps(request.output_schema, ensure_ascii=False)) if request.output_schema else 0
    return sum(_message_characters(message) for message in request.messages) + tools + schema


def _message_characters(message: Message) -> int:
    match message:
        case SystemMessage(text=text):
            return len(text)
        case UserMessage(parts=parts):
            return sum(_part_characters(part) for part in parts)
        case ToolMessage():
            return len(message.text) + len(message.name)
        case AssistantMessage():
            plain = len(message.text) + sum(
                len(call.name) + len(call.arguments) for call in message.tool_calls
            )
            # The native turn is what goes out where the route allows it: thinking blocks included.
            native = len(json.dumps(message.native.content, ensure_ascii=False)) if message.native else 0
            return max(plain, native)
        case unknown:
            assert_never(unknown)


def _part_characters(part: Part) -> int:
    match part:
        case TextPart(text=text):
            return len(text)
        case ImageUrlPart(url=url):
            return len(url)
        case ImagePart(data=data) | FilePart(data=data):
            return len(data)
        case unknown:
            assert_never(unknown)
