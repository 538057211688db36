"""Reading: one definition of a line, and a window that always moves on."""

# tables of cases

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.workspace.window import READ_CHARACTERS_MAX, line_at, split_lines, window


def test_a_long_file_is_read_in_three_windows() -> None:
    """Acceptance 3b; row 40."""
    text = "".join(f"{number:099d}\n" for number in range(1, 1_002))
    first = window(text)
    assert (first.lines, len(first.text), first.next_line) == (400, 40_000, 401)
    assert "fromLine 401" in first.note
    second = window(text, from_line=401)
    assert (second.first_line, second.lines, second.next_line) == (401, 400, 801)
    third = window(text, from_line=801)
    assert (third.lines, third.next_line, third.note) == (201, None, "")


def test_a_line_longer_than_a_window_is_cut_and_says_how_to_go_on() -> None:
    """C25, C26; row 40."""
    text = "x" * 100_000 + "\nlast\n"
    first = window(text)
    assert len(first.text) == READ_CHARACTERS_MAX
    assert (first.next_line, first.next_column) == (1, 40_001)
    assert "truncated" in first.note
    second = window(text, from_line=1, from_column=40_001)
    third = window(text, from_line=1, from_column=80_001)
    assert (first.text + second.text + third.text) == text
    assert third.next_line is None


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a\n"]),
        ("a\nb", ["a\n", "b"]),
        ("a\r\nb\r\n", ["a\r\n", "b\r\n"]),
        ("a\x0cb\u2028c\x85d\re\n", ["a\x0cb\u2028c\x85d\re\n"]),
        ("\n\n", ["\n", "\n"]),
    ],
)
def test_only_a_newline_ends_a_line(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines
    assert "".join(split_lines(text)) == text


def test_past_the_end_there_is_nothing() -> None:
    assert window("a\n", from_line=5).text == ""
    assert window("", from_line=1).total_lines == 0


def test_exactly_one_window_is_not_cut() -> None:
    text = "x" * (READ_CHARACTERS_MAX - 1) + "\n"
    assert window(text).next_line is None
    assert window(text + "y").next_line == 2


@given(
    text=st.text(alphabet="ab\r\n\u2028é", max_size=200),
    characters_max=st.integers(min_value=1, max_value=30),
)
def test_the_windows_of_a_file_are_the_file(text: str, characters_max: int) -> None:
    """Whatever the lines are: reading on ends, and gives every character once."""
    parts, line, column = [], 1, 1
    for _ in range(500):
        seen = window(text, from_line=line, from_column=column, characters_max=characters_max)
        assert len(seen.text) <= characters_max
        parts.append(seen.text)
        if seen.next_line is None:
            break
        assert (seen.next_line, seen.next_column or 1) > (line, column)
        line, column = seen.next_line, seen.next_column or 1
    assert "".join(parts) == text


@given(text=st.text(alphabet="ab\n\r", min_size=1, max_size=60), data=st.data())
def test_line_numbers_of_edits_and_reads_agree(text: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    before = 0
    for number, line in enumerate(split_lines(text), start=1):
        if before <= position < before + len(line):
            assert line_at(text, position) == number
        before += len(line)
