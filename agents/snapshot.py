"""The conversation of a paused attempt as bytes, and back. Pure.

Only plain data: messages, answers and counters. No model, tool, key or system prompt is in it: those come from
the code and the rows of whoever goes on (row 235). What cannot be read whole is an error, never an empty
conversation (row 233).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from agents.errors import SnapshotError
from providers.messages import (
    AssistantMessage,
    Message,
    NativeTurn,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

KIND = "remit.continuation"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool has said already in the turn that is not over; fields of a `ToolResult`."""

    text: str
    verdict: str
    code: str
    kept: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the attempt had used when it paused; its second part goes on counting from here."""

    calls: int
    reads: int
    tool_calls: int
    cost_micro: int
    unknown_calls: int
    unknown_at_worst_micro: int
    said_nothing_changed: bool
    repeats_count: int
    repeats_nudged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`pending_response` is the turn whose tools have not all answered: outside of the history, it allows nothing
    (row 234). `written` are paths that the agent wrote, as the bytes' Latin-1 text."""

    run_id: UUID
    organization_id: UUID
    revision: int
    history: tuple[Message, ...]
    pending_response: AssistantMessage
    answers: tuple[Answer, ...]
    counters: Counters
    repeats_last: tuple[str, str, str] | None
    log: tuple[Mapping[str, Any], ...]
    written: tuple[str, ...] = field(default=())


def encode(snapshot: Snapshot) -> bytes:
    data = {
        "kind": KIND,
        "version": VERSION,
        "run": str(snapshot.run_id),
        "organization": str(snapshot.organization_id),
        "revision": snapshot.revision,
        "history": [_message(each) for each in snapshot.history],
        "pending_response": _message(snapshot.pending_response),
        "answers": [asdict(each) for each in snapshot.answers],
        "counters": asdict(snapshot.counters),
        "repeats_last": list(snapshot.repeats_last) if snapshot.repeats_last else None,
        "log": [dict(each) for each in snapshot.log],
        "written": list(snapshot.written),
    }
    return json.dumps(data, sort_keys=True).encode()


def decode(content: bytes, *, run_id: UUID, organization_id: UUID, revision: int) -> Snapshot:
    """Raises `SnapshotError`: `future` (a later version wrote it), `foreign` (of another attempt), or `corrupt`."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SnapshotError("corrupt", "it is no JSON", payload=content) from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise SnapshotError("corrupt", "it is no conversation of this program", payload=content)
    if data.get("version") != VERSION:
        later = isinstance(data.get("version"), int) and data["version"] > VERSION
        said = f"version {data.get('version')!r}, this program reads {VERSION}"
        raise SnapshotError("future" if later else "corrupt", said[:200], payload=content)
    expected = {"run": str(run_id), "organization": str(organization_id), "revision": revision}
    for name, value in expected.items():
        if data.get(name) != value:
            raise SnapshotError("foreign", f"it belongs to another {name}", payload=content)
    try:
        return _read(data, run_id, organization_id, revision)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError("corrupt", str(error)[:200], payload=content) from error


def _read(data: Mapping[str, Any], run_id: UUID, organization_id: UUID, revision: int) -> Snapshot:
    history = tuple(_read_message(each) for each in _list(data, "history"))
    pending = _read_message(data["pending_response"])
    answers = tuple(Answer(**_fields(each, Answer)) for each in _list(data, "answers"))
    if not history or not isinstance(history[0], UserMessage):
        raise ValueError("the history does not begin with what the agent was told")
    if not isinstance(pending, AssistantMessage) or len(answers) >= len(pending.tool_calls):
        raise ValueError("no tool call is pending")
    last = data["repeats_last"]
    if last is not None and (not isinstance(last, list) or [type(each) for each in last] != [str] * 3):
        raise ValueError("repeats_last is no call")
    return Snapshot(
        run_id=run_id,
        organization_id=organization_id,
        revision=revision,
        history=history,
        pending_response=pending,
        answers=answers,
        counters=Counters(**_fields(data["counters"], Counters)),
        repeats_last=(last[0], last[1], last[2]) if last else None,
        log=tuple(_mapping(each) for each in _list(data, "log")),
        written=tuple(_text(each) for each in _list(data, "written")),
    )


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(parts):
            if not all(isinstance(part, TextPart) for part in parts):
                raise TypeError("an agent is told texts alone")
            return {"role": "user", "texts": [part.text for part in parts if isinstance(part, TextPart)]}
        case AssistantMessage():
            return {"role": "assistant", **asdict(message)}
        case ToolMessage():
            return {"role": "tool", **asdict(message)}
        case _:
            raise TypeError("a system prompt is never stored: it comes from the code")


def _read_message(data: Any) -> Message:
    fields = dict(_mapping(data))
    match fields.pop("role", None):
        case "user":
            return UserMessage(tuple(TextPart(_text(each)) for each in _list(fields, "texts")))
        case "assistant":
            native = fields.pop("native")
            calls = tuple(ToolCall(**_fields(each, ToolCall)) for each in _list(fields, "tool_calls"))
            turn = NativeTurn(_text(native["route"]), native["content"]) if native is not None else None
            return AssistantMessage(_text(fields["text"]), calls, turn)
        case "tool":
            return ToolMessage(**_fields(fields, ToolMessage))
        case role:
            raise ValueError(f"{role!r:.40} is no role")


def _fields(data: Any, of: type) -> dict[str, Any]:
    """The fields of a flat dataclass, all of them and no other, each of its own type."""
    kinds = {"str": str, "int": int, "bool": bool}
    found = dict(_mapping(data))
    wanted: Mapping[str, str] = of.__annotations__
    if found.keys() != wanted.keys():
        raise ValueError(f"{of.__name__} has other fields")
    for name, kind in wanted.items():
        if type(found[name]) is not kinds[kind] or (kind == "int" and found[name] < 0):
            raise ValueError(f"{of.__name__}.{name} is no {kind}")
    return found


def _mapping(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("an object is missing")
    return data


def _list(data: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = data[name]
    if not isinstance(found, list):
        raise TypeError(f"{name} is no list")
    return found


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError("a text is missing")
    return data
