"""Who may see what: rows 1 and 2, faults C79, C80, C83."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser

from tenants.access import organization_for, project_for, require_role, role_of
from tenants.errors import NotVisible, RoleTooLow
from tenants.models import Organization, Project, Role
from tests.factories.tenants import (
    make_member,
    make_membership,
    make_organization,
    make_project,
    make_user,
)

pytestmark = pytest.mark.django_db


def test_a_member_gets_the_project_with_a_role_that_reaches() -> None:
    project = make_project()
    member = make_member(project.organization, Role.MEMBER)
    assert project_for(member, project.pk, at_least=Role.VIEWER) == project
    assert project_for(member, project.pk, at_least=Role.MEMBER) == project


def test_a_role_that_does_not_reach_is_told_which_one_would() -> None:
    project = make_project()
    viewer = make_member(project.organization, Role.VIEWER)
    with pytest.raises(RoleTooLow, match="admin"):
        project_for(viewer, project.pk, at_least=Role.ADMIN)
    with pytest.raises(RoleTooLow, match="owner"):
        organization_for(viewer, project.organization_id, at_least=Role.OWNER)


def test_the_owner_of_another_organization_sees_nothing_here() -> None:
    """Row 1: no 403 that would tell which ids exist (C80)."""
    project = make_project()
    stranger = make_member(make_organization(), Role.OWNER)
    with pytest.raises(NotVisible):
        project_for(stranger, project.pk, at_least=Role.VIEWER)
    with pytest.raises(NotVisible):
        organization_for(stranger, project.organization_id, at_least=Role.VIEWER)
    with pytest.raises(NotVisible):
        require_role(stranger, project.organization_id, Role.VIEWER)
    assert not Project.objects.visible_to(stranger).exists()


def test_nobody_at_all_sees_nothing_not_even_an_organization_without_members() -> None:
    make_project(make_organization())
    assert not Organization.objects.visible_to(AnonymousUser()).exists()
    assert not Project.objects.visible_to(AnonymousUser()).exists()
    assert role_of(AnonymousUser(), make_organization().pk) is None


def test_a_user_who_was_switched_off_sees_nothing_at_once_also_through_an_old_copy() -> None:
    """C83: a stream holds a copy of the user from before."""
    project = make_project()
    owner = make_member(project.organization, Role.OWNER)
    type(owner).objects.filter(pk=owner.pk).update(is_active=False)
    assert owner.is_active, "the copy does not know yet"
    assert role_of(owner, project.organization_id) is None
    with pytest.raises(NotVisible):
        project_for(owner, project.pk, at_least=Role.VIEWER)


def test_a_membership_that_ended_ends_the_access_at_once() -> None:
    project = make_project()
    member = make_member(project.organization)
    member.memberships.all().delete()
    assert role_of(member, project.organization_id) is None
    assert not Project.objects.visible_to(member).exists()


def test_a_token_narrows_its_user_to_one_organization() -> None:
    here, there = make_project(), make_project()
    both = make_user()
    make_membership(here.organization, both, Role.OWNER)
    make_membership(there.organization, both, Role.OWNER)
    assert set(Project.objects.visible_to(both)) == {here, there}

    both.token_organization_id = here.organization_id
    assert set(Project.objects.visible_to(both)) == {here}
    assert set(Organization.objects.visible_to(both)) == {here.organization}
    assert role_of(both, there.organization_id) is None
    with pytest.raises(NotVisible):
        project_for(both, there.pk, at_least=Role.VIEWER)


def test_rows_come_once_each_however_many_members_there_are() -> None:
    project = make_project()
    first = make_member(project.organization)
    make_member(project.organization)
    make_member(project.organization)
    assert Project.objects.visible_to(first).count() == 1
