"""Content parts: read, counted, and checked before any request (rows 97 to 103)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, assert_never
from weakref import ref

from providers.errors import RequestRefused
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

HISTORY_BYTES_MAX = 8_388_608
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"


@dataclass
class _Counted:
    pair: tuple[Callable[[], ModelRequest | None], int] = (lambda: None, 0)


_counted_last = _Counted()
# JSON escapes a character with at most six bytes: below this no history can be too long.
_SURELY_SHORT = HISTORY_BYTES_MAX // 8


def read_parts(prompt: object) -> tuple[Part, ...]:
    """A prompt as a client sends it: a text, or a list of parts with text keys.

    The whole list is checked before anything is sent; the first bad one is named by its
    index from 0: `invalid_prompt_part(1)` (row 98). An empty list is `invalid_prompt` (row 99).
    """
    if isinstance(prompt, str):
        prompt = [{"type": "text", "text": prompt}]
    if not isinstance(prompt, list) or not prompt:
        raise RequestRefused("invalid_prompt", "a prompt is a text or a list with at least one part")
    parts = tuple(_read_part(item, index) for index, item in enumerate(prompt))
    check_parts(parts)
    return parts


def check_parts(parts: tuple[Part, ...]) -> None:
    """Refuse parts that no provider can read, by index."""
    if not parts:
        raise RequestRefused("invalid_prompt", "a message needs at least one part")
    for index, part in enumerate(parts):
        problem = _why_bad(part)
        if problem:
            raise _bad_part(index, problem)


def check_modalities(parts: tuple[Part, ...], *, can: frozenset[str], pdf_wire: bool) -> None:
    """Refuse what this model or this wire cannot see (rows 100, 101)."""
    for index, part in enumerate(parts):
        match part:
            case TextPart():
                pass
            case ImageUrlPart() | ImagePart():
                if "image" not in can:
                    raise RequestRefused("unsupported_input", f"part {index}: this model takes no images")
            case FilePart():
                if "pdf" not in can:
                    raise RequestRefused("unsupported_input", f"part {index}: this model takes no PDF")
                if not pdf_wire:
                    raise RequestRefused(
                        "unsupported_input", f"part {index}: this provider's chat takes no PDF"
                    )
            case unknown:
                assert_never(unknown)


def check_history_size(request: ModelRequest, *, bytes_max: int = HISTORY_BYTES_MAX) -> None:
    """Refuse a talk whose canonical JSON, base64 included, is longer than the limit (row 102)."""
    if bytes_max >= HISTORY_BYTES_MAX and request_characters(request) < _SURELY_SHORT:
        return
    size = history_bytes(request.messages)
    if size > bytes_max:
        raise RequestRefused(
            "retention_limit_exceeded", f"retention_limit_exceeded(input, {size}, {bytes_max})"
        )


def history_bytes(messages: tuple[Message, ...]) -> int:
    """The length of the canonical JSON of messages."""
    document = [asdict(message) for message in messages]
    return len(
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
            errors="replace"
        )
    )


def request_characters(request: ModelRequest) -> int:
    """All characters that a request sends: what estimates of its tokens start from (behaviours 0).

    Its price and its check ask for them one after the other, so the count of the last request is kept.
    """
    last, characters = _counted_last.pair
    if last() is not request:
        characters = _request_characters(request)
        _counted_last.pair = ref(request), characters  # one tuple: threads can only miss each other's
    return characters


def _request_characters(request: ModelRequest) -> int:
    tools = sum(
        len(tool.name) + len(tool.description) + len(json.dumps(tool.schema, ensure_ascii=False))
        for tool in request.tools
    )
    schema = len(json.dumps(request.output_schema, ensure_ascii=False)) if request.output_schema else 0
    return sum(_message_characters(message) for message in request.messages) + tools + schema


def data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 of a data URL; None for another address."""
    if not url.startswith("data:"):
        return None
    head, _, data = url[len("data:") :].partition(";base64,")
    return head, data


def _why_bad(part: Part) -> str:
    match part:
        case TextPart(text=text):
            return "" if text.strip() else "a text part needs text"
        case ImageUrlPart(url=url):
            return _why_bad_url(url)
        case ImagePart(data=data, media_type=media_type):
            return "" if media_type in IMAGE_TYPES and _is_base64(data) else _image_rule()
        case FilePart(data=data, media_type=media_type):
            return "" if media_type == PDF and _is_base64(data) else f"a file is base64 of the type {PDF}"
        case unknown:
            assert_never(unknown)


def _why_bad_url(url: str) -> str:
    inside = data_url(url)
    if inside is not None:
        return "" if inside[0] in IMAGE_TYPES and _is_base64(inside[1]) else _image_rule()
    if any(character.isspace() for character in url) or not url.startswith(("https://", "http://")):
        return "an image address begins with https://, http:// or data:"
    return ""


def _image_rule() -> str:
    return f"an image is base64 of one of {', '.join(IMAGE_TYPES)}"


def _is_base64(data: str) -> bool:
    try:
        return bool(data) and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


_FIELDS: dict[str, tuple[tuple[str, ...], Callable[..., Part]]] = {
    "text": (("text",), TextPart),
    "image_url": (("url",), ImageUrlPart),
    "image": (("data", "media_type"), ImagePart),
    "file": (("data", "media_type", "filename"), FilePart),
}


def _read_part(item: object, index: int) -> Part:
    if not isinstance(item, Mapping) or str(item.get("type")) not in _FIELDS:
        raise _bad_part(index, f"a part is one of {', '.join(_FIELDS)}")
    fields, make = _FIELDS[str(item["type"])]
    given: dict[str, Any] = {key: value for key, value in item.items() if key != "type"}
    needed = set(fields) - {"filename"}
    if not needed <= given.keys() <= set(fields) or not all(
        isinstance(value, str) for value in given.values()
    ):
        raise _bad_part(index, f"{item['type']} has the texts {', '.join(fields)}")
    return make(**given)


def _bad_part(index: int, problem: str) -> RequestRefused:
    return RequestRefused("invalid_prompt_part", f"invalid_prompt_part({index}): {problem}")


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
