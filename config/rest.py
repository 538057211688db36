"""The habits of every REST answer: bodies, pages by cursor, rates, and what has not changed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_vary_headers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from agents.jsontext import NotFound, parse_whole
from tenants.paging import ByKey

PAGE_ROWS = 50
# Far more than any body of this API has; far less than what Python's own stack can take when it is written again.
BODY_LEVELS_MAX = 64


class StrictJson(JSONParser):
    """JSON in UTF-8 that means one thing: no key twice, no NaN, no half characters, not nested without end."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:  # noqa: ARG002  # DRF's signature
        try:
            found = parse_whole(stream.read().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ParseError(f"The body is no UTF-8: byte {error.start}.") from None
        if isinstance(found, NotFound):
            raise ParseError(f"The body is no JSON that can be taken: {found.detail}.")
        if _nests_deeper(found.value, BODY_LEVELS_MAX):
            raise ParseError(f"The body nests deeper than {BODY_LEVELS_MAX} levels.")
        return found.value


class NewestFirst(ByKey):
    """Ids of rows that people see are version 7."""

    page_size = PAGE_ROWS
    ordering = "-pk"


@dataclass(frozen=True, slots=True)
class RateSeen:
    """Where a client stands against one limit, as the answer's headers say it."""

    limit: int
    remaining: int
    reset_seconds: int


class Rate(SimpleRateThrottle):
    """A limit per window that also tells how much of it is left."""

    # What the framework's own class fills in.
    num_requests: int | None
    duration: int | None
    history: list[float]
    now: float

    def allow_request(self, request: Request, view: Any) -> bool:
        allowed = bool(super().allow_request(request, view))
        history = getattr(self, "history", None)
        if history is not None and self.num_requests and self.duration:
            oldest = history[-1] if history else self.now
            seen = RateSeen(
                limit=self.num_requests,
                remaining=max(self.num_requests - len(history), 0),
                reset_seconds=max(math.ceil(oldest + self.duration - self.now), 0),
            )
            held = request._request
            held.rates_seen = [*getattr(held, "rates_seen", []), seen]  # type: ignore[attr-defined]  # read below
        return allowed


class ClientRate(Rate):
    """Per token, or per person in a browser session, or per address for strangers."""

    scope = "client"

    def get_cache_key(self, request: Request, view: Any) -> str:  # noqa: ARG002  # the framework's signature
        return self.cache_format % {"scope": self.scope, "ident": self._client(request)}

    def _client(self, request: Request) -> str:
        if request.auth is not None and getattr(request.auth, "pk", None):
            return f"token-{request.auth.pk}"
        if request.user is not None and request.user.is_authenticated:
            return f"user-{request.user.pk}"
        return f"address-{self.get_ident(request)}"


class OrganizationRate(Rate):
    """All tokens of one organization together; sessions are counted per person only."""

    scope = "organization"

    def get_cache_key(self, request: Request, view: Any) -> str | None:  # noqa: ARG002  # the framework's signature
        organization = getattr(request.user, "token_organization_id", None)
        return self.cache_format % {"scope": self.scope, "ident": organization} if organization else None


def _nests_deeper(value: Any, levels: int) -> bool:
    """Level by level, never by recursion."""
    level = [value]
    while level and levels >= 0:
        inner = [
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        ]
        level = [one for each in inner for one in each if isinstance(one, dict | list)]
        levels -= 1
    return bool(level)


class RestAnswersMiddleware:
    """Rate limits on every answer of the API, and 304 to who has it already."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self.get_response(request)
        if not request.path.startswith("/api/"):
            return answer
        patch_vary_headers(answer, ["Authorization", "Cookie"])
        answer.headers.setdefault("Cache-Control", "private, no-cache")  # kept, but asked again each time
        answer = _conditional(request, answer)
        rates: list[RateSeen] = getattr(request, "rates_seen", [])
        if rates:
            tightest = min(rates, key=lambda seen: seen.remaining)
            answer["RateLimit-Limit"] = str(tightest.limit)
            answer["RateLimit-Remaining"] = str(tightest.remaining)
            answer["RateLimit-Reset"] = str(tightest.reset_seconds)
        return answer


def _conditional(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    content: bytes | None = getattr(answer, "content", None) if not answer.streaming else None
    if request.method != "GET" or answer.status_code != 200 or content is None:
        return answer
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    answer["ETag"] = etag
    conditional: HttpResponseBase = get_conditional_response(request, etag=etag, response=answer)  # type: ignore[arg-type,assignment]  # never None with a response
    return conditional
