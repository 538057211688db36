"""A server that means harm: what it sends costs no memory, crashes nothing, and leads to nobody else's machine."""

from __future__ import annotations

import gzip
import ipaddress
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from providers.account import Account, check_headers, read_options, why_unreachable
from providers.catalog import profile_of
from providers.errors import BadAnswer, ConnectionLost, RequestRefused
from providers.messages import ModelRequest
from providers.parts import read_parts
from providers.profiles import check_request, check_routing
from providers.sse import read_events
from providers.transport import RESPONSE_BYTES_MAX
from providers.wire import INVALID_ARGUMENTS, NESTING_MAX, HttpGateway
from tests.providers.conftest import EDIT, GATEWAYS, WIRES, ask

Answering = Callable[..., HttpGateway]
# Of a processor: a hundred times what it takes.
PATIENCE_SECONDS = 5.0


@pytest.fixture
def answering() -> Iterator[Answering]:
    """`answering("openai", body)`: an account whose server answers one call with exactly these bytes."""
    servers: list[socket.socket] = []

    def make(wire: str, body: bytes, *, headers: str = "", stream: bool = False) -> HttpGateway:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        kind = "text/event-stream" if stream else "application/json"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        threading.Thread(target=_answer, args=(server, head.encode() + body), daemon=True).start()
        account = Account(
            name="test",
            base_url=f"http://127.0.0.1:{server.getsockname()[1]}",
            options=read_options({"stream": stream}),
        )
        return GATEWAYS[wire](account)

    yield make
    for server in servers:
        server.close()


def _answer(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        head, _, body = connection.recv(1 << 16).partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(1 << 16)
        connection.sendall(answer)


def problem_of(gateway: HttpGateway, wire: str) -> BadAnswer:
    with pytest.raises(BadAnswer) as caught:
        gateway.send(ask(wire), seconds_max=10)
    return caught.value


def test_a_packed_answer_is_never_unpacked(answering: Answering) -> None:
    """A kilobyte that holds gigabytes: gzip in gzip grows a million times, in one step."""
    bomb = gzip.compress(gzip.compress(b"\0" * 10 * RESPONSE_BYTES_MAX))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for packing in ("gzip, gzip", "gzip", "deflate", "x-unknown"):
        error = problem_of(
            answering("anthropic", bomb, headers=f"content-encoding: {packing}\r\n"), "anthropic"
        )
        assert error.may_be_billed
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < RESPONSE_BYTES_MAX


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        ("openai", {"choices": [{"delta": {"tool_calls": [{"index": "INF", "id": "a"}]}}]}),
        ("openai", {"choices": [{"delta": {"tool_calls": [{"index": [], "id": "a"}]}}]}),
        ("openai", {"choices": [{"delta": {"tool_calls": 5}}]}),
        ("openrouter", {"choices": [{"delta": {"reasoning_details": [5]}}]}),
        ("anthropic", {"type": "content_block_start", "index": "INF", "content_block": {}}),
        ("anthropic", {"type": "message_start", "message": 5}),
        ("google", {"candidates": [{"content": {"parts": 5}}]}),
        ("google", {"candidates": [{"index": "INF", "content": 5}]}),
    ],
)
def test_an_event_of_another_shape_is_a_bad_answer(answering: Answering, wire: str, event: Any) -> None:
    """Also a number that is too large for any: JSON has no limit, and Python reads 1e999 as infinite."""
    body = f"data: {json.dumps(event)}\n\n".replace('"INF"', "1e999").encode()
    with pytest.raises(Exception) as caught:  # of which kind is what is asked here
        answering(wire, body, stream=True).send(ask(wire), seconds_max=10)
    assert type(caught.value).__name__ in ("BadAnswer", "ConnectionLost")


@pytest.mark.parametrize("wire", WIRES)
def test_deep_nesting_is_a_bad_answer_wherever_it_begins_to_hurt(answering: Answering, wire: str) -> None:
    """Not only where this stack can read it no more: what was read must be written again, from deeper down."""
    for levels in (NESTING_MAX, 500, 900, 100_000):
        nest = b'{"content":' + b"[" * levels + b"]" * levels + b"}"
        problem_of(answering(wire, nest), wire)


@pytest.mark.parametrize("number", ["1e400", "-1e999"])
@pytest.mark.parametrize("wire", ["anthropic", "google"])
def test_a_number_too_large_for_any_is_no_argument(answering: Answering, wire: str, number: str) -> None:
    """Written out again it would be Infinity, which is no JSON: every later request of the talk would be refused."""
    call = {"type": "tool_use", "id": "t", "name": "edit", "input": {"a": "BIG"}}
    part = {"functionCall": {"name": "edit", "args": {"a": "BIG"}}}
    document: dict[str, Any] = {
        "anthropic": {"id": "m", "content": [call], "stop_reason": "tool_use"},
        "google": {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]},
    }
    body = json.dumps(document[wire]).replace('"BIG"', number).encode()
    assert problem_of(answering(wire, body), wire).may_be_billed


