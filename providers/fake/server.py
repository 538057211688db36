"""A provider on this machine that speaks the four wires over real sockets. For tests and for trying things out.

It plays queued `Play`s first, then scenario files, then says hello. Everything it saw is
kept in `seen`. It listens on loopback alone.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from providers.fake import answers
from providers.fake.play import Play, play_of
from providers.fake.polite import polite_play
from providers.fake.rules import turns_of, why_refused
from providers.messages import Usage
from providers.scenarios import Entry, Step, choose

HOST = "127.0.0.1"
SEEN_MAX = 20_000
LABELS_HEADER = "x-remit-labels"
DRIP_SECONDS = 0.05
HUGE_BYTES = 40_000_000
NESTED_LEVELS = 200_000
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived."""

    wire: str
    path: str
    headers: Mapping[str, str]
    body: Any
    port: int  # of the client: tells connections apart


@dataclass
class FakeProvider:
    """The ASGI application. `key`: what requests must carry; "" takes any. `polite`: it answers checks by itself."""

    entries: Sequence[Entry] = ()
    key: str = ""
    choose_play: Callable[[Seen], Play] | None = None
    polite: bool = False
    queue: deque[Play] = field(default_factory=deque)
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))
    signatures: set[str] = field(default_factory=set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = await _read(receive)
        seen = _seen(scope, raw)
        self.seen.append(seen)
        problem = self._problem(seen)
        await _Answering(seen, send, receive).give(problem or self._play(seen))

    def _problem(self, seen: Seen) -> Play | None:
        if not seen.wire:
            return Play(fault="status", status=404, message=f"nothing lives at {seen.path}")
        if self.key and self.key not in " ".join(seen.headers.values()):
            return Play(
                fault="status", status=401, message=f"invalid key {seen.headers.get('x-api-key', '')}"
            )
        if seen.body is None:
            return Play(fault="status", status=400, message="the body is no JSON")
        problem = (
            "" if seen.wire == "embeddings" else why_refused(seen.wire, seen.body, signatures=self.signatures)
        )
        return Play(fault="status", status=400, message=problem) if problem else None

    def _play(self, seen: Seen) -> Play:
        if self.choose_play is not None:
            play = self.choose_play(seen)
        elif self.queue:
            play = self.queue.popleft()
        elif self.polite and seen.wire != "embeddings" and (not self.entries or _is_check(seen)):
            play = polite_play(seen.wire, _model_of(seen), seen.body)
        else:
            play = self._scripted(seen) if self.entries else Play()
        if play.thinking:
            self.signatures.add(answers.signature(play.thinking))
        return play

    def _scripted(self, seen: Seen) -> Play:
        labels = json.loads(seen.headers.get(LABELS_HEADER, "{}"))
        entry = choose(self.entries, {**labels, "model": seen.body.get("model", "")})
        step = entry.step(turns_of(seen.wire, seen.body)) if entry else None
        if entry is None or step is None:
            said = "the script has ended" if entry else f"no scenario entry fits {labels}"
            return Play(fault="status", status=400, message=said)
        if step.fails and step.times is not None and int(labels.get("try", "1")) > step.times:
            step = Step(
                text=step.text,
                tools=step.tools,
                usage=step.usage,
                usage_known=step.usage_known,
                stop=step.stop,
            )
        characters = int(labels.get("characters") or len(json.dumps(seen.body)))
        thinks = str(seen.body.get("thinking", {}).get("type")) in ("adaptive", "enabled")
        return play_of(
            step, step.usage or _usage(step, characters), thinking=f"{entry.name} {labels}" if thinks else ""
        )


class FakeServer:
    """`with FakeServer() as fake:` runs the provider in a thread; `fake.url(wire)` is a connector's base URL."""

    def __init__(self, provider: FakeProvider | None = None, *, port: int = 0) -> None:
        self.provider = provider or FakeProvider()
        # Named as TCP, or asyncio leaves Nagle on and every answer waits 40 ms for an acknowledgement.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, port))
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            self.provider, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def url(self, wire: str) -> str:
        return f"http://{HOST}:{self.port}{_BASES[wire]}"

    def push(self, *plays: Play) -> None:
        self.provider.queue.extend(plays)

    @property
    def seen(self) -> list[Seen]:
        return list(self.provider.seen)

    def reset(self) -> None:
        self.provider.queue.clear()
        self.provider.seen.clear()

    def serve(self) -> None:
        """In this thread, until it is stopped."""
        self._server.run([self._socket])

    def __enter__(self) -> FakeServer:
        self._thread.start()
        until = time.monotonic() + 10
        while not self._server.started:
            assert time.monotonic() < until, "the fake provider did not start"
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()


_BASES = {"anthropic": "", "openai": "/v1", "openrouter": "/api/v1", "google": "", "embeddings": "/v1"}


class _Answering:
    """The fate of one request, written to its socket."""

    def __init__(self, seen: Seen, send: Any, receive: Any) -> None:
        self._seen, self._send, self._receive = seen, send, receive

    async def give(self, play: Play) -> None:
        try:
            await self._fate(play)
        except ConnectionError:
            return  # the client went away, or the play cuts the line

    async def _fate(self, play: Play) -> None:
        wire = self._seen.wire
        match play.fault:
            case "status":
                body = answers.refusal(wire, play) if play.body is None else play.body
                await self._whole(json.dumps(body).encode(), play, status=play.status)
            case "html":
                await self._whole(b"<html><body>gateway</body></html>", play, media="text/html")
            case "bad_json":
                await self._whole(b'{"id": "x", "con', play)
            case "nested":
                await self._whole(b'{"a":' * NESTED_LEVELS + b"1" + b"}" * NESTED_LEVELS, play)
            case "huge":
                await self._whole(b'{"a":"' + b"x" * HUGE_BYTES + b'"}', play)
            case "redirect":
                target = {"location": self._seen.path, **play.headers}
                await self._whole(b"", play, status=307, headers=target)
            case "hang":
                await self._sleep(play.seconds)
                await self._answer(play)
            case "drip":
                await self._drip(play)
            case "drop":
                await self._start(200, {"content-length": "5000", "content-type": "application/json"})
                await self._write(b'{"id": "x')
                await self._cut()
            case _:
                await self._sleep(play.seconds)
                await self._answer(play)

    async def _answer(self, play: Play) -> None:
        wire, body = self._seen.wire, self._seen.body
        if wire == "embeddings":
            vectors = [{"index": index, "embedding": [1.0] * 384} for index in range(len(body["input"]))]
            await self._whole(json.dumps({"data": vectors, "usage": {"prompt_tokens": 3}}).encode(), play)
            return
        model = _model_of(self._seen)
        turn = turns_of(wire, body) + 1
        if not (body.get("stream") or ":stream" in self._seen.path):
            if play.fault in ("cut", "late_cut", "stream_error", "first_error"):
                await self._cut_whole(play)
                return
            await self._whole(json.dumps(answers.whole(wire, play, model=model, turn=turn)).encode(), play)
            return
        await self._stream(play, list(answers.events(wire, play, model=model, turn=turn)))

    async def _cut_whole(self, play: Play) -> None:
        """The buffered relative of a broken stream."""
        if play.fault in ("stream_error", "first_error"):
            await self._whole(
                json.dumps(answers.refusal(self._seen.wire, play)).encode(), play, status=play.status
            )
            return
        await self._start(200, {"content-length": "5000", "content-type": "application/json"})
        await self._cut()

    async def _stream(self, play: Play, events: list[answers.Event]) -> None:
        await self._start(
            200, {"content-type": "text/event-stream", "request-id": "req_fake", **play.headers}
        )
        last = len(events) - 1
        for index, (name, data) in enumerate(events):
            if play.fault in ("stream_error", "first_error") and index == (
                last // 2 if play.fault == "stream_error" else 0
            ):
                await self._event("error", answers.refusal(self._seen.wire, play))
                break
            if (play.fault == "cut" and index == last // 2) or (play.fault == "late_cut" and index == last):
                break
            await self._event(name, data)
        await self._send({"type": "http.response.body", "body": b""})

    async def _drip(self, play: Play) -> None:
        stream = self._seen.body.get("stream") or ":stream" in self._seen.path
        await self._start(200, {"content-type": "text/event-stream" if stream else "application/json"})
        until = time.monotonic() + play.seconds
        while time.monotonic() < until:
            await self._write(b": still here\n\n" if stream else b" ")
            await self._sleep(DRIP_SECONDS)
        await self._cut()

    async def _whole(
        self,
        body: bytes,
        play: Play,
        *,
        status: int = 200,
        media: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        said = {"content-type": media, "content-length": str(len(body)), "request-id": "req_fake"}
        await self._start(status, said | dict(play.headers if headers is None else headers))
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def _event(self, name: str, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        await self._write((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())

    async def _write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _sleep(self, seconds: float) -> None:
        """Waits, and stops waiting when the client has gone."""
        if seconds <= 0:
            return
        try:
            message = await asyncio.wait_for(self._receive(), seconds)
        except TimeoutError:
            return
        if message["type"] == "http.disconnect":
            raise ConnectionError

    async def _cut(self) -> None:
        """An answer that promised more: the server closes the line in the middle."""
        raise _Cut


class _Cut(Exception):
    """Makes the ASGI server close the connection without an end."""


def _seen(scope: Any, raw: bytes) -> Seen:
    path = scope["path"]
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return Seen(_wire_of(path), path, headers, body if isinstance(body, dict) else None, scope["client"][1])


def _model_of(seen: Seen) -> str:
    return str(seen.body.get("model") or seen.path.rsplit("/", 1)[-1].split(":")[0])


def _is_check(seen: Seen) -> bool:
    """A person tries the connector: no scenario is about that."""
    return bool(json.loads(seen.headers.get(LABELS_HEADER, "{}")).get("role") == "connector_test")


def _wire_of(path: str) -> str:
    if path.endswith("/v1/messages"):
        return "anthropic"
    if path.endswith("/chat/completions"):
        return "openrouter" if path.startswith("/api/") else "openai"
    if path.endswith("/embeddings"):
        return "embeddings"
    return "google" if "enerateContent" in path else ""


def _usage(step: Step, characters: int) -> Usage:
    said = len(step.text) + sum(len(tool.name) + len(tool.arguments) for tool in step.tools)
    return Usage(input_uncached=_tokens(characters), output=_tokens(said))


def _tokens(characters: int) -> int:
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


async def _read(receive: Any) -> bytes:
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    return b"".join(pieces)
