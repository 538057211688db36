"""What all wires share: check, one request, read the answer, whole or as a stream."""

from __future__ import annotations

import json
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, NoReturn, TypeAlias
from urllib.parse import urlsplit

from providers import profiles
from providers.account import Account, is_loopback
from providers.caching import check_option
from providers.catalog import ModelProfile, PriceCard
from providers.errors import BadAnswer, ConnectionLost, ProviderError, RequestRefused
from providers.messages import AssistantMessage, ModelReply, ModelRequest, NativeTurn, Usage
from providers.parts import request_characters
from providers.sse import read_events
from providers.statuses import error_of
from providers.transport import Answer, Transport

LABELS_HEADER = "x-remit-labels"
Json: TypeAlias = dict[str, Any]
# What a wire that wants an object gets for arguments that are no JSON object: the model sees what it
# wrote; nothing ever runs with it.
INVALID_ARGUMENTS = "invalid_json_arguments"
# An answer nests less; what nests more cannot be written out again wherever a stack is deeper than here.
NESTING_MAX = 200
# Longer arguments are not kept once they are read: a thousand of these are 4 MB.
PAST_ARGUMENTS_CHARACTERS_MAX = 4_000
# What an answer of another shape than its wire's makes of the code that reads it.
_MISREAD = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)


class Fold(ABC):
    """Gathers the events of a stream into the document that the same wire sends when it is buffered."""

    begun: bool = False  # something of the answer has come

    @abstractmethod
    def take(self, data: str) -> bool:
        """One event's data. True at the end marker; raises a ProviderError for an error event."""

    @abstractmethod
    def document(self) -> Json | None:
        """The whole answer; None when its end marker never came."""

    @abstractmethod
    def terminal_counts(self) -> object:
        """The final token counts, when they have come; a first guess is none."""


class HttpGateway(ABC):
    """An account at a provider, over one wire. One `send` is one physical request."""

    wire: ClassVar[str]
    default_url: ClassVar[str]

    def __init__(self, account: Account) -> None:
        self._account = account
        self._url = (account.base_url or self.default_url).rstrip("/")
        self._transport: Transport | None = None
        # The request that was found right last: who asks first whether it fits need not wait for it twice.
        self._checked: ModelRequest | None = None
        self._opened_by = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._account.name}>"

    @property
    def account(self) -> str:
        return self._account.name

    def fit(self, request: ModelRequest) -> ModelRequest:
        """The request under the name, and with the thinking, that this account has for its model."""
        named = self._account.options.models.get(request.model)
        if named is None:
            return request
        return replace(request, model=named.model, thinking=named.thinking or request.thinking)

    def price(self, model: str) -> PriceCard | None:
        return self._account.options.prices.get(model)

    def check(self, request: ModelRequest) -> None:
        profiles.check_request(request, self.profile(request), wire=self.wire)
        check_option(request, self.wire)
        if self._account.options.foreign_history == "reject":
            self._check_own_history(request)
        self._checked = request

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        if self._checked is not request:
            self.check(request)
        self._checked = None
        stream = self._streams(request)
        path, body = self.ask(request, stream=stream)
        with self._open().post(
            self._url + path,
            headers={**self._account.headers, **self.authorization(), **self._labels(request)},
            content=encode(body),
            receive_seconds=self._account.options.receive_seconds,
            seconds_max=seconds_max,
        ) as answer:
            if answer.status != 200:
                self._refuse(answer)
            request_id = _request_id(answer)
            if stream and "event-stream" in answer.headers.get("content-type", ""):
                return self._streamed(request, answer, request_id)
            return self._whole(request, decode(answer.body()), request_id)

    def profile(self, request: ModelRequest) -> ModelProfile:
        return self._account.profile(request.model)

    def route(self, model: str) -> str:
        """What binds an assistant's native turn to where it may be replayed (rows 94, 121)."""
        options = self._account.options
        return json.dumps([self.wire, self._url, model, options.routing, options.reasoning], sort_keys=True)

    def native_of(self, message: AssistantMessage, model: str) -> Any | None:
        """The turn as this very route sent it; None for another's, which goes as text and tool calls."""
        native = message.native
        return native.content if native is not None and native.route == self.route(model) else None

    def native(self, request: ModelRequest, content: Any) -> NativeTurn:
        return NativeTurn(self.route(request.model), content)

    def output_cap(self, request: ModelRequest) -> int:
        return profiles.output_cap(request.output_tokens_max, self.profile(request).output_tokens)

    @abstractmethod
    def authorization(self) -> dict[str, str]:
        """The headers that carry the key, and the wire's version."""

    @abstractmethod
    def ask(self, request: ModelRequest, *, stream: bool) -> tuple[str, Json]:
        """Path and body of the one request."""

    @abstractmethod
    def usage(self, document: Json, request: ModelRequest) -> Usage | None: ...

    @abstractmethod
    def read(self, document: Json, request: ModelRequest) -> ModelReply:
        """The reply in a whole document; `usage` and `request_id` are filled in by the caller."""

    @abstractmethod
    def fold(self) -> Fold: ...

    def _check_own_history(self, request: ModelRequest) -> None:
        """Turns of another route, or of none, do not go over this account when it says so (row 94)."""
        for message in request.messages:
            if isinstance(message, AssistantMessage) and self.native_of(message, request.model) is None:
                raise RequestRefused("history_mismatch", "the talk holds turns of another route")

    def _streams(self, request: ModelRequest) -> bool:
        said = self._account.options.stream
        return "streaming" in self.profile(request).can if said is None else said

    def _labels(self, request: ModelRequest) -> dict[str, str]:
        """Labels leave for nobody but a fake provider on this machine."""
        if not self._account.options.send_labels or not is_loopback(self._url):
            return {}
        # Counted without hidden turns, so that a script costs the same over every wire as it does offline.
        plain = tuple(
            replace(message, native=None) if isinstance(message, AssistantMessage) else message
            for message in request.messages
        )
        characters = request_characters(replace(request, messages=plain))
        return {LABELS_HEADER: json.dumps({**request.labels, "characters": str(characters)})}

    def _open(self) -> Transport:
        """This process's connections: made at the first use, and anew after a fork."""
        with self._lock:
            if self._transport is None or self._opened_by != os.getpid():
                self._transport = Transport(
                    scheme=urlsplit(self._url).scheme, private_addresses=self._account.private_addresses
                )
                self._opened_by = os.getpid()
            return self._transport

    def _refuse(self, answer: Answer) -> NoReturn:
        raw = answer.error_text()
        try:
            document = decode(raw)
        except BadAnswer:
            document = {}
        text = raw[:1_000].decode("utf-8", errors="replace")
        if 200 <= answer.status < 300:
            raise BadAnswer(f"an answer with the status {answer.status}", status=answer.status)
        raise error_of(
            answer.status,
            headers=answer.headers,
            document=document,
            text=text,
            now=utc_now(),
            secret=self._account.key,
        ) from None

    def _whole(self, request: ModelRequest, document: Json, request_id: str) -> ModelReply:
        usage: Usage | None = None
        try:
            usage = self.usage(document, request)
            reply = self.read(document, request)
        except ProviderError as error:
            error.usage, error.request_id = error.usage or usage, error.request_id or request_id
            raise
        except _MISREAD as error:
            problem = f"the answer has another shape than this wire's ({type(error).__name__})"
            raise BadAnswer(problem, usage=usage, request_id=request_id) from None
        return _storable(replace(reply, usage=usage, request_id=request_id))

    def _streamed(self, request: ModelRequest, answer: Answer, request_id: str) -> ModelReply:
        fold = self.fold()
        try:
            for _, data in read_events(answer.chunks):
                if fold.take(data):
                    answer.drain()
                    break
            document = fold.document()
            if document is None:
                raise ConnectionLost("the stream ended before its end marker")
        except ProviderError as error:
            # Counts that came before the break are kept, once, beside the failure (row 164).
            error.output_began = fold.begun
            error.usage = error.usage or self._terminal_usage(fold, request)
            error.request_id = error.request_id or request_id
            raise
        except _MISREAD as error:
            problem = f"an event has another shape than this wire's ({type(error).__name__})"
            raise BadAnswer(
                problem, usage=self._terminal_usage(fold, request), request_id=request_id
            ) from None
        return self._whole(request, document, request_id)

    def _terminal_usage(self, fold: Fold, request: ModelRequest) -> Usage | None:
        counts = fold.terminal_counts()
        return None if counts is None else self.usage({self.counts_key: counts}, request)

    counts_key: ClassVar[str] = "usage"


