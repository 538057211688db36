"""What tests of calls share: a fake provider for each module, an organization, and its admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.fake.server import FakeServer
from tenants.models import Organization, Role, User
from tests.factories.tenants import make_member, make_organization


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def organization() -> Organization:
    return make_organization()


@pytest.fixture
def admin(organization: Organization) -> User:
    return make_member(organization, Role.ADMIN)
