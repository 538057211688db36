"""Pages of a REST list by cursor: a cursor that is none is a plain 404, whatever somebody wrote into it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Field
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

PAGE_ROWS_MAX = 200
# What a whole-number key can be in every database.
WHOLE_NUMBER_MAX = 2**63 - 1


class ByKey(CursorPagination):
    """Ordered by primary key, which sorts by time."""

    max_page_size = PAGE_ROWS_MAX
    page_size_query_param = "limit"
    _key: Field[Any, Any] | None = None

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        self._key = queryset.model._meta.pk
        page: list[Any] | None = super().paginate_queryset(queryset, request, view)
        return page

    def decode_cursor(self, request: Request) -> Any:
        """The library checks the wrapping; whether the position is a key at all is looked at here."""
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not self._is_key(str(cursor.position)):
            raise NotFound(self.invalid_cursor_message)
        return cursor

    def _is_key(self, position: str) -> bool:
        assert self._key is not None
        try:
            key = self._key.to_python(position)
        except ValidationError:
            return False
        return not isinstance(key, int) or abs(key) <= WHOLE_NUMBER_MAX
