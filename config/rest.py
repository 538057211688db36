"""The habits of every REST list and every client: bodies, pages by cursor, and rates."""

from __future__ import annotations

from typing import Any

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


class ClientRate(SimpleRateThrottle):
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


class OrganizationRate(SimpleRateThrottle):
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
