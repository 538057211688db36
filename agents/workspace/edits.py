"""Pure: exact edits of a file's bytes; only the matched spans change (rows 41, 42; faults C01 to C18)."""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from agents.workspace.window import line_at

EDITS_MAX = 100
EDIT_CHARACTERS_MAX = 200_000
NEAR_LINES_MAX = 5
LFS_POINTER = b"version https://git-lfs.github.com/spec/"

_BOM = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class Edit:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The new bytes of the whole file. `changed` is False for edits that matched and changed nothing."""

    data: bytes
    lines: tuple[int, ...]  # where each edit began, in the text it was applied to
    changed: bool


@dataclass(frozen=True, slots=True)
class EditRefused:
    """Nothing was changed. `edit` is 1-based; 0 when the file itself cannot be edited."""

    edit: int
    problem: str  # not_found, not_unique, empty_old_text, not_text, too_large, lfs_pointer, no_edits
    hint: str = ""
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        head = f"edit {self.edit}: {self.problem}" if self.edit else self.problem
        return f"{head}. {self.hint}" if self.hint else head


def apply_edits(data: bytes, edits: Sequence[Edit]) -> Edited | EditRefused:
    """All edits in order, each against the text after the ones before it, or none (row 42)."""
    if not edits:
        return EditRefused(0, "no_edits", "give at least one edit")
    if len(edits) > EDITS_MAX:
        return EditRefused(0, "too_large", f"at most {EDITS_MAX} edits in one call")
    text = text_of(data)
    if isinstance(text, EditRefused):
        return text
    mark = _BOM if data.startswith(_BOM) else b""
    lines = []
    for number, edit in enumerate(edits, start=1):
        applied = _apply(text, edit, number)
        if isinstance(applied, EditRefused):
            return applied
        text, position = applied
        lines.append(line_at(text, position))
    try:
        result = mark + text.encode("utf-8")
    except UnicodeEncodeError:
        return EditRefused(0, "not_text", "newText holds half a character (a lone surrogate)")
    return Edited(result, tuple(lines), result != data)


def text_of(data: bytes) -> str | EditRefused:
    """The text that reading shows and editing matches: UTF-8 without its byte order mark (faults C03, C17)."""
    if data.startswith(LFS_POINTER):
        return EditRefused(
            0, "lfs_pointer", "this is a Git LFS pointer; its content is not in the repository"
        )
    try:
        return data.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start + (len(_BOM) if data.startswith(_BOM) else 0)
        return EditRefused(0, "not_text", f"not valid UTF-8 at byte {at}; the file was left as it is")


def whole_characters(cut: bytes) -> bytes:
    """Bytes that were cut at a limit, without the part of a character at their end (fault C18)."""
    for back in range(1, min(4, len(cut)) + 1):
        lead = cut[-back]
        if lead & 0xC0 == 0x80:
            continue
        length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        return cut if length <= back else cut[:-back]
    return cut


def occurrences(text: str, part: str) -> list[int]:
    """Every position, overlapping ones too: "aa" is twice in "aaa" (row 42)."""
    found, position = [], text.find(part)
    while position != -1:
        found.append(position)
        position = text.find(part, position + 1)
    return found


def _apply(text: str, edit: Edit, number: int) -> tuple[str, int] | EditRefused:
    if not edit.old:
        return EditRefused(number, "empty_old_text", "oldText must hold the exact text to replace")
    if len(edit.old) > EDIT_CHARACTERS_MAX or len(edit.new) > EDIT_CHARACTERS_MAX:
        return EditRefused(number, "too_large", f"at most {EDIT_CHARACTERS_MAX:,} characters each")
    old, new = edit.old, edit.new
    found = occurrences(text, old)
    if not found and "\n" in old and "\r" not in old and "\r\n" in text:
        # The file has CRLF and the model sent LF. The match is looked for with the file's endings,
        # and still has to be the only one (faults C01, C11).
        old, new = old.replace("\n", "\r\n"), _with_crlf(new)
        found = occurrences(text, old)
        if not found:
            return _match_mixed(text, edit, number)
    elif found and "\n" not in old and "\n" in new and "\r" not in new:
        new = _with_ending_of_line(text, found[0], new)
    if len(found) == 1:
        return text[: found[0]] + new + text[found[0] + len(old) :], found[0]
    return _not_once(text, edit, number, found)


def _match_mixed(text: str, edit: Edit, number: int) -> tuple[str, int] | EditRefused:
    """A span whose lines end differently from one another: match with LF, replace exactly that span."""
    plain, origin = _without_cr(text)
    found = occurrences(plain, edit.old)
    if len(found) != 1:
        return _not_once(plain, edit, number, found)
    start, stop = origin[found[0]], origin[found[0] + len(edit.old)]
    span = text[start:stop]
    endings = ["\r\n" if line.endswith("\r") else "\n" for line in span.split("\n")[:-1]]
    return text[:start] + _with_endings(edit.new, endings) + text[stop:], start


def _without_cr(text: str) -> tuple[str, list[int]]:
    r"""The text with `\r\n` as `\n`, and for each of its characters where it stood."""
    plain, origin = [], []
    for position, character in enumerate(text):
        if character == "\r" and text.startswith("\n", position + 1):
            continue
        # An ending begins at its carriage return, so that a span never cuts one in half.
        crlf = character == "\n" and position > 0 and text[position - 1] == "\r"
        plain.append(character)
        origin.append(position - 1 if crlf else position)
    origin.append(len(text))
    return "".join(plain), origin


def _with_endings(new: str, endings: list[str]) -> str:
    """The lines of `new` with the endings that the span had, the last of them for lines that are added."""
    lines = new.split("\n")
    out = [lines[0]]
    for number, line in enumerate(lines[1:]):
        out.append(endings[min(number, len(endings) - 1)] + line)
    return "".join(out)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _with_ending_of_line(text: str, position: int, new: str) -> str:
    """Lines that an edit adds inside one line end as that line does (fault C01)."""
    end = text.find("\n", position)
    if end == -1:  # the last line, without an ending: as the line before it
        end = text.rfind("\n", 0, position)
    return _with_crlf(new) if end > 0 and text[end - 1] == "\r" else new


def _not_once(text: str, edit: Edit, number: int, found: list[int]) -> EditRefused:
    if found:
        lines = tuple(line_at(text, position) for position in found[:NEAR_LINES_MAX])
        more = f" and {len(found) - NEAR_LINES_MAX} more" if len(found) > NEAR_LINES_MAX else ""
        places = ", ".join(map(str, lines))
        hint = f"oldText occurs {len(found)} times, at lines {places}{more}; add lines around it"
        return EditRefused(number, "not_unique", hint, lines)
    lines, why = _near(text, edit.old)
    hint = f"{why} at line {', '.join(map(str, lines))}" if lines else "no line of the file is like oldText's"
    return EditRefused(number, "not_found", hint, lines)


def _near(text: str, old: str) -> tuple[tuple[int, ...], str]:
    """Where something like `old` stands, and in what it differs. Only told, never applied (faults C05, C13)."""
    composed = unicodedata.normalize("NFC", text)
    canonical = occurrences(composed, unicodedata.normalize("NFC", old))
    if canonical:
        return _lines_of(composed, canonical), "a canonically equal text (another Unicode normal form) is"
    wanted = next((squeezed for line in old.split("\n") if (squeezed := "".join(line.split()))), "")
    if not wanted:
        return (), ""
    like, holding = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        squeezed = "".join(line.split())
        if squeezed == wanted:
            like.append(number)
        elif wanted in squeezed or (len(squeezed) > 8 and squeezed in wanted):
            holding.append(number)
    if like:
        return tuple(like[:NEAR_LINES_MAX]), "the same line but for white space or what follows it is"
    return tuple(holding[:NEAR_LINES_MAX]), "a similar line is"


def _lines_of(text: str, positions: list[int]) -> tuple[int, ...]:
    return tuple(line_at(text, position) for position in positions[:NEAR_LINES_MAX])
