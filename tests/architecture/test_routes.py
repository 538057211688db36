"""Every route is behind the wall between tenants: a stranger sees nothing, nobody at all is asked to sign in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from django.apps import apps
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tenants.models import Organization, Role
from tenants.scope import TenantModel
from tests.factories.agents import make_approval
from tests.factories.budgets import make_hold, make_payers
from tests.factories.providers import make_connector
from tests.factories.tasks import (
    make_allowance,
    make_candidate,
    make_changeset,
    make_import,
    make_preflight,
    make_question,
    make_run,
)
from tests.factories.tenants import (
    make_invitation,
    make_member,
    make_organization,
    make_project,
    make_token,
)
from tests.factories.webhooks import make_delivery, make_endpoint, make_hook

# Routes that strangers may open, and why that is right. Everything else is tried below.
OPEN = {
    "healthz": "says only that the process answers",
    "readyz": "states of parts, without names or keys",
    "accounts/": "signing in and out, by allauth",
    "admin/": "for staff only: tested with the admin",
    "api/v1/schema": "what can be asked, not what is there",
    "api/v1/docs": "the same, to read",
    "invitations/<str:secret>/": "its secret is the key",
    "invitations/<str:secret>": "its secret is the key",
    "hooks/in/<uuid:hook_id>": "a signature over the body is the key: tested with the hooks",
}
METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Route:
    pattern: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.pattern

    @property
    def is_api(self) -> bool:
        return self.pattern.startswith("api/")

    def path(self, values: dict[str, Any]) -> str:
        """The address with these values in it; a name without a value fails the test that asks."""
        missing = [name for name in self.names if name not in values]
        assert not missing, f"{self.pattern}: give {missing} a row in FOREIGN"
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: str(values[found.group(1)]), self.pattern)
        return "/" + path


def _walk(patterns: list[Any], before: str = "") -> Iterator[Route]:
    for entry in patterns:
        text = before + str(entry.pattern).removeprefix("^")
        if isinstance(entry, URLResolver):
            yield from _walk(entry.url_patterns, text)
        elif isinstance(entry, URLPattern):
            plain = _readable(text)
            yield Route(plain, tuple(re.findall(r"<(?:\w+:)?(\w+)>", plain)))


def _readable(text: str) -> str:
    """A regular expression's named groups as path converters: only their names matter here."""
    text = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", r"<str:\1>", text)
    return text.removesuffix("\\Z").removesuffix("$").replace("\\", "")


@cache
def routes() -> tuple[Route, ...]:
    return tuple(route for route in _walk(get_resolver().url_patterns) if not _is_open(route))


def _is_open(route: Route) -> bool:
    return any(
        route.pattern == start or (start.endswith("/") and route.pattern.startswith(start)) for start in OPEN
    )


@dataclass(frozen=True)
class Foreign:
    """One row of each kind in an organization that the stranger does not belong to."""

    organization: Organization
    values: dict[str, Any]


@pytest.fixture
def foreign(db: None) -> Foreign:
    organization = make_organization()
    owner = make_member(organization, Role.OWNER)
    project = make_project(organization)
    run = make_run()
    task = run.task
    _move_to(task.change, project)
    invitation, _ = make_invitation(organization)
    token, _ = make_token(owner, organization)
    endpoint = make_endpoint(organization)
    allowance = make_allowance(project)
    values: dict[str, Any] = {
        "organization_id": organization.pk,
        "project_id": project.pk,
        "change_id": task.change.pk,
        "task_id": task.pk,
        "run_id": run.pk,
        "user_id": owner.pk,
        "invitation_id": invitation.pk,
        "token_id": token.pk,
        "connector_id": make_connector(organization).pk,
        "changeset_id": make_changeset(task).pk,
        "candidate_id": make_candidate(task.change).pk,
        "call_id": make_hold(make_payers(organization, project_id=project.pk)).reservation_id,
        "import_id": make_import(project).pk,
        "preflight_id": make_preflight(project).pk,
        "allowance_id": allowance.pk,
        "question_id": make_question(allowance, by=owner).pk,
        "approval_id": make_approval(
            organization, project_id=project.pk, change_id=task.change.pk, task_id=task.pk, run_id=run.pk
        ).pk,
        "webhook_id": endpoint.pk,
        "delivery_id": make_delivery(endpoint).pk,
        "hook_id": make_hook(project, author=owner).pk,
        "act": "cancel",
        "position": 1,
    }
    return Foreign(organization, values)


def _move_to(change: Any, project: Any) -> None:
    type(change).objects.filter(pk=change.pk).update(project=project, organization=project.organization)
    change.refresh_from_db()


