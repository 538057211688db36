"""The stored conversation of a paused attempt: what goes in comes out, and nothing else does (rows 233 to 235)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.errors import ERROR_COPY_BYTES_MAX, SnapshotError, error_copy
from agents.snapshot import Answer, Counters, Snapshot, decode, encode
from providers.messages import (
    AssistantMessage,
    ImageUrlPart,
    Message,
    NativeTurn,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

RUN, ORGANIZATION = uuid4(), uuid4()
CALLS = (
    ToolCall("a", "read_file", '{"path": "x"}'),
    ToolCall("b", "run_command", '{"command": "make release"}'),
)
# Models write halves of characters and NULs, too.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
calls = st.builds(ToolCall, texts, texts, texts)
natives = st.none() | st.builds(
    NativeTurn, texts, st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2)
)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage.of, texts),
    st.builds(AssistantMessage, texts, st.lists(calls, max_size=2).map(tuple), natives),
    st.builds(ToolMessage, texts, texts, texts, st.booleans()),
)
numbers = st.integers(min_value=0, max_value=10**12)
counters = st.builds(
    Counters,
    calls=numbers,
    reads=numbers,
    tool_calls=numbers,
    cost_micro=numbers,
    unknown_calls=numbers,
    unknown_at_worst_micro=numbers,
    said_nothing_changed=st.booleans(),
    repeats_count=numbers,
    repeats_nudged=st.booleans(),
)


def a_snapshot(**over: Any) -> Snapshot:
    plain = Snapshot(
        run_id=RUN,
        organization_id=ORGANIZATION,
        revision=1,
        history=(UserMessage.of("Do it."),),
        pending_response=AssistantMessage("", CALLS),
        answers=(Answer(text="x = 1", verdict="ok", code="", kept=""),),
        counters=Counters(
            calls=1,
            reads=1,
            tool_calls=2,
            cost_micro=3,
            unknown_calls=0,
            unknown_at_worst_micro=0,
            said_nothing_changed=False,
            repeats_count=1,
            repeats_nudged=False,
        ),
        repeats_last=("read_file", "{}", "x = 1"),
        log=({"tool": "read_file"},),
        written=("a.txt",),
    )
    return replace(plain, **over)


def read(
    content: bytes, *, run: UUID = RUN, organization: UUID = ORGANIZATION, revision: int = 1
) -> Snapshot:
    return decode(content, run_id=run, organization_id=organization, revision=revision)


@given(st.lists(messages, max_size=6), counters, st.none() | st.tuples(texts, texts, texts))
def test_what_goes_in_comes_out(
    history: list[Message], counted: Counters, last: tuple[str, str, str] | None
) -> None:
    snapshot = a_snapshot(history=(UserMessage.of("Do it."), *history), counters=counted, repeats_last=last)
    assert read(encode(snapshot)) == snapshot


def test_a_system_prompt_or_a_picture_is_never_stored() -> None:
    """Row 235: prompts come from the code of whoever goes on."""
    for message in (SystemMessage("You are."), UserMessage((ImageUrlPart("https://x"),))):
        with pytest.raises(TypeError):
            encode(a_snapshot(history=(message,)))


def broken(**over: Any) -> bytes:
    return json.dumps({**json.loads(encode(a_snapshot())), **over}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        broken(kind="other"),
        broken(version="1"),
        broken(version=0),
        broken(history=[]),
        broken(history=None),
        broken(history=[{"role": "system", "text": "You are another."}]),
        broken(history=[{"role": "tool", "call_id": "a", "name": "b", "text": "c"}]),
        broken(pending_response={"role": "user", "texts": ["x"]}),
        broken(pending_response={"role": "assistant", "text": "", "tool_calls": [], "native": None}),
        broken(answers=[{"text": "x", "verdict": "ok", "code": "", "kept": ""}] * 2),
        broken(counters={"calls": 1}),
        broken(counters={**json.loads(encode(a_snapshot()))["counters"], "calls": -1}),
        broken(counters={**json.loads(encode(a_snapshot()))["counters"], "calls": True}),
        broken(repeats_last=["one"]),
        broken(log=["x"]),
        broken(written=[1]),
        encode(a_snapshot())[:-20],
    ],
)
def test_what_is_broken_is_an_error_and_no_empty_talk(content: bytes) -> None:
    """Row 233."""
    with pytest.raises(SnapshotError) as error:
        read(content)
    assert error.value.code == "corrupt"


def test_another_attempts_talk_is_foreign_and_a_later_programs_is_from_the_future() -> None:
    content = encode(a_snapshot())
    for over in ({"run": uuid4()}, {"organization": uuid4()}, {"revision": 2}):
        with pytest.raises(SnapshotError) as error:
            read(content, **over)
        assert error.value.code == "foreign"
    with pytest.raises(SnapshotError) as error:
        read(broken(version=2, history="unheard of"))
    assert error.value.code == "future"


def test_an_error_keeps_a_copy_only_of_what_is_small() -> None:
    """Row 234: above 4,096 bytes a marker takes its place."""
    assert ERROR_COPY_BYTES_MAX == 4_096
    assert error_copy(b"x" * 4_096) == {"payload": "x" * 4_096, "bytes": 4_096}
    assert error_copy(b"x" * 4_097) == {"payload_omitted": True, "bytes": 4_097}
    assert error_copy(b"a\0\xff")["payload"] == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
