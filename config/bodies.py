"""How much of a request is taken from the network at all, decided before the first byte of it is kept.

The framework below reads a whole body before any of its middleware runs. So who sends more than a form
has is asked here who they are, and waits for an answer before sending.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import IO, Any, TypeAlias
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import connections
from django.http import Http404, HttpResponse
from django.urls import resolve
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from config.errors import Problem, answer, too_large
from tasks.uploads import FOLDER, bundle_bytes_max
from tenants.access import project_for
from tenants.bodies import takes_large_body
from tenants.errors import NotVisible, RoleTooLow
from tenants.models import Role, Scope
from tenants.tokens import BearerToken, allows

# Of one web process. Files of others wait for their turn, and a slow sender does not hold one for ever.
UPLOADS_AT_ONCE_MAX = 8
UPLOADS_OF_ONE_PERSON_MAX = 2
UPLOAD_SECONDS_MAX = 3_600
RETRY_SECONDS = 30
FORM_BYTES_MAX = 64 * 1024  # of what stands around a file in a form

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Connection: TypeAlias = dict[str, Any]  # ASGI's scope
App = Callable[[Connection, Receive, Send], Awaitable[None]]


class DiskHandler(ASGIHandler):
    """Keeps large bodies beside the data; the machine's folder for temporary files is often its memory."""

    async def read_body(self, receive: Receive) -> IO[bytes]:
        folder = settings.PLANE.data_dir / FOLDER
        body: IO[bytes] | None = None
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                if body is not None:
                    body.close()
                raise RequestAborted
            if body is None:
                if message.get("more_body", False):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    body = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # the framework closes it
                        max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE, mode="w+b", dir=str(folder)
                    )
                else:
                    return BytesIO(message.get("body", b""))
            body.write(message.get("body", b""))
            if not message.get("more_body", False):
                body.seek(0)
                return body


@dataclass(frozen=True, slots=True)
class Allowed:
    """What this request may send, and whose it is when that is more than anybody may."""

    bytes_max: int
    user_id: Any = None


class BodyGate:
    """ASGI: passes small bodies on, large ones of those who may send one, and answers 413 to the rest."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._at_work: Counter[Any] = Counter()

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_large(scope):
            await self.app(scope, receive, send)
            return
        allowed = await asyncio.to_thread(_allowed, scope)
        declared = _declared(scope)
        if declared is not None and declared > allowed.bytes_max:
            await _answer(scope, send, too_large(allowed.bytes_max))
        elif allowed.user_id is None:
            await self._counted(scope, receive, send, allowed)
        elif self._is_busy(allowed.user_id):
            await _answer(scope, send, _busy())
        else:
            self._at_work[allowed.user_id] += 1
            try:
                await self._counted(scope, receive, send, allowed)
            finally:
                self._at_work[allowed.user_id] -= 1
                self._at_work += Counter()  # forgets those at nothing

    def _is_busy(self, user_id: Any) -> bool:
        return (
            self._at_work.total() >= UPLOADS_AT_ONCE_MAX
            or self._at_work[user_id] >= UPLOADS_OF_ONE_PERSON_MAX
        )

    async def _counted(self, scope: Connection, receive: Receive, send: Send, allowed: Allowed) -> None:
        """What is too long or too slow looks to the application like somebody who has gone away."""
        received, is_whole = 0, False
        until = time.monotonic() + UPLOAD_SECONDS_MAX
        problem: Problem | None = None

        async def bounded() -> Message:
            nonlocal received, is_whole, problem
            if is_whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(until - time.monotonic(), 0))
            except TimeoutError:
                problem = Problem(status=408, code="too_slow", detail="The file did not come in time.")
                return {"type": "http.disconnect"}
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > allowed.bytes_max:
                problem = too_large(allowed.bytes_max)
                return {"type": "http.disconnect"}
            return message

        await self.app(scope, bounded, send)
        if problem is not None:
            await _answer(scope, send, problem)


def _is_large(scope: Connection) -> bool:
    declared = _declared(scope)
    if declared is not None:
        return declared > settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


def _declared(scope: Connection) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _allowed(scope: Connection) -> Allowed:
    """More than a form has: for a view that takes it, from an admin of the project in its address."""
    usual = Allowed(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    try:
        request = ASGIRequest(scope, BytesIO())
        found = resolve(request.path_info)
        if not takes_large_body(found.func):
            return usual
        user = _person(request)
        project_for(user, UUID(str(found.kwargs["project_id"])), at_least=Role.ADMIN)
    except (Http404, NotVisible, RoleTooLow, APIException, UnicodeDecodeError):
        return usual
    finally:
        connections.close_all()  # of this thread, which no request's end looks after
    return Allowed(bundle_bytes_max() + FORM_BYTES_MAX, user.pk)


def _person(request: ASGIRequest) -> Any:
    """The token's user, whose scopes must reach, or the session's."""
    by_token = BearerToken().authenticate(Request(request))
    if by_token is not None:
        user, token = by_token
        if not allows(token.scopes, Scope.ADMIN):
            raise RoleTooLow(Role.ADMIN.label)
        return user
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    return get_user(request)


def _busy() -> Problem:
    detail = "Other files are being received; send it again in a moment."
    return Problem(status=503, code="busy", detail=detail, headers={"Retry-After": str(RETRY_SECONDS)})


async def _answer(scope: Connection, send: Send, problem: Problem) -> None:
    response: HttpResponse = await asyncio.to_thread(answer, ASGIRequest(scope, BytesIO()), problem)
    response["Connection"] = "close"
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
