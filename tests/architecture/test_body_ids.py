"""Ids in bodies and filters: another organization's is as if it were not there (promise 7, fault C80)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from tenants.models import Organization, Project, Role
from tests.architecture.test_routes import Foreign, foreign, row_counts
from tests.factories.tenants import make_member, make_organization, make_project
from tests.factories.webhooks import make_hook

__all__ = ["foreign"]

# Texts that may hold an id, besides what the schema calls a UUID.
IDS_IN_TEXTS = {"subject"}
# Operations whose body names another row: the address, and a body that is right but for that id.
BODIES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("projects_create", "organization"): ("/api/v1/projects", {"name": "Mine", "slug": "mine"}),
    ("limits_set", "subject"): (
        "/api/v1/organizations/{organization}/limits",
        {"meter": "project", "to": "9.00"},
    ),
    ("hooks_create", "author"): (
        "/api/v1/projects/{project}/hooks",
        {"name": "a hook", "kind": "standard"},
    ),
    ("hooks_update", "author"): ("/api/v1/projects/{project}/hooks/{hook}", {}),
}
MORE_BODIES = (
    ("/api/v1/organizations/{organization}/limits", {"meter": "user", "to": "9.00"}, "subject", "user_id"),
    (
        "/api/v1/organizations/{organization}/limits",
        {"meter": "change", "to": "9.00"},
        "subject",
        "change_id",
    ),
)
NAMED = {"organization": "organization_id", "subject": "project_id", "author": "user_id"}


@dataclass(frozen=True)
class Own:
    """The organization of a stranger, who owns it."""

    organization: Organization
    project: Project
    hook: str
    client: Client

    def path(self, template: str) -> str:
        return template.format(organization=self.organization.pk, project=self.project.pk, hook=self.hook)


@pytest.fixture
def own(db: None) -> Own:
    organization = make_organization()
    project = make_project(organization)
    client = Client()
    client.force_login(make_member(organization, Role.OWNER))
    return Own(organization, project, str(make_hook(project).pk), client)


@cache
def schema() -> Any:
    return SchemaGenerator(api_version="v1").get_schema(request=None, public=True)  # type: ignore[no-untyped-call]


def _operations() -> Iterator[tuple[str, str, Any]]:
    for path, methods in schema()["paths"].items():
        for operation in methods.values():
            yield path, operation["operationId"], operation


def _properties(operation: Any) -> Iterator[str]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        shape = content["schema"]
        while "$ref" in shape:
            shape = schema()["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
        for name, about in shape.get("properties", {}).items():
            if about.get("format") == "uuid" or name in IDS_IN_TEXTS:
                yield name


def _filters() -> list[tuple[str, str]]:
    return [
        (path, parameter["name"])
        for path, _, operation in _operations()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["schema"].get("format") == "uuid"
    ]


def test_every_id_in_a_body_is_tried_here() -> None:
    found = {(name, field) for _, name, operation in _operations() for field in _properties(operation)}
    assert found == set(BODIES)


@pytest.mark.parametrize(("name", "field"), BODIES)
def test_a_foreign_id_in_a_body_is_not_there(own: Own, foreign: Foreign, name: str, field: str) -> None:
    template, body = BODIES[name, field]
    method = "patch" if name.endswith("_update") else "post"
    _refused(own, method, template, body, field, foreign.values[NAMED[field]])


@pytest.mark.parametrize(("template", "body", "field", "kind"), MORE_BODIES)
def test_other_kinds_of_subjects_neither(
    own: Own, foreign: Foreign, template: str, body: dict[str, Any], field: str, kind: str
) -> None:
    _refused(own, "post", template, body, field, foreign.values[kind])


def _refused(own: Own, method: str, template: str, body: dict[str, Any], field: str, value: Any) -> None:
    """With a foreign id as with one that is nobody's, and nothing is another row afterwards."""
    before = row_counts()
    answers = []
    for known in (str(value), "01900000-0000-7000-8000-0000deadbeef"):
        ask = getattr(own.client, method)
        answer = ask(own.path(template), data=body | {field: known}, content_type="application/json")
        assert answer.status_code in (400, 404), answer.content
        answers.append((answer.status_code, answer.json()["code"], answer.json()["detail"]))
    assert answers[0] == answers[1]
    assert row_counts() == before


@pytest.mark.parametrize(("path", "name"), _filters())
def test_a_foreign_id_in_a_filter_finds_nothing(own: Own, foreign: Foreign, path: str, name: str) -> None:
    address = path.replace("{organization_id}", str(own.organization.pk))
    value = foreign.values[f"{name}_id"]
    answer = own.client.get(address, {name: str(value)})
    assert answer.status_code in (200, 400, 404)
    body = answer.getvalue().decode()
    others = [
        str(each) for key, each in foreign.values.items() if key.endswith("_id") and key != f"{name}_id"
    ]
    assert [each for each in others if len(each) > 30 and each in body] == []
    assert '"results":[{' not in body.replace(" ", "")
