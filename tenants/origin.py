"""Where the present request comes from: its id and the address, for the audit list and the logs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import uuid4

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

REQUEST_ID_HEADER = "X-Request-ID"
# What we take over from a proxy: enough for every usual id, nothing that could break a log line or a header.
SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}")


@dataclass(frozen=True, slots=True)
class Origin:
    """One request's id and the address of its client; both empty in a job or a command."""

    request_id: str = ""
    remote: str = ""


_origin: ContextVar[Origin] = ContextVar("origin", default=Origin())  # noqa: B039  # frozen


def current_origin() -> Origin:
    return _origin.get()


class OriginMiddleware:
    """Binds the origin for the time of the request and tells the client its id.

    The address is the peer's as the server saw it. Behind a proxy that is uvicorn's business
    (`--proxy-headers --forwarded-allow-ips`), so that no client can name its own address.
    """

    async_capable = True
    sync_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer_async(request)
        origin = _bind(request)
        return _told(self.get_response(request), origin)

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        origin = _bind(request)
        response = await self.get_response(request)  # type: ignore[misc]  # the async twin of the same callable
        return _told(response, origin)


def _bind(request: HttpRequest) -> Origin:
    """No reset afterwards: a streamed answer goes on after the view has returned; the next request binds anew."""
    sent = request.headers.get(REQUEST_ID_HEADER, "")
    request_id = sent if SANE_REQUEST_ID.fullmatch(sent) else uuid4().hex
    origin = Origin(request_id, str(request.META.get("REMOTE_ADDR", ""))[:64])
    _origin.set(origin)
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id)
    return origin


def _told(response: HttpResponseBase, origin: Origin) -> HttpResponseBase:
    response.headers[REQUEST_ID_HEADER] = origin.request_id
    return response
