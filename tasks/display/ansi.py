"""Terminal colours as tones of our own palette; every other terminal code is dropped. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.display.hostile import readable

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
# The colours that programs give a meaning to. The others would say nothing in our palette.
_TONES = {31: "bad", 91: "bad", 32: "good", 92: "good", 33: "warn", 93: "warn", 90: "soft", 2: "soft"}
_RESETS = frozenset({0, 39, 22})
PIECES_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    tone: str  # "", bad, good, warn, soft


def coloured(text: str) -> tuple[Piece, ...]:
    """Output of a program, line by line as a terminal would have left it.

    A line that overprints itself (a progress bar) keeps its last state and loses its colours: whose
    they would be is not worth a terminal of our own. So does everything after `PIECES_MAX` changes of colour.
    """
    pieces: list[Piece] = []
    tone = ""
    for line in re.split(r"(?<=\n)", text.replace("\r\n", "\n")):
        if "\r" in line.rstrip("\n") or "\x1b" not in line or len(pieces) > PIECES_MAX:
            pieces.append(Piece(readable(line), tone))
            tone = _last_tone(line, tone)
            continue
        for part, tone_of_part in _parts(line, tone):
            pieces.append(Piece(readable(part), tone_of_part))
        tone = _last_tone(line, tone)
    return tuple(_joined(pieces))


def _parts(line: str, tone: str) -> Iterator[tuple[str, str]]:
    at = 0
    for code in _SGR.finditer(line):
        yield line[at : code.start()], tone
        tone = _tone_after(code.group(1), tone)
        at = code.end()
    yield line[at:], tone


def _last_tone(line: str, tone: str) -> str:
    for code in _SGR.finditer(line):
        tone = _tone_after(code.group(1), tone)
    return tone


def _tone_after(code: str, tone: str) -> str:
    for number in (int(each) for each in code.split(";") if each.isdigit() and len(each) < 4):
        if number in _RESETS:
            tone = ""
        tone = _TONES.get(number, tone)
    return "" if not code else tone


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    """Neighbours of one tone as one piece."""
    waiting: list[str] = []
    tone = ""
    for piece in pieces:
        if piece.tone != tone and waiting:
            yield Piece("".join(waiting), tone)
            waiting = []
        tone = piece.tone
        if piece.text:
            waiting.append(piece.text)
    if waiting:
        yield Piece("".join(waiting), tone)
