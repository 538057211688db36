"""Connectors as people save them: checked, sealed, audited, and never shown with their key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from providers.connectors import connector_for
from providers.errors import ConnectorNotFound
from providers.fake.server import FakeServer
from providers.models import Connector
from providers.saving import CONNECTORS_MAX, save_connector, smallest_request, switch_connector
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import AuditEntry, Organization, Role, User
from tests.factories.providers import make_connector
from tests.factories.tenants import bearer, make_member, make_organization, make_token
from tests.providers.conftest import ask

pytestmark = pytest.mark.django_db
KEY = "sk-secret-0123456789-abcdef"


@pytest.fixture
def organization() -> Organization:
    return make_organization()


@pytest.fixture
def admin(organization: Organization) -> User:
    return make_member(organization, Role.ADMIN)


def save(organization: Organization, by: User | None = None, **given: Any) -> Connector:
    return save_connector(
        organization, **{"name": "main", "kind": "anthropic", "key": KEY, "config": {}, "by": by, **given}
    )


def test_a_connector_is_made_and_changed_and_both_are_audited(
    organization: Organization, admin: User
) -> None:
    made = save(organization, admin)
    assert made.open_key() == KEY
    changed = save(organization, admin, key=None, headers={"anthropic-workspace-id": "ws_1"})
    assert (changed.pk, changed.version, changed.open_key()) == (made.pk, 2, KEY)
    save(organization, admin, key="")
    assert not Connector.objects.get(pk=made.pk).has_key
    entries = list(AuditEntry.objects.order_by("pk").values_list("action", "after"))
    assert [action for action, _ in entries] == ["connector.made", "connector.saved", "connector.saved"]
    assert KEY not in str(entries)
    assert "ws_1" not in str(entries)


def test_making_a_name_that_somebody_has_just_made_changes_nothing(
    organization: Organization, admin: User
) -> None:
    """Whoever makes a connector means a new one: the other's key must not be gone without a word."""
    made = save(organization, admin, new=True)
    with pytest.raises(InvalidInput) as refused:
        save(organization, admin, new=True, key="sk-another-key")
    assert (refused.value.field, refused.value.code) == ("name", "taken")
    made.refresh_from_db()
    assert (made.version, made.open_key()) == (1, KEY)


def test_a_stored_key_goes_nowhere_else(organization: Organization, admin: User) -> None:
    """Whoever turns an address to a server of their own could read the key there: they must know it already."""
    save(organization, admin, base_url="https://api.example.com")
    with pytest.raises(InvalidInput) as refused:
        save(organization, admin, base_url="https://evil.example.com", key=None)
    assert (refused.value.field, refused.value.code) == ("key", "key_needed")
    assert Connector.objects.get().base_url == "https://api.example.com"
    save(organization, admin, base_url="https://new.example.com")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "Main Account"}, "name"),
        ({"name": ""}, "name"),
        ({"kind": "telepathy"}, "kind"),
        ({"base_url": "https://user:pw@api.example.com"}, "base_url"),
        ({"base_url": "http://169.254.169.254"}, "base_url"),
        ({"key": "sk-a\nb"}, "key"),
        ({"headers": {"authorization": "x"}}, "headers"),
        ({"config": {"nonsense": 1}}, "config"),
        ({"config": {"routing": {"only": [f"p{number}" for number in range(33)]}}}, "config"),
        ({"config": {"defaults": {"temperature": 0}}}, "config"),
        ({"config": {"app_title": "x" * 2_000_000}}, "config"),
        ({"kind": "scripted", "key": "", "config": {"scenarios": "../../etc/passwd"}}, "config"),
        ({"kind": "scripted", "key": "", "config": {"inline": [{"steps": [{"txt": "x"}]}]}}, "config"),
        ({"kind": "scripted", "key": "", "config": {}}, "config"),
    ],
)
def test_what_cannot_be_used_is_not_stored(
    given: dict[str, Any], field: str, organization: Organization, admin: User
) -> None:
    with pytest.raises(InvalidInput) as refused:
        save(organization, admin, **given)
    assert refused.value.field == field
    assert not Connector.objects.exists()
    assert not AuditEntry.objects.exists()


def test_private_addresses_need_the_deployments_word(organization: Organization, with_plane: Any) -> None:
    with_plane(private_addresses=False)
    for url in ("http://127.0.0.1:8000", "https://10.0.0.1", "https://localhost"):
        with pytest.raises(InvalidInput):
            save(organization, base_url=url)
    with_plane(private_addresses=True)
    save(organization, base_url="http://127.0.0.1:8000")


