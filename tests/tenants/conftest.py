"""What the tests of the first floor share: one organization with somebody in each role, and strangers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.test import Client
from rest_framework.test import APIClient

from tenants.models import Organization, Project, Role, User
from tests.factories.tenants import make_member, make_organization, make_project, make_user


@dataclass(frozen=True)
class House:
    organization: Organization
    project: Project
    owner: User
    admin: User
    member: User
    viewer: User
    # The owner of another organization, and somebody who is in none.
    neighbour: User
    outsider: User


@pytest.fixture
def house(db: None) -> House:
    organization = make_organization()
    return House(
        organization=organization,
        project=make_project(organization),
        owner=make_member(organization, Role.OWNER),
        admin=make_member(organization, Role.ADMIN),
        member=make_member(organization, Role.MEMBER),
        viewer=make_member(organization, Role.VIEWER),
        neighbour=make_member(make_organization(), Role.OWNER),
        outsider=make_user(),
    )


def api(user: User | None = None) -> APIClient:
    """A REST client with the user's session."""
    client = APIClient()
    if user is not None:
        client.force_login(user)
    return client


def browser(user: User | None = None) -> Client:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client
