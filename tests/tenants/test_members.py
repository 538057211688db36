"""Roles: nobody rises above themselves, one owner stays, and every act is in the audit list."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
from django.db import DatabaseError, connection, transaction

from tenants.errors import InvalidInput, NotVisible, RoleTooLow
from tenants.members import (
    add_member,
    change_role,
    create_organization,
    create_project,
    issue_token,
    remove_member,
)
from tenants.models import ApiToken, AuditEntry, Membership, Role
from tests.factories.tenants import make_member, make_organization, make_token, make_user
from tests.tenants.conftest import House, api


def _role(house: House, name: str) -> Role | None:
    row = Membership.objects.filter(organization=house.organization, user=getattr(house, name)).first()
    return None if row is None else Role(row.role)


def test_a_new_organization_has_its_maker_as_owner(db: None) -> None:
    owner = make_user()
    organization = create_organization("Northwind", "northwind", owner=owner)
    assert organization.memberships.get().role == Role.OWNER
    assert AuditEntry.objects.get().action == "organization.created"


@pytest.mark.parametrize("slug", ["", "Up", "-a", "a-", "a b", "a" * 64, "ä", "a\n"])
def test_a_bad_short_name_is_refused(db: None, slug: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        create_organization("Northwind", slug, owner=make_user())
    assert refused.value.field == "slug"


def test_a_short_name_is_taken_once(house: House) -> None:
    with pytest.raises(InvalidInput, match="already") as refused:
        create_organization("Again", house.organization.slug, owner=house.owner)
    assert refused.value.code == "taken"
    with pytest.raises(InvalidInput, match="already"):
        create_project(house.organization, name="Again", slug=house.project.slug, by=house.owner)


@pytest.mark.parametrize(
    ("by", "whom", "to"),
    [
        ("admin", "admin", Role.OWNER),  # themselves, upwards
        ("admin", "member", Role.OWNER),  # somebody to above themselves
        ("admin", "owner", Role.VIEWER),  # somebody above themselves, downwards
        ("member", "member", Role.ADMIN),
        ("viewer", "viewer", Role.MEMBER),
        ("member", "viewer", Role.VIEWER),
    ],
)
def test_nobody_rises_or_touches_above_themselves(house: House, by: str, whom: str, to: Role) -> None:
    before = _role(house, whom)
    with pytest.raises(RoleTooLow):
        change_role(house.organization, getattr(house, whom), to, by=getattr(house, by))
    assert _role(house, whom) == before
    assert not AuditEntry.objects.exists()


def test_an_owner_of_another_organization_changes_no_role_here(house: House) -> None:
    with pytest.raises(NotVisible):
        change_role(house.organization, house.member, Role.ADMIN, by=house.neighbour)


def test_a_changed_role_is_audited_with_before_and_after(house: House) -> None:
    change_role(house.organization, house.viewer, Role.ADMIN, by=house.owner)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after) == (
        "member.role_changed",
        {"role": "viewer"},
        {"role": "admin"},
    )
    assert (entry.actor, entry.subject) == (house.owner, house.viewer.email)


def test_the_last_owner_neither_leaves_nor_steps_down(house: House) -> None:
    with pytest.raises(InvalidInput, match="without an owner"):
        remove_member(house.organization, house.owner, by=house.owner)
    with pytest.raises(InvalidInput, match="without an owner"):
        change_role(house.organization, house.owner, Role.MEMBER, by=house.owner)
    change_role(house.organization, house.admin, Role.OWNER, by=house.owner)
    remove_member(house.organization, house.owner, by=house.owner)
    assert _role(house, "owner") is None


def test_an_owner_who_was_switched_off_does_not_count_as_the_other_one(house: House) -> None:
    make_member(house.organization, Role.OWNER, is_active=False)
    with pytest.raises(InvalidInput, match="without an owner"):
        remove_member(house.organization, house.owner, by=house.owner)


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_leave_at_once_one_stays() -> None:
    organization = make_organization()
    owners = [make_member(organization, Role.OWNER) for _ in range(2)]
    together = Barrier(2)

    def leave(index: int) -> None:
        together.wait()
        try:
            remove_member(organization, owners[index], by=owners[index])
        except InvalidInput:
            pass
        finally:
            connection.close()

    threads = [Thread(target=leave, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert organization.memberships.filter(role=Role.OWNER).count() == 1


def test_everybody_may_leave_and_takes_no_keys_along(house: House) -> None:
    make_token(house.viewer, house.organization)
    answer = api(house.viewer).delete(
        f"/api/v1/organizations/{house.organization.pk}/members/{house.viewer.pk}"
    )
    assert answer.status_code == 204
    assert not ApiToken.objects.exists()
    add_member(house.organization, house.viewer, Role.VIEWER, by=house.admin)
    assert not ApiToken.objects.exists(), "a person who comes back starts without old keys"


def test_the_last_owner_gets_a_problem_over_rest(house: House) -> None:
    answer = api(house.owner).patch(
        f"/api/v1/organizations/{house.organization.pk}/members/{house.owner.pk}", {"role": "viewer"}
    )
    assert answer.status_code == 400
    assert answer.json()["code"] == "last_owner"


def test_a_token_is_made_for_members_only(house: House) -> None:
    with pytest.raises(NotVisible):
        issue_token(house.neighbour, house.organization, name="x", scopes=["read"], by=house.neighbour)


def test_only_operators_make_organizations_and_never_by_token(house: House) -> None:
    wanted = {"name": "Mine", "slug": "mine"}
    assert api(house.owner).post("/api/v1/organizations", wanted).status_code == 403
    operator = make_member(house.organization, Role.OWNER, is_staff=True)
    _, plain = make_token(operator, house.organization, scopes=["admin"])
    by_token = api().post("/api/v1/organizations", wanted, HTTP_AUTHORIZATION=f"Bearer {plain}")
    assert by_token.status_code == 403
    assert api(operator).post("/api/v1/organizations", wanted).status_code == 201


def test_the_database_refuses_a_changed_audit_entry(house: House) -> None:
    change_role(house.organization, house.viewer, Role.ADMIN, by=house.admin)
    with pytest.raises(DatabaseError, match="append only"), transaction.atomic():
        AuditEntry.objects.update(action="nothing.happened")
    with pytest.raises(DatabaseError, match="append only"), transaction.atomic():
        AuditEntry.objects.update(before=None)
    type(house.admin).objects.filter(pk=house.admin.pk).delete()
    assert AuditEntry.objects.get().actor is None, "the entry outlives its actor"
