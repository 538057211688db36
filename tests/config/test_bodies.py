"""Large bodies: taken only from whoever may send one, and never more than that, before anything is kept."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings as django_settings
from django.test import Client

from agents.workspace.git import Store
from config import bodies
from tasks.models import ProjectImport
from tenants.models import Project, Role, User
from tests.factories.tenants import make_member, make_organization, make_project, make_token
from tests.tasks.doors.conftest import asgi_server
from tests.tasks.repositories import FILES
from tests.tasks.test_import import make_source

__all__ = ["asgi_server"]

MIB = 1024 * 1024


@pytest.fixture
def project(transactional_db: None, tmp_path: Path, with_plane: Callable[..., Any]) -> Project:
    with_plane(data_dir=tmp_path / "data", import_mib_max=8)
    return make_project(make_organization())


@pytest.fixture
def large(tmp_path: Path) -> bytes:
    """A bundle that is larger than a form."""
    import random

    noise = random.Random(1).randbytes(6 * MIB)
    make_source(tmp_path / "large.git", {**FILES, "noise.bin": noise})
    Store(tmp_path / "large.git").git("bundle", "create", "--quiet", str(tmp_path / "b"), "--all")
    return (tmp_path / "b").read_bytes()


def token_of(project: Project, role: Role, scope: str = "admin") -> dict[str, str]:
    _, plain = make_token(make_member(project.organization, role), project.organization, scopes=[scope])
    return {"Authorization": f"Bearer {plain}"}


def send(server: str, project: Project, content: Any, headers: dict[str, str]) -> httpx.Response:
    url = f"{server}/api/v1/projects/{project.pk}/imports/bundle?name=large.bundle"
    headers = headers | {"Content-Type": "application/octet-stream"}
    return httpx.post(url, content=content, headers=headers, timeout=30)


def test_an_admin_sends_a_file_larger_than_any_form(asgi_server: str, project: Project, large: bytes) -> None:
    answer = send(asgi_server, project, large, token_of(project, Role.ADMIN))
    assert (answer.status_code, answer.json()["received_bytes"]) == (201, len(large))


def test_an_admin_sends_one_by_the_form(asgi_server: str, project: Project, large: bytes) -> None:
    client = Client()
    client.force_login(make_member(project.organization, Role.ADMIN))
    page = f"{asgi_server}/projects/{project.pk}/repository"
    cookies = {"sessionid": client.cookies["sessionid"].value}
    with httpx.Client(cookies=cookies, timeout=30) as browser:
        assert "From a file" in browser.get(page).text
        answer = browser.post(
            f"{page}/bundle",
            data={"csrfmiddlewaretoken": browser.cookies["csrftoken"]},
            files={"bundle": ("large.bundle", large)},
        )
    assert (answer.status_code, ProjectImport.objects.get().received_bytes) == (302, len(large))


def test_of_nobody_else_is_more_than_a_form_taken(asgi_server: str, project: Project, large: bytes) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer rmt_nothing"},
        token_of(project, Role.MEMBER),
        token_of(project, Role.ADMIN, "changes:write"),
        token_of(make_project(), Role.OWNER),
    ):
        for content in (large, iter([large])):  # also without saying how long it is
            answer = send(asgi_server, project, content, headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert not ProjectImport.objects.exists()


def test_nobody_sends_more_than_the_deployment_allows(asgi_server: str, project: Project) -> None:
    headers = token_of(project, Role.ADMIN)
    for content in (b"\0" * 9 * MIB, (b"\0" * MIB for _ in range(100))):
        answer = send(asgi_server, project, content, headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert list((django_settings.PLANE.data_dir / "uploads").glob("*")) == []


def test_elsewhere_a_body_without_a_length_is_bounded_too(asgi_server: str, project: Project) -> None:
    headers = token_of(project, Role.ADMIN) | {"Content-Type": "application/json"}
    url = f"{asgi_server}/api/v1/projects/{project.pk}/imports"
    answer = httpx.post(url, content=(b" " * MIB for _ in range(100)), headers=headers, timeout=30)
    assert answer.status_code == 413
    fits = httpx.post(url, content=iter([b'{"source": "/srv/x"}']), headers=headers, timeout=30)
    assert (fits.status_code, fits.json()["field"]) == (400, "source")


def test_who_sends_too_slowly_is_cut(
    asgi_server: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "UPLOAD_SECONDS_MAX", 0.3)
    begun = raw(asgi_server, project, token_of(project, Role.ADMIN))
    with begun as connection:
        assert b" 408 " in connection.recv(4_096)


def test_few_at_once(
    asgi_server: str, project: Project, monkeypatch: pytest.MonkeyPatch, large: bytes
) -> None:
    monkeypatch.setattr(bodies, "UPLOADS_OF_ONE_PERSON_MAX", 1)
    admin = make_member(project.organization, Role.ADMIN)
    headers = header_of(admin, project)
    with raw(asgi_server, project, headers):
        answer = send_until(asgi_server, project, large, headers, 503)
        assert (answer.json()["code"], answer.headers["retry-after"]) == ("busy", "30")
    assert send_until(asgi_server, project, large, headers, 201).status_code == 201


def header_of(user: User, project: Project) -> dict[str, str]:
    _, plain = make_token(user, project.organization, scopes=["admin"])
    return {"Authorization": f"Bearer {plain}"}


def send_until(
    server: str, project: Project, content: bytes, headers: dict[str, str], status: int
) -> httpx.Response:
    """The server hears of the other connection a moment later."""
    for _ in range(50):
        answer = send(server, project, content, headers)
        if answer.status_code == status:
            return answer
        ProjectImport.objects.all().delete()
    raise AssertionError(answer.text)


def raw(server: str, project: Project, headers: dict[str, str]) -> socket.socket:
    """A request that says it is 5 MiB and sends one byte."""
    host, _, port = server.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    lines = [
        f"POST /api/v1/projects/{project.pk}/imports/bundle HTTP/1.1",
        f"Host: {host}",
        f"Content-Length: {5 * MIB}",
        "Content-Type: application/octet-stream",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n#")
    return connection
