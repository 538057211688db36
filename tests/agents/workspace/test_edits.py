"""Edits: exact to the byte. Only the matched span changes, all of them or none, and a refusal shows the way."""

# tables of cases

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.workspace.edits import (
    EDITS_MAX,
    Edit,
    Edited,
    EditRefused,
    apply_edits,
    occurrences,
    text_of,
    whole_characters,
)

BOM = codecs.BOM_UTF8


def edit(data: bytes, *pairs: tuple[str, str]) -> Edited | EditRefused:
    return apply_edits(data, [Edit(old, new) for old, new in pairs])


def edited(data: bytes, *pairs: tuple[str, str]) -> bytes:
    result = edit(data, *pairs)
    assert isinstance(result, Edited), result
    return result.data


def refused(data: bytes, *pairs: tuple[str, str]) -> EditRefused:
    result = edit(data, *pairs)
    assert isinstance(result, EditRefused), result
    return result


def test_one_edit_that_does_not_fit_leaves_the_file_as_it_was() -> None:
    """Acceptance 3a; rows 41, 42; C09, C11."""
    refusal = refused(b"a\nb\nb\n", ("a", "x"), ("b", "y"))
    assert (refusal.edit, refusal.problem, refusal.lines) == (2, "not_unique", (2, 3))
    assert str(refusal).startswith("edit 2: not_unique")


def test_an_edit_is_matched_against_the_text_after_the_ones_before() -> None:
    """Row 42."""
    assert edited(b"a\n", ("a", "b"), ("b", "c")) == b"c\n"
    assert refused(b"a b\n", ("a", "b"), ("b", "c")).problem == "not_unique"


@pytest.mark.parametrize(
    ("text", "part", "count"), [("aaa", "aa", 2), ("abab", "ab", 2), ("", "a", 0), ("aXa", "a", 2)]
)
def test_overlapping_occurrences_count(text: str, part: str, count: int) -> None:
    """Row 42."""
    assert len(occurrences(text, part)) == count
    if count > 1:
        assert refused(text.encode(), (part, "x")).problem == "not_unique"


@pytest.mark.parametrize("data", [b"", b"text\n"])
def test_an_empty_old_text_is_refused(data: bytes) -> None:
    """C08."""
    assert refused(data, ("", "x")).problem == "empty_old_text"


CRLF_CASES = [
    (b"a\r\nb\r\nc\r\n", ("b", "B"), b"a\r\nB\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", ("a\nb", "x\ny\nz"), b"x\r\ny\r\nz\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", ("b\n", ""), b"a\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", ("b", "x\ny"), b"a\r\nx\r\ny\r\nc\r\n"),
    (b"a\r\nb\r\nc", ("c", "x\ny"), b"a\r\nb\r\nx\r\ny"),
    (b"a\r\nb\r\nc\r\n", ("a\r\nb", "x\r\ny"), b"x\r\ny\r\nc\r\n"),
    (b"a\nb\r\nc\nd\r\n", ("b", "x\ny"), b"a\nx\r\ny\r\nc\nd\r\n"),
    (b"a\nb\r\nc\nd\r\n", ("a\nb\nc", "1\n2\n3"), b"1\n2\r\n3\nd\r\n"),
    (b"a\nb\r\nc\nd\r\n", ("\nc", "\nC"), b"a\nb\r\nC\nd\r\n"),
    (b"a\r\n\r\nb\r\n", ("a\n\nb", "a\nb"), b"a\r\nb\r\n"),
    (b"a\rb\rc\n", ("b", "B"), b"a\rB\rc\n"),
    (b"one\r\ntwo\r\n", ("two", "two\nthree"), b"one\r\ntwo\r\nthree\r\n"),
]


@pytest.mark.parametrize(("data", "pair", "result"), CRLF_CASES)
def test_line_endings_stay_as_they_are(data: bytes, pair: tuple[str, str], result: bytes) -> None:
    """C01: the file has CRLF and the model sends LF: the edit lands, every other line keeps its ending."""
    assert edited(data, pair) == result


@pytest.mark.parametrize(
    ("data", "pair", "result"),
    [
        (b"a\nb", ("b", "c"), b"a\nc"),
        (b"a\nb\n", ("b\n", "b"), b"a\nb"),
        (b"a\nb\n", ("b\n", "b\nc\n"), b"a\nb\nc\n"),
        (b"a\nb", ("a", "x"), b"x\nb"),
        (b"a", ("a", ""), b""),
        (b"x\n\n", ("x", "y"), b"y\n\n"),
        (b"a  \nb\n", ("a  \n", "c  \n"), b"c  \nb\n"),
        (b"\ta\n", ("\ta", "\t\tb"), b"\t\tb\n"),
    ],
)
def test_the_end_of_the_file_and_every_space_are_kept(
    data: bytes, pair: tuple[str, str], result: bytes
) -> None:
    """C04, C14, C16."""
    assert edited(data, pair) == result


