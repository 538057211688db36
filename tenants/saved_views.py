"""Filters of the Changes list that a person has given a name. Their own matter: no organization, no audit."""

from __future__ import annotations

from django.db import transaction

from tenants import text
from tenants.errors import InvalidInput
from tenants.models import User

SAVED_VIEWS_MAX = 20
VIEW_NAME_CHARACTERS_MAX = 40
VIEW_QUERY_CHARACTERS_MAX = 1_000


@transaction.atomic
def save_view(user: User, name: str, query: str) -> None:
    """Keep a query string under a name; the same name again is replaced. Raises InvalidInput naming the field."""
    name = text.one_line("name", name, characters_max=VIEW_NAME_CHARACTERS_MAX)
    if len(query) > VIEW_QUERY_CHARACTERS_MAX:
        raise InvalidInput("query", "is too long", f"At most {VIEW_QUERY_CHARACTERS_MAX} characters.")
    fresh = User.objects.select_for_update().get(pk=user.pk)
    views = [*_without(fresh, name), {"name": name, "query": query}]
    if len(views) > SAVED_VIEWS_MAX:
        raise InvalidInput(
            "name", "is one view too many", f"Keep at most {SAVED_VIEWS_MAX}; forget one first."
        )
    _write(user, views)


@transaction.atomic
def forget_view(user: User, name: str) -> None:
    """Forgetting what is not there changes nothing."""
    fresh = User.objects.select_for_update().get(pk=user.pk)
    _write(user, _without(fresh, name))


def _without(user: User, name: str) -> list[dict[str, str]]:
    return [view for view in user.saved_views if view["name"] != name]


def _write(user: User, views: list[dict[str, str]]) -> None:
    User.objects.filter(pk=user.pk).update(saved_views=views)
    user.saved_views = views
