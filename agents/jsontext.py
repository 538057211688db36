"""Pure: JSON out of a model's text. Strict about the JSON, patient about what stands around it (C88)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXT_CHARACTERS_MAX = 1_000_000
OBJECTS_MAX = 50
# A brace that opens an object; any other brace is prose or code.
_START = re.compile(r'\{\s*["}]')


@dataclass(frozen=True, slots=True)
class Found:
    """The one object of the text."""

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """One JSON value: an object, a list, a text, a number, true, false or null."""

    value: Any


@dataclass(frozen=True, slots=True)
class NotFound:
    """`problem` is a stable word, `detail` says where; both may be shown to the model."""

    # cut_off, no_object, several_objects, not_json, duplicate_key, not_finite, bad_text, too_long, too_deep
    problem: str
    detail: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.detail}"


def extract_object(text: str, *, cut_off: bool = False) -> Found | NotFound:
    """The JSON object that a model wrote, with or without prose and fences around it.

    An answer that was cut off is refused before it is read, and nothing inside a broken
    object is ever taken for the answer (C87): half a plan is not a plan.
    """
    if cut_off:
        return NotFound("cut_off", "the answer ended at its output limit")
    if len(text) > TEXT_CHARACTERS_MAX:
        return NotFound("too_long", f"more than {TEXT_CHARACTERS_MAX} characters")
    try:
        objects = _objects_of(text)
    except _Refused as refused:
        return NotFound(refused.problem, refused.detail)
    except RecursionError:
        return NotFound("too_deep", "brackets nest too deeply")
    except ValueError as error:  # a number of thousands of digits
        return NotFound("not_json", str(error))
    filled = [value for value in objects if value] or objects[:1]
    if not filled:
        return NotFound("no_object", "the answer holds no JSON object")
    if any(value != filled[0] for value in filled[1:]):
        return NotFound("several_objects", f"the answer holds {len(filled)} different JSON objects; give one")
    return Found(filled[0])


def parse_arguments(text: str) -> Found | NotFound:
    """The arguments of a tool call: the whole text is one JSON object, or the call is refused (row 48)."""
    found = parse_whole(text)
    if isinstance(found, NotFound):
        return found
    if not isinstance(found.value, dict):
        return NotFound("not_json", "the arguments must be one JSON object")
    return Found(found.value)


def parse_whole(text: str) -> Value | NotFound:
    """The whole text as one JSON value of any kind, read as strictly as everything here."""
    try:
        value = _DECODER.decode(text)
        _each_encodable(value)
    except _Refused as refused:
        return NotFound(refused.problem, refused.detail)
    except RecursionError:
        return NotFound("too_deep", "brackets nest too deeply")
    except ValueError as error:
        return NotFound("not_json", str(error))
    return Value(value)


def _objects_of(text: str) -> list[Mapping[str, Any]]:
    """Every outermost object of the text. The decoder, not the fences, says where one ends."""
    objects: list[Mapping[str, Any]] = []
    end = 0
    while start := _START.search(text, end):
        if len(objects) == OBJECTS_MAX:
            raise _Refused(
                "several_objects", f"the answer holds more than {OBJECTS_MAX} JSON objects; give one"
            )
        try:
            value, end = _DECODER.raw_decode(text, start.start())
        except json.JSONDecodeError as error:
            raise _Refused("not_json", f"{error.msg} at line {error.lineno}") from None
        if "\\u0000" in json.dumps(value):
            raise _Refused("bad_text", "a text holds a NUL")
        objects.append(value)
    return objects


class _Refused(ValueError):
    def __init__(self, problem: str, detail: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.detail = detail


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Refused("duplicate_key", f"the key {key[:80]!r} occurs twice in one object")
        _encodable(key)
        _each_encodable(value)
        found[key] = value
    return found


def _each_encodable(value: Any) -> None:
    if isinstance(value, str):
        _encodable(value)
    elif isinstance(value, list):
        for each in value:
            _each_encodable(each)


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused("bad_text", "a text holds half of a surrogate pair") from None


def _constant(word: str) -> Any:
    raise _Refused("not_finite", f"{word} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused("not_finite", f"{text[:40]} is out of range")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