@pytest.fixture
def stranger(db: None) -> Client:
    """The owner of another organization: the highest role, in the wrong place."""
    organization = make_organization()
    client = Client(raise_request_exception=False)
    client.force_login(make_member(organization, Role.OWNER))
    return client


def test_there_are_routes_to_try() -> None:
    assert len(routes()) > 10


@pytest.mark.parametrize("route", [r for r in routes() if r.names], ids=str)
def test_another_organizations_row_is_not_there(route: Route, stranger: Client, foreign: Foreign) -> None:
    """Promise 7: 404 everywhere, whatever the method, and before anything else is looked at."""
    path = route.path(foreign.values)
    answers = {method: _ask(stranger, method, path) for method in METHODS}
    assert {method: code for method, code in answers.items() if code not in (404, 405)} == {}
    assert 404 in answers.values()


@pytest.mark.parametrize("none", ["-" * 36, "a" * 36, "9" * 30], ids=str)
def test_what_is_no_id_is_not_there(none: str, stranger: Client, foreign: Foreign) -> None:
    """A cut or mistyped address is a 404 as well, never a fault of the server."""
    for route in routes():
        ids = {name: none for name in route.names if name.endswith(("_id", "position"))}
        if ids:
            path = route.path(foreign.values | ids)
            codes = {method: _ask(stranger, method, path) for method in METHODS}
            assert set(codes.values()) <= {404, 405}, (path, codes)


@pytest.mark.parametrize("route", [r for r in routes() if not r.names], ids=str)
def test_a_list_shows_nothing_of_another_organization(
    route: Route, stranger: Client, foreign: Foreign
) -> None:
    response = stranger.get(route.path({}))
    # 403: a page for people who run the whole deployment.
    assert response.status_code in (200, 302, 403, 404, 405)
    body = response.getvalue()
    shown = [
        name
        for name, value in foreign.values.items()
        if name not in ("act", "position", "call_id") and str(value).encode() in body
    ]
    assert shown == []


@pytest.mark.parametrize("route", routes(), ids=str)
def test_nobody_is_asked_to_sign_in(route: Route, client: Client, foreign: Foreign) -> None:
    path = route.path(foreign.values)
    for method in METHODS:
        response = getattr(client, method)(path, content_type="application/json")
        if route.is_api:
            assert response.status_code in (401, 405), method
        else:
            assert response.status_code in (302, 401, 404, 405), method
            if response.status_code == 302:
                assert response.headers["Location"].startswith("/accounts/login/"), method


# What a viewer may send to the own organization, and why that is right.
VIEWERS_MAY = {
    "organizations/<uuid:organization_id>/tokens": "a key for oneself opens nothing that its user cannot open",
    "api/v1/organizations/<uuid:organization_id>/tokens": "the same",
    "changes/views": "names filters of one's own list",
    "api/v1/changes/views": "the same",
    "changes/act": "names each change on which this role may not; none is moved",
}


@pytest.mark.parametrize("route", routes(), ids=str)
def test_a_viewer_moves_nothing(route: Route, foreign: Foreign) -> None:
    """Whatever the route and the method: refused for the role, and not a row is another one afterwards."""
    client = Client(raise_request_exception=False)
    client.force_login(make_member(foreign.organization, Role.VIEWER))
    path = route.path(foreign.values)
    before = row_counts()
    for method in METHODS[1:]:
        if route.pattern in VIEWERS_MAY:
            continue
        code = _ask(client, method, path, _body(route, foreign))
        # 404: somebody else's own (their token), or hidden from this role as such.
        assert code in (403, 404, 405), f"{method} {route.pattern}: {code}"
    assert row_counts() == before


def row_counts() -> dict[str, int]:
    """How many rows there are of every model that hangs on an organization."""
    return {
        model._meta.label: model._default_manager.count()
        for model in apps.get_models()
        if issubclass(model, TenantModel)
    }


def _body(route: Route, foreign: Foreign) -> dict[str, Any]:
    """What must be right before the role is looked at."""
    if route.pattern == "api/v1/projects":
        return {"organization": str(foreign.organization.pk), "name": "Mine", "slug": "mine"}
    return {"role": "admin"} if route.pattern.endswith("/members/<uuid:user_id>") else {}


def _ask(client: Client, method: str, path: str, body: dict[str, Any] | None = None) -> int:
    ask: Callable[..., Any] = getattr(client, method)
    status: int = (
        ask(path, content_type="application/json", data=body or {}).status_code
        if method != "get"
        else ask(path).status_code
    )
    return status
