"""What every answer of the API has: what has not changed is not sent, and how much may still be asked."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from django.test import Client

from config.rest import ClientRate
from tenants.models import Role
from tests.factories.tasks import make_change
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def headers() -> dict[str, Any]:
    organization = make_organization()
    make_change(make_project(organization), title="Export CSV")
    _, plain = make_token(make_member(organization, Role.VIEWER), organization)
    return bearer(plain)


def test_what_has_not_changed_is_not_sent_again(client: Client, headers: dict[str, Any]) -> None:
    first = client.get("/api/v1/changes", **headers)
    again = client.get("/api/v1/changes", HTTP_IF_NONE_MATCH=first.headers["ETag"], **headers)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert "RateLimit-Remaining" in again.headers
    change_id = first.json()["results"][0]["id"]
    other = client.get(f"/api/v1/changes/{change_id}", HTTP_IF_NONE_MATCH=first.headers["ETag"], **headers)
    assert other.status_code == 200


def test_an_answer_is_kept_by_its_client_alone_and_asked_for_again(
    client: Client, headers: dict[str, Any]
) -> None:
    answer = client.get("/api/v1/changes", **headers)
    assert answer.headers["Cache-Control"] == "private, no-cache"
    assert {"Authorization", "Cookie"} <= {each.strip() for each in answer.headers["Vary"].split(",")}


def test_a_refusal_has_no_etag(client: Client) -> None:
    refused = client.get("/api/v1/changes")
    assert refused.status_code == 401
    assert "ETag" not in refused.headers


def test_every_answer_says_how_much_may_still_be_asked(client: Client, headers: dict[str, Any]) -> None:
    answers = [client.get("/api/v1/changes", **headers) for _ in range(2)]
    assert [answer.headers["RateLimit-Limit"] for answer in answers] == ["600", "600"]
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["599", "598"]
    assert 0 < int(answers[0].headers["RateLimit-Reset"]) <= 60


def test_who_asks_too_often_is_told_when_to_come_back(
    client: Client, headers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ClientRate.THROTTLE_RATES, "client", "1/min")
    client.get("/api/v1/changes", **headers)
    refused = client.get("/api/v1/changes", **headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "throttled")
    assert (refused.headers["RateLimit-Remaining"], int(refused.headers["Retry-After"]) > 0) == ("0", True)


def test_an_organization_has_a_rate_of_its_own(
    client: Client, headers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ClientRate.THROTTLE_RATES, "organization", "3/min")
    answer = client.get("/api/v1/changes", **headers)
    assert (answer.headers["RateLimit-Limit"], answer.headers["RateLimit-Remaining"]) == ("3", "2")


def test_pages_have_none_of_it(client: Client) -> None:
    assert "RateLimit-Limit" not in client.get("/accounts/login/").headers


def test_a_ledger_leaves_while_it_is_read(asgi_server: str, headers: dict[str, Any]) -> None:
    with httpx.Client(base_url=asgi_server) as http:
        organization = http.get(
            "/api/v1/organizations", headers={"Authorization": headers["HTTP_AUTHORIZATION"]}
        ).json()["results"][0]["id"]
        answer = http.get(
            f"/api/v1/organizations/{organization}/ledger.csv",
            headers={"Authorization": headers["HTTP_AUTHORIZATION"]},
        )
    assert answer.text.startswith("id,held_at,closed_at,state")
