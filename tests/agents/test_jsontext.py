"""JSON in model text: fault C88's shapes are read, everything doubtful is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.jsontext import Found, NotFound, extract_object, parse_arguments

FENCE = "```"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '  \ufeff{"a": 1}\n',
        'Sure, here it is:\n\n{"a": 1}',
        '{"a": 1}\nLet me know if you need more.',
        f'{FENCE}json\n{{"a": 1}}\n{FENCE}',
        f'The plan:\n{FENCE}\n{{"a": 1}}\n{FENCE}\nDone.',
        f'{FENCE}json\n{{"a": 1}}',  # the fence is never closed
        'In code { and } mean a block, as in {see below}. {"a": 1}',
        'First {} was tried, then {"a": 1}',
        '{"a": 1} and, to repeat it, {"a": 1}',
    ],
)
def test_the_object_is_found_whatever_stands_around_it(text: str) -> None:
    """C88."""
    assert extract_object(text) == Found({"a": 1})


def test_a_fence_inside_a_string_is_text() -> None:
    """C88."""
    value = {"a": f"use {FENCE}json\n{{}}\n{FENCE} here"}
    assert extract_object(f"{FENCE}json\n{json.dumps(value)}\n{FENCE}") == Found(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no JSON here", "no_object"),
        ("[1, 2]", "no_object"),
        ('{"a": 1, "a": 2}', "duplicate_key"),
        ('{"a": {"b": 1, "b": 1}}', "duplicate_key"),
        ('{"a": NaN}', "not_finite"),
        ('{"a": -Infinity}', "not_finite"),
        ('{"a": 1e999}', "not_finite"),
        ('{"a": "\\ud800"}', "bad_text"),
        ('{"a": "\\u0000"}', "bad_text"),
        ('{"a": [{"b": 1}, {"b": ', "not_json"),  # the inner object is not the answer
        ('{"a": 1,}', "not_json"),
        ('{"a": 1} or {"a": 2}', "several_objects"),
        ('{"a": ' + "[" * 100_000, "too_deep"),
        ('{"a": ' + "9" * 5_000 + "}", "not_json"),
        ("x" * 1_000_001, "too_long"),
    ],
)
def test_what_is_doubtful_is_refused_with_its_reason(text: str, problem: str) -> None:
    """C88, C87: no part of a broken answer is ever used."""
    found = extract_object(text)
    assert isinstance(found, NotFound)
    assert found.problem == problem


def test_an_answer_that_was_cut_off_is_an_error_of_its_own() -> None:
    """C87: even when what is there happens to be valid."""
    found = extract_object('{"a": 1}', cut_off=True)
    assert isinstance(found, NotFound)
    assert found.problem == "cut_off"


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '"a"', '{"a": 1} ', 'x{"a":1}', '{"a":1}{"a":1}', "{'a': 1}"]
)
def test_arguments_of_a_tool_are_one_object_and_never_repaired(text: str) -> None:
    """Row 48. Only space around the object is allowed."""
    found = parse_arguments(text)
    assert isinstance(found, Found) is (text == '{"a": 1} ')


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc{}`\"'", max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text("abc{}`\"'", min_size=1), values, min_size=1),
    st.sampled_from(["", "Here: ", f"{FENCE}json\n"]),
)
def test_any_object_comes_back_as_it_was_written(value: dict[str, object], before: str) -> None:
    assert extract_object(before + json.dumps(value) + "\nBye.") == Found(value)
