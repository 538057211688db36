"""The tool log of a run as people read it: each call folded, its output bounded and harmless. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.display.ansi import Piece, coloured
from tasks.display.hostile import one_line, readable, revealed

ENTRIES_MAX = 2_000
# Of one tool's answer on the page; the whole is a download away.
ANSWER_CHARACTERS_MAX = 12_000
ARGUMENT_CHARACTERS_MAX = 6_000
# Of all answers of a page together: what a browser draws at once without stuttering.
PAGE_CHARACTERS_MAX = 400_000
SUMMARY_CHARACTERS_MAX = 90
SAID_CHARACTERS_MAX = 140
assert ANSWER_CHARACTERS_MAX < PAGE_CHARACTERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One tool call. `kept` is the key of the whole output, where the answer holds only its head and tail."""

    position: int
    model_call: int
    tool: str
    summary: str
    arguments: tuple[tuple[str, str], ...]
    verdict: str
    code: str
    pieces: tuple[Piece, ...]
    kept: str
    cut: bool
    said: str  # how its answer begins: what was wrong, where something was

    @property
    def is_ok(self) -> bool:
        return self.verdict == "ok"


@dataclass(frozen=True, slots=True)
class ToolLog:
    entries: tuple[LogEntry, ...]
    total: int


def read_log(content: bytes, *, search: str = "") -> ToolLog:
    """The stored log, or those of its calls that hold `search` in what went in or came out."""
    return log_of(json.loads(content), search=search)


def log_of(rows: Sequence[Mapping[str, Any]], *, search: str = "") -> ToolLog:
    """The same from rows: those of a run that goes on."""
    wanted = search.casefold()
    shown = rows[:ENTRIES_MAX]
    found = [row for row in shown if not wanted or wanted in _all_text(row).casefold()]
    return ToolLog(tuple(_entries(found)), len(shown))


def _entries(rows: Sequence[Mapping[str, Any]]) -> Iterator[LogEntry]:
    room = PAGE_CHARACTERS_MAX
    for row in rows:
        result = str(row["result"])
        shown = _bounded(result, min(ANSWER_CHARACTERS_MAX, room))
        room -= min(len(shown), room)
        arguments = tuple(_arguments(str(row["arguments"])))
        yield LogEntry(
            position=int(row["position"]),
            model_call=int(row["model_call"]),
            tool=str(row["tool"]),
            summary=_summary(arguments),
            arguments=arguments,
            verdict=str(row["verdict"]),
            code=str(row["code"]),
            pieces=coloured(shown),
            kept=str(row.get("kept", "")),
            cut=len(shown) < len(result),
            said=one_line(readable(next(iter(result.splitlines()), "")), SAID_CHARACTERS_MAX),
        )


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    """Name and value of each argument; what is no JSON object is shown as it came."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        yield "", revealed(_bounded(text, ARGUMENT_CHARACTERS_MAX))
        return
    for name, value in values.items():
        shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield revealed(str(name)), revealed(_bounded(shown, ARGUMENT_CHARACTERS_MAX))


def _summary(arguments: tuple[tuple[str, str], ...]) -> str:
    """The first short argument tells calls apart: a path, a command, a pattern."""
    first = next((value for _, value in arguments if value.strip()), "")
    return one_line(first, SUMMARY_CHARACTERS_MAX)


def _all_text(row: Mapping[str, Any]) -> str:
    return f"{row['tool']} {row['arguments']} {row['result']}"


def _bounded(text: str, characters_max: int) -> str:
    """The head and the tail: a command's verdict stands in its last lines."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[len(text) - half :]}"