def test_a_byte_order_mark_is_hidden_and_kept() -> None:
    """C03."""
    data = BOM + "naïve\r\ntext\r\n".encode()
    assert edited(data, ("text", "words")) == BOM + "naïve\r\nwords\r\n".encode()
    assert text_of(data) == "naïve\r\ntext\r\n"
    assert edited(data, ("naïve", "plain")) == BOM + b"plain\r\ntext\r\n"


@pytest.mark.parametrize(
    "data", ["é".encode("latin-1") + b" a\n", "中文".encode("gbk"), b"\xff\xfea\0", b"ok\n\x80"]
)
def test_a_file_that_is_no_utf8_is_refused_whole(data: bytes) -> None:
    """C17: never success with loss."""
    refusal = refused(data, ("a", "b"))
    assert refusal.problem == "not_text"
    assert "byte" in refusal.hint


@pytest.mark.parametrize("new", ["漢字かな交じり文", "👩‍👩‍👧‍👦", "é", "e\u0301", "\u2028", "\ufffd"])
def test_new_text_arrives_whole(new: str) -> None:
    """C18."""
    assert edited(b"start x end\n", ("x", new)) == f"start {new} end\n".encode()


def test_half_a_character_is_refused() -> None:
    """C18: a lone surrogate is no text."""
    assert refused(b"a\n", ("a", "\ud800")).problem == "not_text"


def test_matching_counts_in_exact_characters() -> None:
    """C12: both apostrophes occur; each edit finds its own."""
    data = "it’s and it's\n".encode()
    assert edited(data, ("it's", "x")) == "it’s and x\n".encode()
    assert edited(data, ("it’s", "x")) == b"x and it's\n"


def test_another_normal_form_is_named_and_not_applied() -> None:
    """C13."""
    refusal = refused("a\ncafe\u0301\n".encode(), ("caf\u00e9", "x"))
    assert (refusal.problem, refusal.lines) == ("not_found", (2,))
    assert "canonically equal" in refusal.hint


@pytest.mark.parametrize(
    ("text", "old", "line"),
    [
        ("def f():\n    return 1\n", "  return 1", 2),
        ("def f():\n    return 1\n", "\treturn 1\n", 2),
        ("a\nb  \nc\n", "b\nc", 2),
        ("a\nlong_function_name(x)\n", "long_function_name(x) # note", 2),
    ],
)
def test_a_near_match_is_shown_and_never_applied(text: str, old: str, line: int) -> None:
    """C05: no silent second try with stripped text."""
    result = edit(text.encode(), (old, "x"))
    if isinstance(result, Edited):  # a part of the line: an exact match is an exact match
        assert old in text
        return
    assert result.problem == "not_found"
    assert result.lines == (line,)


def test_edits_that_change_nothing_say_so() -> None:
    """C09."""
    result = edit(b"a\n", ("a", "a"))
    assert isinstance(result, Edited)
    assert not result.changed
    assert result.data == b"a\n"


def test_a_pointer_is_no_text() -> None:
    """C76."""
    assert (
        refused(b"version https://git-lfs.github.com/spec/v1\noid x\n", ("oid", "x")).problem == "lfs_pointer"
    )


def test_too_many_edits_and_none_are_refused() -> None:
    assert refused(b"a").problem == "no_edits"
    assert refused(b"a", *[("a", "a")] * (EDITS_MAX + 1)).problem == "too_large"
    assert refused(b"a", ("a" * 300_000, "")).problem == "too_large"


TEXTS = st.text(alphabet="ab\r\n é漢", max_size=40)


@given(before=TEXTS, after=TEXTS, new=st.text(alphabet="xy\n", max_size=10), mark=st.booleans())
def test_everything_outside_the_span_is_the_same_bytes(before: str, after: str, new: str, mark: bool) -> None:
    """C01, C03, C14: whatever stands around it."""
    old = "Q1Q"
    data = (BOM if mark else b"") + (before + old + after).encode()
    result = edited(data, (old, new))
    assert result.startswith((BOM if mark else b"") + before.encode())
    assert result.endswith(after.encode())


@given(lines=st.lists(st.sampled_from(["a", "bb", "c c", ""]), min_size=1, max_size=8), crlf=st.booleans())
def test_a_file_with_one_ending_keeps_one_ending(lines: list[str], crlf: bool) -> None:
    end = "\r\n" if crlf else "\n"
    text = end.join([*lines, "HERE", *lines]) + end
    result = edited(text.encode(), ("HERE\n", "one\ntwo\n")).decode()
    assert result == text.replace("HERE" + end, f"one{end}two{end}")


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
def test_a_cut_at_a_limit_falls_between_characters(character: str) -> None:
    """C18: a file that is longer than one look is no broken file."""
    data = (character * 10).encode()
    for end in range(len(data) + 1):
        cut = whole_characters(data[:end])
        assert cut.decode() == character * (end // len(character.encode()))
