"""The only bytes that leave the house: one POST, no redirect, no retry, within its clocks."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpcore
import httpx

from providers.account import why_unreachable
from providers.deadlines import CONNECT_SECONDS, Deadline, call_seconds
from providers.errors import BadAnswer, ConnectionLost, NotSent, ProviderError, RequestRefused, TimedOut
from providers.lookup import look_up

RESPONSE_BYTES_MAX = 32_000_000
ERROR_BYTES_MAX = 64_000
REQUEST_BYTES_MAX = 32_000_000
WRITE_BYTES = 65_536
CONNECTIONS_MAX = 20
# Shorter than servers keep theirs: a connection that the server closes under us looks like a lost answer.
IDLE_SECONDS = 15.0
DRAIN_SECONDS = 0.25
# Minutes may pass in silence while a model thinks: keep the path through routers alive (as the vendors' SDKs do).
KEEPALIVE: list[tuple[int, int, int]] = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0x10), 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]

_ALWAYS = {"accept": "*/*", "connection": "keep-alive", "user-agent": "remit"}
_FIXED = {"content-type": "application/json", "accept-encoding": "identity"}

# The clocks of the call that this thread is making; read by its socket at every operation.
_calling = threading.local()


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (lower case) and the body as it arrives."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]

    def body(self) -> bytes:
        return b"".join(self.chunks)

    def error_text(self) -> bytes:
        """The begin of a refusal's body; the status counts even when the rest never comes."""
        seen = b""
        try:
            for chunk in self.chunks:
                seen += chunk
                if len(seen) >= ERROR_BYTES_MAX:
                    break
        except ProviderError:
            pass
        return seen[:ERROR_BYTES_MAX]

    def drain(self) -> None:
        """After an end marker: take the few bytes that let the connection be used again, if they come at once."""
        deadline: Deadline | None = _calling.deadline
        _calling.deadline = Deadline.after(DRAIN_SECONDS, now=time.monotonic()).narrowed(deadline)
        with suppress(ProviderError):
            for _ in self.chunks:
                pass


class Transport:
    """A pool of connections to one account's server. Build it after a fork, never before."""

    def __init__(self, *, scheme: str, private_addresses: bool) -> None:
        trust = httpx.create_ssl_context()
        transport = httpx.HTTPTransport(verify=trust, trust_env=False)
        # httpx offers no way to give its pool another network; the pool is httpcore's and takes one.
        transport._pool = httpcore.ConnectionPool(
            ssl_context=trust,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
            retries=0,
            socket_options=KEEPALIVE,
            network_backend=_Network(scheme, private_addresses),
        )
        self._client = httpx.Client(transport=transport, follow_redirects=False, trust_env=False)

    @contextmanager
    def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        receive_seconds: float,
        seconds_max: float,
    ) -> Iterator[Answer]:
        """One physical request. Raises `NotSent` when no byte left, else what is uncertain about its charge."""
        if len(content) > REQUEST_BYTES_MAX:
            raise RequestRefused("request_too_large", f"a request has at most {REQUEST_BYTES_MAX:,} bytes")
        if seconds_max <= 0:
            raise NotSent("deadline_exceeded: no time was left to ask")
        with _clocks(Deadline.after(seconds_max, now=time.monotonic()), receive_seconds), _as_ours():
            patience = httpx.Timeout(receive_seconds, connect=min(CONNECT_SECONDS, seconds_max))
            # Not by the client's build_request: it would merge in what the client has kept, cookies among it.
            request = httpx.Request(
                "POST",
                _address(url),
                headers=_ALWAYS | {name.lower(): value for name, value in headers.items()} | _FIXED,
                content=content,
                extensions={"timeout": patience.as_dict()},
            )
            response = self._client.send(request, stream=True)
            try:
                yield Answer(response.status_code, response.headers, _bounded(_plain(response)))
            finally:
                response.close()

    def close(self) -> None:
        self._client.close()


@lru_cache(maxsize=64)
def _address(url: str) -> httpx.URL:
    """One per account and path; reading it anew took a tenth of a call's time."""
    return httpx.URL(url)


def _plain(response: httpx.Response) -> Iterator[bytes]:
    """The bytes as they come. Nothing is unpacked: we asked for none packed, and a few of those may hold gigabytes."""
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise BadAnswer("the answer is packed, which was not asked for")
    yield from response.iter_raw()


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The body, up to the limit of a reply; a longer one is no answer."""
    size = 0
    with _as_ours():
        for chunk in chunks:
            size += len(chunk)
            if size > RESPONSE_BYTES_MAX:
                raise BadAnswer(f"the answer is longer than {RESPONSE_BYTES_MAX:,} bytes")
            yield chunk


@contextmanager
def _clocks(deadline: Deadline, receive_seconds: float) -> Iterator[None]:
    _calling.deadline, _calling.receive = deadline, receive_seconds
    try:
        yield
    finally:
        _calling.deadline = None


@contextmanager
def _as_ours() -> Iterator[None]:
    """httpx's errors in our words. The originals hold the request with its headers, so none is chained."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise NotSent(f"no connection: {_first_line(error)}") from None
    except httpx.TimeoutException:
        raise TimedOut("no answer in time") from None
    except httpx.LocalProtocolError:
        # Its words repeat the header that cannot be written, which may be a secret.
        raise ConnectionLost("the request cannot be written as HTTP") from None
    except httpx.TransportError as error:
        raise ConnectionLost(f"the connection broke: {_first_line(error)}") from None
    except (httpx.InvalidURL, UnicodeError) as error:
        raise RequestRefused("base_url", f"not a web address: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class _Network(httpcore.NetworkBackend):
    """Connects only to addresses that the deployment allows, resolved here once (no rebinding)."""

    def __init__(self, scheme: str, private_addresses: bool) -> None:
        self._scheme, self._private_addresses = scheme, private_addresses
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        # One clock for the lookup and all addresses: a name with ten dead ones is no longer a wait than one.
        begun = time.monotonic()
        problem: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in _addresses(host, port, timeout):
            literal = ipaddress.ip_address(address.split("%")[0])
            why = why_unreachable(literal, scheme=self._scheme, private_addresses=self._private_addresses)
            if why:
                problem = httpcore.ConnectError(why)
                continue
            try:
                left = None if timeout is None else max(0.01, timeout - (time.monotonic() - begun))
                patience = _left(left, httpcore.ConnectTimeout)
                stream = self._inner.connect_tcp(address, port, patience, local_address, socket_options)
                return _Stream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
        raise problem

    def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.NetworkStream:
        raise httpcore.ConnectError("providers are reached over TCP")

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"no call waits here ({seconds} s): retries are the caller's")


def _addresses(host: str, port: int, timeout: float | None) -> list[str]:
    """Within the time for connecting and within the call's total: a name service that hangs holds no worker."""
    try:
        return look_up(host, port, seconds_max=_left(timeout, httpcore.ConnectTimeout))
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(f"{host}: {error}") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} has no address: {error}") from None


class _Stream(httpcore.NetworkStream):
    """A socket whose every read and write gets what is left of the call's total (a dripping server is cut)."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            self._inner.write(buffer[start : start + WRITE_BYTES], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        limit = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, limit))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    deadline: Deadline | None = getattr(_calling, "deadline", None)
    if deadline is None:
        return timeout
    left = deadline.left(now=time.monotonic())
    if left <= 0:
        raise error("the call's total time is over")
    return call_seconds(receive=timeout if timeout is not None else left, left=left)
