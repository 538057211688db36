"""Text that a model, a repository or a program wrote, made readable and harmless. Pure.

The templates escape HTML; this removes what HTML escaping does not: terminal
codes, carriage returns that overprint, and characters that reorder or hide text.
"""

from __future__ import annotations

import re

from tenants.text import UNSEEN

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[@-Z\\-_]"
)
# Characters that change the order of others or cannot be seen (faults C41, C89).
_TRICKS = re.compile(f"[{UNSEEN}]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # halves of characters, which no page can hold


def readable(text: str) -> str:
    """Output of a program as a terminal would have left it: the last state of each line (fault C91).

    Colours are dropped; characters that could deceive the eye are written out as `⟨U+202E⟩`.
    """
    plain = _ANSI.sub("", text.replace("\r\n", "\n"))
    lines = [_last_state(line) for line in plain.split("\n")]
    return revealed("\n".join(lines))


def revealed(text: str) -> str:
    """Any hostile text with its invisible and reordering characters written out."""
    shown = _TRICKS.sub(_written_out, text)
    shown = _CONTROLS.sub(_written_out, shown)
    return _SURROGATES.sub(_written_out, shown)


def one_line(text: str, characters_max: int) -> str:
    """A short form for titles and lists: no line breaks, cut with an ellipsis."""
    flat = " ".join(revealed(text).split())
    return flat if len(flat) <= characters_max else flat[: characters_max - 1].rstrip() + "…"


def _last_state(line: str) -> str:
    """What carriage returns leave behind: each later part over the earlier ones, as far as it reaches."""
    shown = ""
    for part in reversed(line.split("\r")):
        shown += part[len(shown) :]
    return shown


def _written_out(match: re.Match[str]) -> str:
    return _written(match.group())


def _written(char: str) -> str:
    return f"⟨U+{ord(char):04X}⟩"
