"""A git patch as files, hunks and coloured lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from tasks.display.hostile import revealed

# So many lines of a patch are coloured, from its top, whole files only: colours make most of a page's weight.
COLOURED_LINES_MAX = 3_000
# Above this a patch is cut, with a link to the whole.
SHOWN_LINES_MAX = 20_000
LINE_CHARACTERS_MAX = 2_000
# A line that claims something, in the test libraries of most languages: assert, assertEqual(, assert_eq!, expect(.
_CLAIM = re.compile(r"\b(?:[Aa]ssert\w*|ASSERT\w*|EXPECT_\w+|expect)\b\s*[\s(!.]")

# Where each side begins and how many lines it has; an absent count is 1.
_HEADING = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


class LineKind(StrEnum):
    CONTEXT = "context"
    ADDED = "added"
    REMOVED = "removed"
    NOTE = "note"  # no newline at end of file


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text of one colour; `css` is Pygments' short class, or empty."""

    css: str
    text: str


@dataclass(slots=True)
class DiffLine:
    kind: LineKind
    old: int | None
    new: int | None
    text: str
    pieces: tuple[Piece, ...] = ()


@dataclass(slots=True)
class Hunk:
    heading: str
    lines: list[DiffLine] = field(default_factory=list)


@dataclass(slots=True)
class FileDiff:
    """One file of a patch. `facts` are git's own words: new file mode, renamed from, binary."""

    path: str
    facts: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)
    added: int = 0
    removed: int = 0

    @property
    def claims(self) -> tuple[int, int]:
        """How many assertions were added and removed: fewer of them prove less (fault C93)."""
        lines = [line for hunk in self.hunks for line in hunk.lines if _CLAIM.search(line.text)]
        return tuple(sum(line.kind is kind for line in lines) for kind in (LineKind.ADDED, LineKind.REMOVED))  # type: ignore[return-value]  # two kinds


@dataclass(frozen=True, slots=True)
class Patch:
    files: tuple[FileDiff, ...]
    cut: bool  # more lines than `SHOWN_LINES_MAX`

    @property
    def added(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed for file in self.files)


def read_patch(raw: bytes, *, first: frozenset[str] = frozenset()) -> Patch:
    """The patch in order, the files of `first` (tests and CI) before all others. Names are shown, never followed."""
    found = sorted(
        _files(raw.decode("utf-8", "replace").split("\n")), key=lambda file: file.path not in first
    )
    files, shown, coloured, cut = [], 0, 0, False
    for file in found:
        files.append(file)
        lines = sum(len(hunk.lines) for hunk in file.hunks)
        shown += lines
        if shown > SHOWN_LINES_MAX:
            cut = True
            file.hunks = []
            file.facts.append("left out here: the patch is too long")
        elif coloured + lines <= COLOURED_LINES_MAX:
            coloured += lines
            _colour(file)
    return Patch(tuple(files), cut)


def _files(lines: list[str]) -> Iterator[FileDiff]:
    file: FileDiff | None = None
    hunk: Hunk | None = None
    old = new = old_left = new_left = 0
    for line in lines:
        if old_left > 0 or new_left > 0:
            assert file is not None
            assert hunk is not None
            kind = {"+": LineKind.ADDED, "-": LineKind.REMOVED, "\\": LineKind.NOTE}.get(
                line[:1], LineKind.CONTEXT
            )
            text = revealed(line[1 : LINE_CHARACTERS_MAX + 1])
            counts_old = kind in (LineKind.CONTEXT, LineKind.REMOVED)
            counts_new = kind in (LineKind.CONTEXT, LineKind.ADDED)
            hunk.lines.append(DiffLine(kind, old if counts_old else None, new if counts_new else None, text))
            old, old_left = old + counts_old, old_left - counts_old
            new, new_left = new + counts_new, new_left - counts_new
            file.added += kind is LineKind.ADDED
            file.removed += kind is LineKind.REMOVED
        elif line.startswith("diff --git "):
            if file is not None:
                yield file
            file, hunk = FileDiff(_path_of(line)), None
        elif file is None:
            continue
        elif heading := _HEADING.match(line):
            hunk = Hunk(revealed(line[:LINE_CHARACTERS_MAX]))
            file.hunks.append(hunk)
            old, old_left, new, new_left = (int(count or 1) for count in heading.groups())
        elif line.startswith("\\") and hunk is not None:
            hunk.lines.append(DiffLine(LineKind.NOTE, None, None, revealed(line[1:])))
        elif line.startswith("+++ ") and line[4:] != "/dev/null":
            file.path = _named(line[4:])
        elif line.startswith("GIT binary patch") or line.startswith("Binary files"):
            file.facts.append("binary")
        elif line.startswith(
            ("new file", "deleted file", "old mode", "new mode", "rename ", "similarity", "copy ")
        ):
            file.facts.append(revealed(line))
    if file is not None:
        yield file


def _path_of(line: str) -> str:
    """The new path of `diff --git a/x b/x`; the `+++` line corrects it where the name holds ` b/` (fault C69)."""
    rest = line.removeprefix("diff --git ")
    half = len(rest) // 2
    return _named(rest[half + 1 :]) if rest[half : half + 1] == " " else _named(rest.split(" b/", 1)[-1])


def _named(name: str) -> str:
    if name.startswith('"') and name.rstrip().endswith('"'):
        inner = name.strip()[1:-1]
        try:  # git's C quoting: \303\244 are the bytes of the name
            name = (
                inner.encode("latin-1", "backslashreplace")
                .decode("unicode_escape")
                .encode("latin-1")
                .decode()
            )
        except (UnicodeDecodeError, UnicodeEncodeError):
            name = inner
    return revealed(name.removeprefix("b/").removeprefix("a/").rstrip("\t"))


def _colour(file: FileDiff) -> None:
    lexer = _lexer(file.path)
    if lexer is None:
        return
    for hunk in file.hunks:
        lines = [line for line in hunk.lines if line.kind is not LineKind.NOTE]
        coloured = list(_coloured_lines(lexer, "\n".join(line.text for line in lines)))
        for line, pieces in zip(lines, coloured, strict=False):
            line.pieces = pieces


def _lexer(path: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _coloured_lines(lexer: Lexer, text: str) -> Iterator[tuple[Piece, ...]]:
    pieces: list[Piece] = []
    for token, value in lexer.get_tokens(text):
        kind = token
        while kind not in STANDARD_TYPES and kind.parent is not None:
            kind = kind.parent
        head, *rest = value.split("\n")
        pieces.append(Piece(STANDARD_TYPES.get(kind, ""), head))
        for part in rest:
            yield tuple(piece for piece in pieces if piece.text)
            pieces = [Piece(STANDARD_TYPES.get(kind, ""), part)]
    yield tuple(piece for piece in pieces if piece.text)
