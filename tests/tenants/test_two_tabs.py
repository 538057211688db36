"""Two pages of the same settings: the one that was opened first does not undo what the other saved."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import Project
from tenants.projects import change_project
from tests.factories.providers import make_connector
from tests.factories.webhooks import make_endpoint, make_hook
from tests.tenants.conftest import House, browser

pytestmark = pytest.mark.django_db


def values_on(client: Client, path: str) -> dict[str, Any]:
    """What a browser would send back when nothing is typed, as the page stands."""
    answer = client.get(path)
    form = answer.context["form"]
    found = {bound.html_name: bound.value() for bound in form if not bound.field.disabled}
    sent = {name: value for name, value in found.items() if value not in (None, False)}
    seen = re.search(r'name="seen" value="([^"]*)"', answer.content.decode())
    assert seen is not None, path
    return sent | {"seen": seen[1].replace("&quot;", '"')}


def test_an_older_page_does_not_trust_a_project_again(house: House) -> None:
    path, owner = f"/projects/{house.project.pk}", browser(house.owner)
    change_project(
        house.project, {"trusted": True, "description": "a\nb"}, by=house.owner, now=timezone.now()
    )
    old = values_on(owner, path)
    change_project(house.project, {"trusted": False, "description": "c"}, by=house.owner, now=timezone.now())
    answer = owner.post(path, {**old, "name": "Renamed"})
    assert answer.status_code == 200
    assert set(answer.context["form"].errors) == {"trusted", "description"}
    assert b"changed this after you opened the page" in answer.content
    project = Project.objects.get(pk=house.project.pk)
    assert (project.trusted, project.name, project.description) == (False, house.project.name, "c")
    again = re.search(r'name="seen" value="([^"]*)"', answer.content.decode())
    assert again is not None
    owner.post(path, {**old, "name": "Renamed", "seen": again[1].replace("&quot;", '"')})
    assert Project.objects.get(pk=house.project.pk).trusted


def test_what_two_pages_change_apart_is_both_kept(house: House) -> None:
    path, owner = f"/projects/{house.project.pk}", browser(house.owner)
    old = values_on(owner, path)
    change_project(house.project, {"name": "Theirs"}, by=house.owner, now=timezone.now())
    answer = owner.post(path, {**old, "name": "Theirs", "description": "mine\r\nand long"})
    assert answer.status_code == 302
    project = Project.objects.get(pk=house.project.pk)
    assert (project.name, project.description) == ("Theirs", "mine\nand long")


@pytest.mark.parametrize("seen", ["", "[]", "{", "[" * 100_000, '{"name": 1}', "null"])
def test_an_odd_mark_is_no_fault(house: House, seen: str) -> None:
    path, owner = f"/projects/{house.project.pk}", browser(house.owner)
    assert owner.post(path, {**values_on(owner, path), "seen": seen}).status_code in (200, 302)


@pytest.mark.parametrize("kind", ["webhook", "hook", "connector"])
def test_other_settings_are_kept_the_same_way(house: House, kind: str) -> None:
    admin = browser(house.admin)
    row: Any
    if kind == "webhook":
        row = make_endpoint(house.organization)
        path, field, before = f"/organizations/{house.organization.pk}/webhooks/{row.pk}", "url", row.url
        theirs: Any = "https://192.0.2.1/theirs"
    elif kind == "hook":
        row = make_hook(house.project, author=house.member)
        path, field, before, theirs = (
            f"/projects/{house.project.pk}/hooks/{row.pk}",
            "name",
            row.name,
            "theirs",
        )
    else:
        row = make_connector(house.organization, config={"scenarios": "scenarios"})
        path = f"/organizations/{house.organization.pk}/connectors/{row.pk}"
        field, before, theirs = "config", row.config, {"scenarios": "others"}
    old = values_on(admin, path)
    type(row).objects.filter(pk=row.pk).update(**{field: theirs})
    answer = admin.post(path, old)
    assert (answer.status_code, set(answer.context["form"].errors)) == (200, {field}), before
    row.refresh_from_db()
    assert getattr(row, field) == theirs
