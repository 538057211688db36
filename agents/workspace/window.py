"""Pure: what a line is, and a window of a file that fits an answer (row 40)."""

from __future__ import annotations

from dataclasses import dataclass

READ_CHARACTERS_MAX = 40_000


@dataclass(frozen=True, slots=True)
class Window:
    """`text` is exact. `next_line` and `next_column` say where to go on; both None at the end of the file."""

    text: str
    first_line: int
    lines: int  # how many lines `text` touches
    total_lines: int
    next_line: int | None = None
    next_column: int | None = None  # 1-based; set when the window ended inside a line

    @property
    def note(self) -> str:
        """What the reader is told after the text; empty when the file ended."""
        if self.next_line is None:
            return ""
        if self.next_column is not None:
            return (
                f"[line {self.next_line} of {self.total_lines} is longer than one window and was truncated; "
                f"continue with fromLine {self.next_line}, fromColumn {self.next_column}]"
            )
        return f"[{self.total_lines} lines in all; continue with fromLine {self.next_line}]"


def split_lines(text: str) -> list[str]:
    r"""A line ends with `\n` and keeps its ending; a last line may lack it. Nothing else ends a line.

    The one definition of reading, listing, editing and diffs: not `str.splitlines`, which also
    breaks at form feeds, U+2028 and lone carriage returns, where git does not.
    """
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def line_at(text: str, position: int) -> int:
    """The 1-based number of the line that holds the character at `position`."""
    return text.count("\n", 0, position) + 1


def window(
    text: str, *, from_line: int = 1, from_column: int = 1, characters_max: int = READ_CHARACTERS_MAX
) -> Window:
    """At most `characters_max` characters from a line on, cut at a line boundary (acceptance 3b).

    A line that does not fit is cut inside and names its own next column, so that reading on
    always moves forward (faults C25, C26). Past the end: an empty window.
    """
    assert from_line >= 1
    assert from_column >= 1
    assert characters_max >= 1
    lines = split_lines(text)
    total = len(lines)
    if from_line > total:
        return Window("", from_line, 0, total)
    first = lines[from_line - 1][from_column - 1 :]
    if len(first) > characters_max:
        return Window(first[:characters_max], from_line, 1, total, from_line, from_column + characters_max)
    taken, size = [first], len(first)
    for line in lines[from_line:]:
        if size + len(line) > characters_max:
            break
        taken.append(line)
        size += len(line)
    following = from_line + len(taken)
    return Window("".join(taken), from_line, len(taken), total, following if following <= total else None)
