"""REST: events as they happen, of one Change or of an organization, as server-sent events.

Access is asked for at the start, before anything is told, and at every heartbeat: a stream ends
when the membership, the token or the session behind it does (fault C83).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import cast
from uuid import UUID

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from tasks import horizon, reads
from tasks.api import outputs
from tasks.models import Event
from tenants.access import organization_for, still_member
from tenants.models import ApiToken, Role, User
from tenants.tokens import is_living

STREAM_TYPE = "text/event-stream"
STREAM_SECONDS_MAX = 900
HEARTBEAT_SECONDS = 15
EVENTS_PER_READ_MAX = 200
# Of one person in one process. Browsers keep one per page that is looked at.
STREAMS_PER_PERSON_MAX = 20
RETRY_MILLISECONDS = 2_000
LAST_EVENT_HEADER = "Last-Event-ID"
assert HEARTBEAT_SECONDS < STREAM_SECONDS_MAX

AFTER = [
    OpenApiParameter(
        "after",
        int,
        description="Only events with a greater id; 0: from the beginning; absent: what comes next.",
    ),
    OpenApiParameter(
        LAST_EVENT_HEADER,
        str,
        OpenApiParameter.HEADER,
        description="The id of the last event seen: where a broken stream goes on. It wins over `after`.",
    ),
]
ANSWER = {(200, STREAM_TYPE): OpenApiTypes.STR}


class EventStreamRenderer(JSONRenderer):
    """Lets a client ask for `text/event-stream` and still get its problem details, as JSON."""

    media_type = STREAM_TYPE
    format = "sse"


class ChangeStream(APIView):
    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @extend_schema(
        operation_id="changes_events_stream",
        tags=["events"],
        parameters=AFTER,
        responses=ANSWER,
        description="The events of a Change as they happen. Each has its id, and its `data` is the event of "
        "`changes_events`. `event: closed` says why the stream ends; connect again with the last id.",
    )
    def get(self, request: Request, change_id: UUID) -> HttpResponseBase:
        change = reads.change_of(request.user, change_id)
        return stream_of(request, Wanted(change.organization_id, change_id), after=_after(request))


class OrganizationStream(APIView):
    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @extend_schema(
        operation_id="organizations_events_stream",
        tags=["events"],
        parameters=AFTER,
        responses=ANSWER,
        description="The events of all Changes of an organization, and its own, as they happen.",
    )
    def get(self, request: Request, organization_id: UUID) -> HttpResponseBase:
        organization_for(request.user, organization_id, at_least=Role.VIEWER)
        return stream_of(request, Wanted(organization_id, None), after=_after(request))


@dataclass(frozen=True, slots=True)
class Wanted:
    organization_id: UUID
    change_id: UUID | None  # None: all of the organization

    @property
    def about(self) -> UUID:
        return self.change_id or self.organization_id


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, and by what right: asked anew for every portion."""

    user_id: UUID
    token_id: UUID | None
    session_key: str | None
    wanted: Wanted

    def read(self, after: int, upto: int | None) -> list[Event] | None:
        """The next events, in order; None when there is no right to them any more."""
        user = still_member(self.user_id, self.wanted.organization_id)
        if user is None or not self._credential_lives():
            return None
        events: QuerySet[Event] = Event.objects.visible_to(user).filter(
            organization_id=self.wanted.organization_id, pk__gt=after
        )
        if self.wanted.change_id is not None:
            events = events.filter(change_id=self.wanted.change_id)
        if upto is not None:
            events = events.filter(pk__lte=upto)
        return list(events.order_by("pk")[:EVENTS_PER_READ_MAX])

    def _credential_lives(self) -> bool:
        if self.token_id is not None:
            return is_living(self.token_id)
        if self.session_key is None:
            return False
        return bool(import_module(settings.SESSION_ENGINE).SessionStore().exists(self.session_key))


def stream_of(request: Request, wanted: Wanted, *, after: int | None) -> HttpResponseBase:
    """Under ASGI the events as they come; under WSGI those that are there, and the client asks again."""
    token = request.auth if isinstance(request.auth, ApiToken) else None
    reader = Reader(
        user_id=cast(User, request.user).pk,
        token_id=token.pk if token else None,
        session_key=None if token else request.session.session_key,
        wanted=wanted,
    )
    start = horizon.newest_id() if after is None else after
    lives = isinstance(request._request, ASGIRequest)
    if request.method == "HEAD":  # the server would send no line of it, and yet run it to its end
        answer: HttpResponseBase = HttpResponse(content_type=STREAM_TYPE)
    else:
        lines = _live(reader, start) if lives else _there(reader, start)
        answer = StreamingHttpResponse(lines, content_type=STREAM_TYPE)
    answer["Cache-Control"] = "no-cache, no-transform"
    answer["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


async def _live(reader: Reader, after: int) -> AsyncIterator[str]:
    if _OPEN[reader.user_id] >= STREAMS_PER_PERSON_MAX:
        yield _closed("too_many_streams")
        return
    _OPEN[reader.user_id] += 1
    try:
        yield f"retry: {RETRY_MILLISECONDS}\n: connected\n\n"
        async for piece in _news(reader, after):
            yield piece
    finally:
        _OPEN[reader.user_id] -= 1
        if not _OPEN[reader.user_id]:
            del _OPEN[reader.user_id]


async def _news(reader: Reader, after: int) -> AsyncIterator[str]:
    ends_at = time.monotonic() + STREAM_SECONDS_MAX
    read = horizon.in_database(reader.read)
    here = horizon.horizon()
    async with here.listening(reader.wanted.about) as listener:
        await here.looked()
        while time.monotonic() < ends_at:
            listener.news.clear()
            events = await read(after, here.upto)
            if events is None:
                yield _closed("access_ended")
                return
            if events:
                after = events[-1].pk
                yield "".join(map(_told, events))
            if len(events) == EVENTS_PER_READ_MAX:
                continue
            try:
                await asyncio.wait_for(listener.news.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                yield ": still here\n\n"
    yield _closed("lifetime")


def _there(reader: Reader, after: int) -> Iterator[str]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    while events := reader.read(after, None):
        after = events[-1].pk
        yield "".join(map(_told, events))
    yield _closed("not_live")


def _told(event: Event) -> str:
    # JSON has no line break of its own, so one line is one event.
    body = JSONRenderer().render(outputs.EventOutput(event).data).decode()
    return f"id: {event.pk}\ndata: {body}\n\n"


def _closed(reason: str) -> str:
    return f"event: closed\ndata: {json.dumps({'reason': reason})}\n\n"


def _after(request: Request) -> int | None:
    said = request.headers.get(LAST_EVENT_HEADER) or request.query_params.get("after")
    return None if said is None else reads.event_id(said)


# Streams of this process by person; all of them run in one event loop.
_OPEN: Counter[UUID] = Counter()
