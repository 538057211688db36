"""The output of a command: head and tail for the agent, a bounded whole for the object store."""

from __future__ import annotations

import re

BYTES_PER_CHARACTER_MAX = 4

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CUT = b"\n[cut here: %d bytes of output in all]\n"


class Spool:
    """Takes bytes as they come and never holds more than a fixed number of them in memory."""

    def __init__(self, *, characters_max: int, whole_bytes_max: int) -> None:
        self._side = characters_max * BYTES_PER_CHARACTER_MAX
        self._characters_max = characters_max
        self._head = bytearray()
        self._tail = bytearray()
        self._whole = bytearray()
        self._whole_max = whole_bytes_max
        self.total = 0  # bytes the command wrote

    def feed(self, piece: bytes) -> None:
        self.total += len(piece)
        self._whole += piece[: self._whole_max - len(self._whole)]
        room = self._side - len(self._head)
        self._head += piece[:room]
        rest = piece[room:]
        if rest:
            self._tail += rest
            if len(self._tail) > 2 * self._side:
                del self._tail[: -self._side]

    def whole(self) -> bytes:
        """All of it, or its beginning and a line that says so."""
        cut = self.total > len(self._whole)
        return bytes(self._whole) + (_CUT % self.total if cut else b"")

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


def clean(raw: bytes) -> str:
    """Text that a person sees: no escapes or controls, and of a progress bar its last state (fault C91)."""
    lines = _ESCAPES.sub("", raw.decode("utf-8", "replace")).split("\n")
    # A carriage return begins the line anew; one at its end is half a line ending.
    last = (line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return _CONTROLS.sub("", "\n".join(last))