def test_a_streamed_number_too_large_for_any_goes_back_as_the_text_it_was(answering: Answering) -> None:
    """The turn can be sent again: what cannot be an object is shown to the model as it wrote it."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "model": "claude"}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "edit", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": 1e400}'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    reply = answering("anthropic", body, stream=True).send(ask("anthropic"), seconds_max=10)
    assert reply.tool_calls[0].arguments == '{"a": 1e400}'
    assert reply.native is not None
    assert reply.native.content[0]["input"] == {INVALID_ARGUMENTS: '{"a": 1e400}'}


def test_a_long_line_in_small_pieces_is_looked_at_once() -> None:
    """A line of eight megabytes in pieces of a hundred bytes kept a processor busy for minutes."""
    pieces = 80_001
    line = b"data: " + b"x" * (100 * pieces - 6)
    begun = time.process_time()
    with pytest.raises(BadAnswer):
        list(read_events(line[at : at + 100] for at in range(0, len(line) + 100, 100)))
    assert time.process_time() - begun < PATIENCE_SECONDS


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_events_are_the_same_however_they_are_cut(ending: str, size: int) -> None:
    raw = ending.join(["event: a", "data: 1", "data: 2", "", "data: \u2028é", "", "data: cut"]).encode()
    pieces = (raw[at : at + size] for at in range(0, len(raw), size))
    assert list(read_events(pieces)) == [("a", "1\n2"), ("", "\u2028é")]


def test_a_header_that_cannot_be_written_is_not_repeated_in_the_error() -> None:
    """A row from before the rule, or a key that a later rule lets through: its words hold no secret."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        account = Account(
            name="test", base_url=f"http://127.0.0.1:{server.getsockname()[1]}", headers={"x-a": " s3cret"}
        )
        with pytest.raises(ConnectionLost) as caught:
            GATEWAYS["anthropic"](account).send(ask("anthropic"), seconds_max=10)
    assert "s3cret" not in str(caught.value)


def test_half_characters_and_nuls_of_an_answer_can_be_stored(answering: Answering) -> None:
    document = {
        "id": "m\0\ud800",
        "model": "claude\0",
        "content": [
            {"type": "text", "text": "a\ud800b"},
            {"type": "tool_use", "id": "t\ud800", "name": "x\0", "input": {"a": "\ud800"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    reply = answering("anthropic", json.dumps(document).encode()).send(ask("anthropic"), seconds_max=10)
    stored = (reply.text, reply.response_id, reply.model, reply.tool_calls[0].id, reply.tool_calls[0].name)
    assert stored == ("a?b", "m??", "claude?", "t?", "x?")
    assert "".join(stored).encode()


@pytest.mark.parametrize(
    ("address", "public", "private"),
    [
        ("1.1.1.1", True, True),
        ("2606:4700::1111", True, True),
        ("::ffff:1.1.1.1", True, True),
        ("64:ff9b::101:101", True, True),  # how a network without IPv4 reaches 1.1.1.1
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("10.0.0.1", False, True),
        ("fd00::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("64:ff9b::a00:1", False, True),
        ("2002:a00:1::1", False, True),  # 6to4 of 10.0.0.1
        ("2002:7f00:1::1", False, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("2002:a9fe:a9fe::1", False, False),
        ("fe80::1", False, False),
        ("fec0::1", False, False),
        ("100.100.100.200", False, False),
        ("192.0.0.192", False, False),
        ("fd00:ec2::254", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("255.255.255.255", False, False),
        ("::127.0.0.1", False, False),
    ],
)
def test_where_a_request_may_go(address: str, public: bool, private: bool) -> None:
    """Whatever an address is wrapped in, what it leads to decides; credentials of a cloud are at no address."""
    literal = ipaddress.ip_address(address)
    assert (why_unreachable(literal, scheme="https", private_addresses=False) == "") is public
    assert (why_unreachable(literal, scheme="https", private_addresses=True) == "") is private


def test_a_line_break_at_the_end_of_a_name_is_no_name() -> None:
    refused: list[Callable[[], object]] = [
        lambda: check_headers({"x-a\n": "v"}),
        lambda: check_headers({"expect": "100-continue"}),
        lambda: check_routing({"only": ["a\n"]}),
        lambda: read_options({"models": {"a": "b\n"}}),
        lambda: _checked(ask("openai", model="gpt-4o-mini\n")),
        lambda: _checked(ask("openai", tools=(type(EDIT)("edit\n", "", {}),))),
    ]
    for attempt in refused:
        with pytest.raises(RequestRefused):
            attempt()


@pytest.mark.parametrize("kind", [[], {}, None, 5])
def test_a_part_of_no_kind_is_refused_by_its_index(kind: object) -> None:
    with pytest.raises(RequestRefused, match=r"invalid_prompt_part\(1\)"):
        read_parts([{"type": "text", "text": "a"}, {"type": kind}])


@pytest.mark.parametrize("option", [True, 5, "ttl", ["ttl"], {"key": 5}, {"ttl": None}, {"ttl": "2h"}])
@pytest.mark.parametrize("wire", WIRES)
def test_a_cache_option_of_another_shape_is_refused(wire: str, option: Any) -> None:
    gateway = GATEWAYS[wire](Account(name="test", base_url="http://127.0.0.1:1"))
    with pytest.raises(RequestRefused):
        gateway.check(ask(wire, prompt_cache=option))


def _checked(request: ModelRequest) -> None:
    check_request(request, profile_of("gpt-4o-mini"), wire="openai")
