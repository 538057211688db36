"""Accounts by invitation only: one link, one address, one role, one week."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from tenants.errors import InvalidInput, NotVisible, RoleTooLow
from tenants.invitations import accept, accept_as_new, invite, open_invitation, renew, revoke
from tenants.members import change_role, remove_member
from tenants.models import Invitation, Membership, Role, User
from tests.factories.tenants import make_invitation, make_organization, make_user
from tests.tenants.conftest import House, api, browser

PASSWORD = "a few words in a row"


def _invite(house: House, role: Role = Role.MEMBER, by: str = "owner") -> tuple[Invitation, str]:
    return invite(house.organization, "guest@example.org", role, by=getattr(house, by), now=timezone.now())


def test_the_whole_way_from_the_letter_to_the_organization(house: House) -> None:
    page = browser(house.admin).post(
        f"/organizations/{house.organization.pk}/members", {"email": "Guest@Example.org", "role": "20"}
    )
    assert page.status_code == 200
    (letter,) = mail.outbox
    assert letter.to == ["guest@example.org"]
    link = next(word for word in letter.body.split() if "/invitations" in word)
    assert link in page.content.decode(), "the sender may hand it over too"

    guest, address = browser(), link.removeprefix("http://testserver")
    assert house.organization.name in guest.get(address).content.decode()
    assert guest.post(address, {"name": "Gus", "password": PASSWORD}).status_code == 302
    user = User.objects.get(email="guest@example.org")
    assert Membership.objects.get(user=user).role == Role.MEMBER
    assert guest.get(f"/projects/{house.project.pk}").status_code == 200
    assert guest.get(address).status_code == 404, "it works once"

    again = browser()
    assert again.post("/accounts/login/", {"login": user.email, "password": PASSWORD}).status_code == 302
    assert again.get("/account").status_code == 200


def test_nobody_signs_up_without_an_invitation(db: None) -> None:
    wanted = {"email": "me@example.org", "password1": PASSWORD, "password2": PASSWORD}
    answer = browser().post("/accounts/signup/", wanted)
    assert b"By invitation only" in answer.content
    assert not User.objects.exists()


def test_nobody_changes_their_address_without_proving_it(house: House) -> None:
    answer = browser(house.member).post("/accounts/email/", {"action_add": "", "email": "boss@example.org"})
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/account"
    assert not User.objects.filter(email="boss@example.org").exists()


@pytest.mark.parametrize("ended", ["expired", "revoked", "renewed", "invented"])
def test_a_link_that_ended_is_a_404(house: House, ended: str) -> None:
    now = timezone.now()
    invitation, plain = _invite(house)
    if ended == "expired":
        Invitation.objects.update(expires_at=now - timedelta(seconds=1))
    elif ended == "revoked":
        revoke(invitation, by=house.owner, now=now)
    elif ended == "renewed":
        renew(invitation, by=house.owner, now=now)
    else:
        plain = "invented"
    with pytest.raises(NotVisible):
        open_invitation(plain, now=now)
    assert browser().post(f"/invitations/{plain}", {"password": PASSWORD}).status_code == 404
    assert not User.objects.filter(email="guest@example.org").exists()


def test_a_link_counts_only_while_its_sender_could_send_it(house: House) -> None:
    _, plain = _invite(house, Role.ADMIN, by="admin")
    open_invitation(plain, now=timezone.now())
    change_role(house.organization, house.admin, Role.MEMBER, by=house.owner)
    with pytest.raises(NotVisible):
        open_invitation(plain, now=timezone.now())
    remove_member(house.organization, house.admin, by=house.owner)
    with pytest.raises(NotVisible):
        accept_as_new(plain, password=PASSWORD, name="", now=timezone.now())


def test_nobody_invites_above_themselves(house: House) -> None:
    with pytest.raises(RoleTooLow):
        _invite(house, Role.OWNER, by="admin")
    with pytest.raises(RoleTooLow):
        _invite(house, Role.VIEWER, by="member")
    answer = api(house.admin).post(
        f"/api/v1/organizations/{house.organization.pk}/invitations",
        {"email": "guest@example.org", "role": "owner"},
    )
    assert answer.status_code == 403
    assert not Invitation.objects.exists()
    assert not mail.outbox


def test_an_admin_neither_renews_nor_ends_an_owners_invitation(house: House) -> None:
    invitation, _ = _invite(house, Role.OWNER)
    with pytest.raises(RoleTooLow):
        renew(invitation, by=house.admin, now=timezone.now())
    with pytest.raises(RoleTooLow):
        revoke(invitation, by=house.admin, now=timezone.now())


def test_an_invitation_is_not_acted_on_across_organizations(house: House) -> None:
    """C81, and the database refuses a second open one."""
    invitation, _ = _invite(house)
    theirs = house.neighbour.memberships.get().organization
    answer = browser(house.neighbour).post(
        f"/organizations/{theirs.pk}/invitations/{invitation.pk}", {"act": "revoke"}
    )
    assert answer.status_code == 404
    with pytest.raises(InvalidInput, match="open invitation"):
        _invite(house)


def test_only_the_invited_address_joins(house: House) -> None:
    _, plain = _invite(house)
    with pytest.raises(InvalidInput, match=r"guest@example\.org"):
        accept(plain, user=house.outsider, now=timezone.now())
    page = browser(house.outsider).post(f"/invitations/{plain}")
    assert b"another address" in page.content
    guest = make_user("guest@example.org")
    assert accept(plain, user=guest, now=timezone.now()).role == Role.MEMBER


def test_an_account_that_is_there_is_not_made_or_taken_over(house: House) -> None:
    guest = make_user("guest@example.org", password="the old password of guest")
    _, plain = _invite(house)
    with pytest.raises(InvalidInput, match="is an account"):
        accept_as_new(plain, password=PASSWORD, name="", now=timezone.now())
    page = browser().post(f"/invitations/{plain}", {"password": PASSWORD})
    assert b"Sign in to join" in page.content
    guest.refresh_from_db()
    assert guest.check_password("the old password of guest")
    assert not guest.memberships.exists()


@pytest.mark.parametrize("password", ["", "short", "12345678901", "guest@example.org", "x" * 2000])
def test_a_weak_password_makes_no_account(house: House, password: str) -> None:
    _, plain = _invite(house)
    assert browser().post(f"/invitations/{plain}", {"password": password}).status_code == 200
    assert not User.objects.filter(email="guest@example.org").exists()
    open_invitation(plain, now=timezone.now())


@pytest.mark.parametrize(
    "email", ["", "nobody", "a@b, c@d.org", "a\n@b.org", "a@b..org", "a@-b.org", "x" * 250 + "@b.org", 5]
)
def test_what_is_no_address_is_refused(house: House, email: object) -> None:
    answer = api(house.admin).post(
        f"/api/v1/organizations/{house.organization.pk}/invitations", {"email": email}, format="json"
    )
    assert answer.status_code == 400
    assert not mail.outbox


def test_the_same_address_may_be_in_two_organizations(house: House) -> None:
    other = make_organization(owner=house.outsider)
    _, first = _invite(house)
    _, second = invite(other, "guest@example.org", Role.VIEWER, by=house.outsider, now=timezone.now())
    user = accept_as_new(first, password=PASSWORD, name="Gus", now=timezone.now())
    accept(second, user=user, now=timezone.now())
    assert user.memberships.count() == 2


@pytest.mark.parametrize("kind", ["used", "expired", "invented"])
def test_a_dead_link_says_what_to_do_and_not_why(house: House, kind: str) -> None:
    _, secret = make_invitation(house.organization, email="late@example.org", invited_by=house.owner)
    if kind == "used":
        accept_as_new(secret, name="Late", password=PASSWORD, now=timezone.now())
    elif kind == "expired":
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = browser().get(f"/invitations/{secret if kind != 'invented' else 'never-sent'}")
    text = answer.content.decode()
    assert answer.status_code == 404
    assert "Ask who invited you for a new one." in text
    assert "belongs to an organization" not in text
