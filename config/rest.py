"""The habits of every REST list and every client: pages by cursor, and rates."""

from __future__ import annotations

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

PAGE_ROWS = 50
PAGE_ROWS_MAX = 200


class NewestFirst(CursorPagination):
    """By primary key, which sorts by time: ids of rows that people see are version 7."""

    page_size = PAGE_ROWS
    max_page_size = PAGE_ROWS_MAX
    page_size_query_param = "limit"
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