def utc_now() -> datetime:
    """The time that a Retry-After date is counted from: here is the edge of the house."""
    return datetime.now(UTC)


def encode(body: Mapping[str, Any]) -> bytes:
    """The bytes of a request. A lone surrogate, which UTF-8 has no bytes for, is escaped."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def decode(raw: bytes | str) -> Json:
    """A JSON object; anything else, and NaN, 1e400, and a nesting too deep to read, is a BadAnswer."""
    try:
        document = json.loads(raw, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer is no JSON that can be read") from None
    if not isinstance(document, dict):
        raise BadAnswer("the answer is no JSON object")
    if _nests_deeper(document, NESTING_MAX):
        raise BadAnswer(f"the answer nests more than {NESTING_MAX} levels")
    return document


def arguments_object(arguments: str) -> Json:
    """Exact arguments as the object that some wires want in history."""
    try:
        return decode(arguments)
    except BadAnswer:
        return {INVALID_ARGUMENTS: arguments}


def past_arguments(arguments: str) -> Json:
    """The same, of a turn in history: written out, never changed. Each call of a run sends all turns before it."""
    if len(arguments) > PAST_ARGUMENTS_CHARACTERS_MAX:
        return arguments_object(arguments)
    return _kept_arguments(arguments)


@lru_cache(maxsize=1_024)
def _kept_arguments(arguments: str) -> Json:
    return arguments_object(arguments)


def text_of(value: object) -> str:
    """A text that must be one."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _storable(reply: ModelReply) -> ModelReply:
    """Texts that every database and file takes: no half characters, and names without a NUL."""
    calls = tuple(replace(call, id=_word(call.id), name=_word(call.name)) for call in reply.tool_calls)
    return replace(
        reply,
        text=_whole_characters(reply.text),
        model=_word(reply.model),
        response_id=_word(reply.response_id),
        tool_calls=calls,
    )


def _whole_characters(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _word(text: str) -> str:
    return _whole_characters(text).replace("\0", "?")


def _nests_deeper(document: Json, levels: int) -> bool:
    layer: list[Any] = [document]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    """Python reads 1e400 as infinite, which no JSON can say again: the turn that holds it could not be sent back."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("out of range")
    return number


def _request_id(answer: Answer) -> str:
    return (answer.headers.get("request-id") or answer.headers.get("x-request-id") or "")[:200]
