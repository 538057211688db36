"""Every door of this floor, opened by everybody who should not: row 1, faults C79, C80, C81."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.test import Client

from tenants.models import Invitation, Membership, Role
from tests.factories.tenants import make_invitation, make_member, make_project, make_token
from tests.tenants.conftest import House, api, browser

# Method, address, body, and the lowest role that gets in.
REST = [
    ("get", "organizations/{organization}", None, "viewer"),
    ("patch", "organizations/{organization}", {"name": "Other"}, "admin"),
    ("get", "organizations/{organization}/members", None, "viewer"),
    ("patch", "organizations/{organization}/members/{member}", {"role": "viewer"}, "admin"),
    ("delete", "organizations/{organization}/members/{member}", None, "admin"),
    ("get", "organizations/{organization}/invitations", None, "admin"),
    ("post", "organizations/{organization}/invitations", {"email": "new@example.org"}, "admin"),
    ("delete", "organizations/{organization}/invitations/{invitation}", None, "admin"),
    ("post", "organizations/{organization}/invitations/{invitation}/renew", None, "admin"),
    ("get", "organizations/{organization}/tokens", None, "viewer"),
    ("post", "organizations/{organization}/tokens", {"name": "mine", "scopes": ["read"]}, "viewer"),
    ("get", "organizations/{organization}/audit", None, "admin"),
    ("get", "projects?organization={organization}", None, "viewer"),
    ("post", "projects", {"organization": "{organization}", "name": "New", "slug": "new"}, "admin"),
    ("get", "projects/{project}", None, "viewer"),
    ("patch", "projects/{project}", {"description": "Other"}, "admin"),
]
PAGES = [
    ("get", "/organizations/{organization}", None, "viewer"),
    ("post", "/organizations/{organization}", {"name": "Other"}, "admin"),
    ("get", "/organizations/{organization}/members", None, "viewer"),
    ("post", "/organizations/{organization}/members", {"email": "new@example.org", "role": "20"}, "admin"),
    ("post", "/organizations/{organization}/members/{member}/role", {"role": "10"}, "admin"),
    ("get", "/organizations/{organization}/members/{member}/remove", None, "admin"),
    ("post", "/organizations/{organization}/members/{member}/remove", {}, "admin"),
    ("post", "/organizations/{organization}/invitations/{invitation}", {"act": "revoke"}, "admin"),
    ("get", "/organizations/{organization}/tokens", None, "viewer"),
    ("get", "/organizations/{organization}/audit", None, "admin"),
    ("get", "/projects/{project}", None, "viewer"),
    ("post", "/projects/{project}", {"name": "Other", "connector": "main", "promotion": "person"}, "admin"),
    ("post", "/projects/{project}/archive", {"archived": "1"}, "admin"),
]
ROLES = ["viewer", "member", "admin", "owner"]


def _ids(house: House) -> dict[str, str]:
    invitation, _ = make_invitation(house.organization, invited_by=house.owner)
    return {
        "organization": str(house.organization.pk),
        "project": str(house.project.pk),
        "member": str(make_member(house.organization).pk),
        "invitation": str(invitation.pk),
    }


def _knock(client: Client, method: str, address: str, body: object, ids: dict[str, str], **more: str) -> int:
    filled = {k: v.format(**ids) if isinstance(v, str) else v for k, v in dict(body or {}).items()}  # type: ignore[call-overload]  # a table of tests
    if not address.startswith("/"):
        address = "/api/v1/" + address
    answer = getattr(client, method)(address.format(**ids), filled, **more)
    return int(answer.status_code)


@pytest.mark.parametrize(("method", "address", "body", "lowest"), REST)
def test_rest_lets_in_exactly_the_roles_that_reach(
    house: House, method: str, address: str, body: object, lowest: str
) -> None:
    for role in ROLES:
        ids = _ids(house)
        status = _knock(api(getattr(house, role)), method, address, body, ids)
        if ROLES.index(role) < ROLES.index(lowest):
            assert status == 403, role
        else:
            assert status in (200, 201, 204) or (role == "owner" and status == 400), (
                role
            )  # taken by the admin


@pytest.mark.parametrize(("method", "address", "body", "lowest"), REST)
def test_rest_is_a_404_for_other_tenants_and_a_401_for_nobody(
    house: House, method: str, address: str, body: object, lowest: str
) -> None:
    """C80: also for the id in the body, and with the same status as an id that is nobody's."""
    ids = _ids(house)
    assert _knock(api(house.neighbour), method, address, body, ids) == 404
    assert _knock(api(house.outsider), method, address, body, ids) == 404
    assert _knock(api(), method, address, body, ids) == 401
    _, plain = make_token(house.neighbour, house.neighbour.memberships.get().organization, scopes=["admin"])
    assert _knock(api(), method, address, body, ids, HTTP_AUTHORIZATION=f"Bearer {plain}") == 404


