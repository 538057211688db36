"""One table speaks HTTP for the domain: problem details for clients, pages for people."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client, RequestFactory
from rest_framework import exceptions, serializers

from config.errors import TABLE, answer, problem_of, problem_response, server_error
from providers.errors import ConnectorNotFound, TimedOut
from tenants.errors import InvalidInput, NotVisible, RoleTooLow

ANY_CONTEXT: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotVisible("change"), 404, "not_found"),
        (RoleTooLow("admin"), 403, "role_too_low"),
        (InvalidInput("goal", "is empty", "Say what should be true."), 400, "invalid"),
        (InvalidInput("goal", "is too long", "Use less.", code="too_long"), 400, "too_long"),
        (ConnectorNotFound("main"), 409, "connector_not_found"),
        (Http404(), 404, "not_found"),
        (PermissionDenied(), 403, "forbidden"),
        (exceptions.NotAuthenticated(), 401, "not_authenticated"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (exceptions.ParseError(), 400, "parse_error"),
        (exceptions.UnsupportedMediaType("a/b"), 415, "unsupported_media_type"),
    ],
)
def test_an_error_becomes_problem_details(error: Exception, status: int, code: str) -> None:
    response = problem_response(error, ANY_CONTEXT)
    assert response is not None
    assert (response.status_code, response.data["status"], response.data["code"]) == (status, status, code)
    assert response.content_type == "application/problem+json"
    assert response.data["title"]
    assert response.data["detail"]


def test_bad_input_names_the_field_and_the_remedy() -> None:
    problem = problem_of(InvalidInput("criteria", "is not a list", "Send a JSON list."))
    assert problem is not None
    assert problem.extra == {"field": "criteria", "remedy": "Send a JSON list."}
    assert problem.detail == "is not a list"


def test_a_nested_complaint_names_its_path() -> None:
    class Criterion(serializers.Serializer[Any]):
        text = serializers.CharField()

    class Wanted(serializers.Serializer[Any]):
        criteria = Criterion(many=True)
        tags = serializers.ListField(child=serializers.IntegerField())

    wanted = Wanted(data={"criteria": [{"text": "ok"}, {}], "tags": [1, "x"]})
    with pytest.raises(exceptions.ValidationError) as caught:
        wanted.is_valid(raise_exception=True)
    response = problem_response(caught.value, ANY_CONTEXT)
    assert response is not None
    assert [row["field"] for row in response.data["errors"]] == ["criteria.1.text", "tags.1"]
    assert response.data["field"] == "criteria.1.text"


def test_a_refused_client_is_told_when_to_come_back() -> None:
    response = problem_response(exceptions.Throttled(wait=7.2), ANY_CONTEXT)
    assert response is not None
    assert (response.status_code, response.headers["Retry-After"]) == (429, "8")


def test_what_is_not_in_the_table_is_a_bug() -> None:
    assert problem_of(KeyError("x")) is None
    assert problem_of(TimedOut("raised where no door expects it")) is None
    assert problem_response(RuntimeError("x"), ANY_CONTEXT) is None


def test_every_row_has_a_stable_code_and_a_client_status() -> None:
    for kind, row in TABLE.items():
        assert row.code.replace("_", "").isalpha(), kind
        assert 400 <= row.status < 500, kind


def test_the_manual_names_every_code_with_its_status() -> None:
    manual = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (4\d\d) \| (.*) \|$", manual, re.MULTILINE)
    for kind, row in TABLE.items():
        said = " ".join(text for status, text in rows if status == str(row.status))
        assert f"`{row.code}`" in said, kind


def test_people_get_a_page_and_htmx_a_fragment(rf: RequestFactory) -> None:
    problem = problem_of(NotVisible("change"))
    assert problem is not None
    page = answer(rf.get("/changes/1"), problem)
    fragment = answer(rf.get("/changes/1", headers={"HX-Request": "true"}), problem)
    assert page.status_code == fragment.status_code == 404
    assert b"<html" in page.content
    assert b"<html" not in fragment.content
    assert json.loads(answer(rf.get("/api/v1/x"), problem).content)["code"] == "not_found"


def test_a_fault_of_ours_tells_nothing_of_itself(rf: RequestFactory) -> None:
    assert server_error(rf.get("/")).status_code == 500
    assert json.loads(server_error(rf.get("/api/v1/x")).content)["code"] == "internal_error"


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: Client) -> None:
    response = client.post(
        "/api/v1/anything", data=b"x" * (4 * 1024 * 1024 + 1), content_type="application/json"
    )
    assert response.status_code == 413
    assert response.json()["code"] == "body_too_large"


@pytest.mark.django_db
def test_an_unknown_address_is_a_problem_under_api_and_a_page_elsewhere(client: Client) -> None:
    assert client.get("/api/v1/nothing-here").json()["code"] == "not_found"
    assert b"<html" in client.get("/nothing-here").content


@pytest.mark.parametrize(
    "address", ["/api/v1/changes?q=%00", "/api/v1/schema?a%00=1", "/changes?q=a%00b", "/a%00b"]
)
def test_an_address_with_a_nul_is_refused_before_a_database_sees_it(client: Client, address: str) -> None:
    assert client.get(address).status_code == 400