def test_a_name_that_resolves_inwards_is_not_connected_to(
    organization: Organization, fake: FakeServer, with_plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rebinding: what a name resolves to is checked where the connection is made."""
    import socket

    with_plane(private_addresses=False)
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", fake.port))],
    )
    save(organization, base_url=f"https://innocent.example.com:{fake.port}")
    from providers.errors import NotSent

    with pytest.raises(NotSent, match="private address"):
        connector_for(organization.pk, "main").send(ask("anthropic"), seconds_max=2)
    assert not fake.seen


def test_members_may_not(organization: Organization) -> None:
    with pytest.raises(RoleTooLow):
        save(organization, make_member(organization, Role.MEMBER))


def test_an_organization_has_a_limit_of_connectors(organization: Organization) -> None:
    for number in range(CONNECTORS_MAX):
        make_connector(organization, name=f"c{number}")
    with pytest.raises(InvalidInput, match="at most 50"):
        save(organization)


def test_a_disabled_connector_ends_with_the_next_call(organization: Organization, admin: User) -> None:
    row = make_connector(organization)
    connector_for(organization.pk, "main")
    switch_connector(row, enabled=False, by=admin)
    switch_connector(row, enabled=False, by=admin)
    with pytest.raises(ConnectorNotFound):
        connector_for(organization.pk, "main")
    assert AuditEntry.objects.count() == 1
    switch_connector(row, enabled=True, by=admin)
    connector_for(organization.pk, "main")


def test_the_smallest_request_uses_the_accounts_own_names(organization: Organization) -> None:
    assert smallest_request(save(organization)).model == "claude-haiku-5-5"
    local = save(organization, name="local", kind="openai", config={"models": {"claude-haiku-5-5": "qwen"}})
    assert connector_for(organization.pk, "local").fit(smallest_request(local)).model == "qwen"


# The doors


def address(organization: Organization, connector: Connector | None = None) -> str:
    return f"/api/v1/organizations/{organization.pk}/connectors" + (f"/{connector.pk}" if connector else "")


@pytest.fixture
def api(organization: Organization, admin: User) -> dict[str, Any]:
    _, plain = make_token(admin, organization, scopes=["admin"])
    return bearer(plain)


def test_rest_makes_shows_and_changes_without_the_key(
    organization: Organization, api: dict[str, Any], client: Client
) -> None:
    body = {"name": "main", "kind": "anthropic", "key": KEY}
    made = client.post(address(organization), body, content_type="application/json", **api)
    assert made.status_code == 201, made.content
    row = Connector.objects.get()
    listed = client.get(address(organization), **api)
    shown = client.get(address(organization, row), **api)
    changed = client.patch(
        address(organization, row), {"enabled": False}, content_type="application/json", **api
    )
    assert changed.json()["enabled"] is False
    assert changed.json()["has_key"] is True
    assert not any(KEY.encode() in answer.content for answer in (made, listed, shown, changed))
    again = client.post(address(organization), body, content_type="application/json", **api)
    assert (again.status_code, again.json()["code"]) == (400, "taken")


def test_rest_names_the_field_that_is_wrong(
    organization: Organization, api: dict[str, Any], client: Client
) -> None:
    wrong = {"name": "main", "kind": "openai", "key": "a\nb"}
    answer = client.post(address(organization), wrong, content_type="application/json", **api)
    assert (answer.status_code, answer.json()["field"]) == (400, "key")
    assert "a\\nb" not in answer.content.decode()


def test_another_organization_sees_nothing(api: dict[str, Any], client: Client) -> None:
    """Row 1."""
    theirs = make_connector()
    assert client.get(address(theirs.organization), **api).status_code == 404
    assert client.get(address(theirs.organization, theirs), **api).status_code == 404


def test_the_pages_make_change_and_switch(organization: Organization, admin: User, client: Client) -> None:
    client.force_login(admin)
    base = f"/organizations/{organization.pk}/connectors"
    made = client.post(
        base, {"name": "main", "kind": "openai", "key": KEY, "base_url": "", "headers": "", "config": ""}
    )
    assert made.status_code == 302, made.content.decode()
    row = Connector.objects.get()
    listing, page = client.get(base), client.get(f"{base}/{row.pk}")
    assert listing.status_code == page.status_code == 200
    form = {"base_url": "", "key": "", "headers": "x-team: a", "config": '{"stream": false}'}
    assert client.post(f"{base}/{row.pk}", form).status_code == 302
    row.refresh_from_db()
    assert (row.headers, row.config, row.open_key()) == ({"x-team": "a"}, {"stream": False}, KEY)
    refused = client.post(f"{base}/{row.pk}", form | {"base_url": "https://elsewhere.example.com"})
    assert "Must be given again" in refused.content.decode()
    bad = client.post(f"{base}/{row.pk}", form | {"config": "[1]"})
    assert "A JSON object is needed" in bad.content.decode()
    for typed, said in (
        ('{"stream": true, "stream": false}', "occurs twice"),
        ('{"stream": NaN}', "no JSON"),
    ):
        refused_config = client.post(f"{base}/{row.pk}", form | {"config": typed})
        assert said in refused_config.content.decode(), typed
    assert client.post(f"{base}/{row.pk}/switch", {"enabled": "false"}).status_code == 302
    row.refresh_from_db()
    assert not row.enabled
    pages = (listing, page, refused, bad, client.get(f"{base}/{row.pk}"))
    assert not any(KEY in answer.content.decode() for answer in pages)


def test_the_admin_shows_and_switches_without_the_key(client: Client) -> None:
    operator = User.objects.create_superuser("root@example.org", "x")
    client.force_login(operator)
    row = make_connector(key=KEY)
    for path in ("/admin/providers/connector/", f"/admin/providers/connector/{row.pk}/change/"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert KEY not in answer.content.decode()
        assert row.sealed_key not in answer.content.decode()
    chosen = {"action": "disable", "_selected_action": [str(row.pk)]}
    asked = client.post("/admin/providers/connector/", chosen).content.decode()
    assert "Nobody can call through it" in asked
    row.refresh_from_db()
    assert row.enabled, "first a page that says on which, and asks why"
    client.post("/admin/providers/connector/", chosen | {"switch": "x", "reason": "the key is on a forum"})
    row.refresh_from_db()
    assert not row.enabled
    entry = AuditEntry.objects.get(action="connector.disabled")
    assert (entry.actor, entry.reason) == (operator, "the key is on a forum")


@pytest.mark.sqlite
def test_no_key_is_in_any_row(organization: Organization, admin: User, fake: FakeServer) -> None:
    """Row 4; issue 4, point 5: the whole database is read."""
    save(organization, admin, base_url=fake.url("anthropic"))
    gateway = connector_for(organization.pk, "main")
    fake.provider.key = KEY
    reply = gateway.send(ask("anthropic"), seconds_max=5)
    wrong = replace(ask("anthropic"), model="claude-opus-5-5")
    assert KEY not in repr(reply) + repr(gateway) + repr(vars(gateway)) + repr(wrong)
    connection.ensure_connection()
    dump = "\n".join(connection.connection.iterdump())
    assert "connector.made" in dump
    assert KEY not in dump


UNSTORABLE: dict[str, dict[str, Any]] = {
    "a NUL in a priced name": {"config": {"prices": {"a\0": {"input": "1"}}}},
    "a NUL in a name of ours": {"config": {"models": {"a\0": "b"}}},
    "a NUL in a described name": {"config": {"profiles": {"a\0": {"can": []}}}},
    "a NUL in an effort": {"config": {"profiles": {"a": {"efforts": ["\\\0"]}}}},
    "a NUL in a stand-in's names": {
        "fallback": {"connectors": [{"connector": "spare", "models": {"a\0": "b"}}]}
    },
}


@pytest.mark.parametrize("given", UNSTORABLE.values(), ids=UNSTORABLE)
def test_what_no_database_can_store_is_refused_by_its_field(
    organization: Organization, admin: User, client: Client, given: dict[str, Any]
) -> None:
    """PostgreSQL takes no NUL in JSON: it was an error of the server, at each of the doors."""
    make_connector(organization, name="spare")
    (field,) = given
    token = bearer(make_token(admin, organization, scopes=["admin"])[1])
    body = {"name": "main", "kind": "openai", "config": {}, **given}
    path = f"/api/v1/organizations/{organization.pk}/connectors"
    answer = client.post(path, body, content_type="application/json", **token)
    assert (answer.status_code, answer.json()["field"]) == (400, field), answer.content
    assert not Connector.objects.filter(name="main").exists()


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000", "1e400"])
def test_a_page_refuses_what_its_reader_lets_through(
    organization: Organization, admin: User, client: Client, text: str
) -> None:
    said = text if text == "1e400" else f'"{text}"'
    inline = '{"inline": [{"steps": [{"tools": [{"name": "t", "arguments": {"a": ODD}}]}]}]}'.replace(
        "ODD", said
    )
    client.force_login(admin)
    typed = {"name": "main", "kind": "scripted", "base_url": "", "key": "", "headers": "", "config": inline}
    page = client.post(f"/organizations/{organization.pk}/connectors", typed)
    assert page.status_code == 200
    assert page.context["form"].errors["config"]
    assert not Connector.objects.exists()


def test_a_backslash_before_noughts_is_text_like_any_other(organization: Organization) -> None:
    saved = save(organization, kind="scripted", config={"inline": [{"steps": [{"text": "\\u0000"}]}]})
    assert Connector.objects.get(pk=saved.pk).config == saved.config