@pytest.mark.parametrize(("method", "address", "body", "lowest"), PAGES)
def test_pages_let_in_exactly_the_roles_that_reach(
    house: House, method: str, address: str, body: object, lowest: str
) -> None:
    for role in ROLES:
        status = _knock(browser(getattr(house, role)), method, address, body, _ids(house))
        if ROLES.index(role) < ROLES.index(lowest):
            assert status == 403, role
        else:
            assert status in (200, 302), role


@pytest.mark.parametrize(("method", "address", "body", "lowest"), PAGES)
def test_pages_are_a_404_for_other_tenants_and_lead_nobody_to_the_sign_in(
    house: House, method: str, address: str, body: object, lowest: str
) -> None:
    ids = _ids(house)
    assert _knock(browser(house.neighbour), method, address, body, ids) == 404
    assert _knock(browser(house.outsider), method, address, body, ids) == 404
    answer = getattr(browser(), method)(address.format(**ids), body or {})
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/accounts/login/")


@pytest.mark.parametrize("kind", ["members", "invitations", "tokens"])
def test_a_row_is_looked_up_together_with_its_organization(house: House, kind: str) -> None:
    """C79, C81: the owner of one organization names a row of another beneath their own address."""
    foreign = house.neighbour.memberships.get().organization
    theirs = {
        "members": str(house.neighbour.pk),
        "invitations": str(make_invitation(foreign, invited_by=house.neighbour)[0].pk),
        "tokens": str(make_token(house.neighbour, foreign)[0].pk),
    }[kind]
    address = f"/organizations/{house.organization.pk}/{kind}/{theirs}"
    client, person = api(house.owner), browser(house.owner)
    before = list(Invitation.objects.values()), list(Membership.objects.values()), len(mail.outbox)
    answers: list[Any] = [client.delete(f"/api/v1{address}")]
    match kind:
        case "members":
            answers += [
                client.patch(f"/api/v1{address}", {"role": "viewer"}, format="json"),
                person.post(f"{address}/role", {"role": "10"}),
                person.post(f"{address}/remove", {}),
            ]
        case "invitations":
            answers.append(client.post(f"/api/v1{address}/renew"))
            answers += [person.post(address, {"act": act}) for act in ("renew", "revoke")]
        case "tokens":
            answers.append(person.post(f"{address}/revoke", {}))
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert (list(Invitation.objects.values()), list(Membership.objects.values()), len(mail.outbox)) == before
    assert house.neighbour.memberships.exists()
    assert foreign.tokens.filter(revoked_at__isnull=False).count() == 0


def test_lists_hold_only_what_is_ones_own(house: House) -> None:
    mine = make_project(house.neighbour.memberships.get().organization)
    listed = api(house.neighbour).get("/api/v1/projects").json()["results"]
    assert [row["id"] for row in listed] == [str(mine.pk)]
    assert house.organization.name.encode() not in browser(house.neighbour).get("/projects").content


def test_a_membership_that_ended_closes_the_next_request(house: House) -> None:
    """C83."""
    client, address = api(house.member), f"/api/v1/projects/{house.project.pk}"
    assert client.get(address).status_code == 200
    house.member.memberships.all().delete()
    assert client.get(address).status_code == 404


def test_a_user_who_was_switched_off_is_out(house: House) -> None:
    client = api(house.owner)
    _, plain = make_token(house.owner, house.organization)
    type(house.owner).objects.filter(pk=house.owner.pk).update(is_active=False)
    address = f"/api/v1/projects/{house.project.pk}"
    assert client.get(address).status_code == 401
    assert api().get(address, HTTP_AUTHORIZATION=f"Bearer {plain}").status_code == 401


def test_lists_ask_the_same_number_of_questions_for_one_row_and_for_many(
    house: House, django_assert_max_num_queries: pytest.FixtureRequest
) -> None:
    for _ in range(5):
        make_member(house.organization, Role.VIEWER)
        make_project(house.organization)
        make_invitation(house.organization, invited_by=house.owner)
    for address in ("/members", "/tokens", "/audit", ""):
        client = browser(house.owner)
        with django_assert_max_num_queries(16):  # type: ignore[operator]  # a fixture of pytest-django
            assert client.get(f"/organizations/{house.organization.pk}{address}").status_code == 200
    with django_assert_max_num_queries(6):  # type: ignore[operator]  # a fixture of pytest-django
        client.get("/projects")
