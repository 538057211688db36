"""The output of a command: head and tail for the agent, a bounded whole for the object store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

BYTES_PER_CHARACTER_MAX = 4

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n|\Z)")
_CUT = "[whole output cut here]\n"


class Spool:
    """Takes bytes as they come and never holds more than a fixed number of them in memory."""

    def __init__(self, whole: Path | None, *, characters_max: int, whole_bytes_max: int) -> None:
        self._side = characters_max * BYTES_PER_CHARACTER_MAX
        self._characters_max = characters_max
        self._head = bytearray()
        self._tail = bytearray()
        self._file: IO[bytes] | None = whole.open("wb") if whole is not None else None
        self._room = whole_bytes_max
        self.total = 0  # bytes the command wrote

    def feed(self, piece: bytes) -> None:
        self.total += len(piece)
        self._keep(piece)
        room = self._side - len(self._head)
        self._head += piece[:room]
        rest = piece[room:]
        if rest:
            self._tail += rest
            if len(self._tail) > 2 * self._side:
                del self._tail[: -self._side]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def text(self) -> str:
        """At most `characters_max` characters: everything, or the first and the last half (row 55)."""
        tail = bytes(self._tail[-self._side :])
        if self.total <= len(self._head) + len(tail):
            text = clean(bytes(self._head) + tail)
            if len(text) <= self._characters_max:
                return text
            head_text, tail_text = text, text
        else:
            head_text, tail_text = clean(bytes(self._head)), clean(tail)
        note = f"\n[... {self.total:,} bytes of output in all; the middle is left out ...]\n"
        room = self._characters_max - len(note)
        first = room // 2
        return head_text[:first] + note + tail_text[-(room - first) :]

    def _keep(self, piece: bytes) -> None:
        if self._file is None or self._room <= 0:
            return
        self._file.write(piece[: self._room])
        self._room -= len(piece)
        if self._room <= 0:
            self._file.write(b"\n" + _CUT.encode())


def clean(raw: bytes) -> str:
    """Text that a person sees: no escapes or controls, and of a progress bar its last state (fault C91)."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    text = _OVERWRITTEN.sub("", _ESCAPES.sub("", text))
    return _CONTROLS.sub("", text.replace("\r", ""))
