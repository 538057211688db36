"""Bearer tokens: shown once, kept as a hash, narrowed to one organization and to their scopes (row 2)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tenants.members import digest_of
from tenants.models import ApiToken, IdempotencyRecord, Role
from tests.factories.tenants import bearer, make_membership, make_organization, make_project, make_token
from tests.tenants.conftest import House, api


def test_a_token_opens_its_organization_only_though_its_user_has_two(house: House) -> None:
    elsewhere = make_project(make_organization())
    make_membership(elsewhere.organization, house.owner, Role.OWNER)
    _, plain = make_token(house.owner, house.organization, scopes=["admin"])
    rows = api().get("/api/v1/projects", **bearer(plain)).json()["results"]
    assert [row["id"] for row in rows] == [str(house.project.pk)]
    assert api().get(f"/api/v1/projects/{elsewhere.pk}", **bearer(plain)).status_code == 404
    foreign = {"organization": str(elsewhere.organization_id), "name": "X", "slug": "x"}
    assert api().post("/api/v1/projects", foreign, **bearer(plain)).status_code == 404


def test_a_token_is_kept_as_a_hash_and_shown_once(house: House) -> None:
    address = f"/api/v1/organizations/{house.organization.pk}/tokens"
    made = api(house.member).post(address, {"name": "ci", "scopes": ["read"]}).json()
    assert made["token"].startswith("rmt_")
    row = ApiToken.objects.get(pk=made["id"])
    assert row.digest == digest_of(made["token"])
    assert made["token"] not in str(ApiToken.objects.filter(pk=row.pk).values().get())
    assert "token" not in api(house.member).get(address).json()["results"][0]


@pytest.mark.parametrize("ended", ["expired", "revoked", "left", "wrong"])
def test_a_token_that_ended_is_a_401(house: House, ended: str) -> None:
    token, plain = make_token(house.member, house.organization)
    if ended == "expired":
        ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    elif ended == "revoked":
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
    elif ended == "left":
        house.member.memberships.all().delete()
    else:
        plain = plain[:-1] + ("A" if plain[-1] != "A" else "B")
    answer = api().get("/api/v1/projects", **bearer(plain))
    assert answer.status_code == 401
    assert answer.json()["code"] == "token_invalid"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("scopes", "status"), [(["read"], 403), (["changes:write", "budgets:write"], 403), (["admin"], 201)]
)
def test_a_scope_that_does_not_reach_is_refused_though_the_role_would(
    house: House, scopes: list[str], status: int
) -> None:
    _, plain = make_token(house.owner, house.organization, scopes=scopes)
    wanted = {"organization": str(house.organization.pk), "name": "New", "slug": "new"}
    answer = api().post("/api/v1/projects", wanted, **bearer(plain))
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["code"] == "scope_missing"


def test_a_scope_gives_no_more_than_the_role_of_its_user(house: House) -> None:
    _, plain = make_token(house.viewer, house.organization, scopes=["admin"])
    answer = api().patch(f"/api/v1/projects/{house.project.pk}", {"name": "Mine"}, **bearer(plain))
    assert answer.status_code == 403
    assert answer.json()["code"] == "role_too_low"


def test_last_use_is_written_at_most_once_a_minute(house: House) -> None:
    token, plain = make_token(house.member, house.organization)
    api().get("/api/v1/projects", **bearer(plain))
    first = ApiToken.objects.get(pk=token.pk).last_used_at
    assert first is not None
    api().get("/api/v1/projects", **bearer(plain))
    assert ApiToken.objects.get(pk=token.pk).last_used_at == first
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=first - timedelta(minutes=2))
    api().get("/api/v1/projects", **bearer(plain))
    later = ApiToken.objects.get(pk=token.pk).last_used_at
    assert later is not None
    assert later >= first


def test_members_see_their_own_tokens_and_admins_all(house: House) -> None:
    make_token(house.member, house.organization)
    mine, _ = make_token(house.viewer, house.organization)
    address = f"/api/v1/organizations/{house.organization.pk}/tokens"
    assert [row["id"] for row in api(house.viewer).get(address).json()["results"]] == [str(mine.pk)]
    assert len(api(house.admin).get(address).json()["results"]) == 2
    assert api(house.member).delete(f"{address}/{mine.pk}").status_code == 404
    assert api(house.admin).delete(f"{address}/{mine.pk}").status_code == 204


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["everything"]},
        {"name": "", "scopes": ["read"]},
        {"name": "x\u202ey", "scopes": ["read"]},
        {"name": "x" * 101, "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expires_at": "2001-01-01T00:00:00Z"},
        {"name": "x", "scopes": ["read"], "user": "somebody"},
        ["read"],
    ],
)
def test_bad_wishes_name_the_field_and_make_nothing(house: House, body: object) -> None:
    answer = api(house.member).post(
        f"/api/v1/organizations/{house.organization.pk}/tokens", body, format="json"
    )
    assert answer.status_code == 400
    assert not ApiToken.objects.exists()


def test_a_replayed_answer_holds_no_token(house: House) -> None:
    address = f"/api/v1/organizations/{house.organization.pk}/tokens"
    wanted = {"name": "ci", "scopes": ["read"]}
    plain = api(house.member).post(address, wanted, HTTP_IDEMPOTENCY_KEY="k1").json()["token"]
    again = api(house.member).post(address, wanted, HTTP_IDEMPOTENCY_KEY="k1")
    assert again.json()["token"] is None
    assert plain not in str(IdempotencyRecord.objects.get().body)
    assert ApiToken.objects.count() == 1
