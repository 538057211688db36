"""A button that is pressed twice, and a form that comes back by the back button: done once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser

from tasks.models import Change
from tenants.models import ApiToken
from tests.browser import sign_in, watched
from tests.tasks.doors.conftest import Team

BODY = {"title": "An export", "goal": "Write a file.", "criterion": "It has a header", "command": ""}


def hand_over(team: Team, body: dict[str, Any]) -> Any:
    client = Client()
    client.force_login(team.member)
    return client.post(f"/projects/{team.project.pk}/changes/new", body)


def key_of(team: Team) -> str:
    client = Client()
    client.force_login(team.member)
    return str(client.get(f"/projects/{team.project.pk}/changes/new").context["key"])


def test_the_same_form_again_leads_to_the_same_change(team: Team) -> None:
    body = BODY | {"key": key_of(team)}
    first, second = hand_over(team, body), hand_over(team, body)
    assert first.status_code == second.status_code == 302
    assert first["Location"] == second["Location"]
    assert Change.objects.count() == 1


def test_another_text_or_another_page_is_another_change(team: Team) -> None:
    key = key_of(team)
    for body in (
        BODY | {"key": key},
        BODY | {"key": key, "title": "Another"},
        BODY | {"key": key_of(team)},
        BODY,
    ):
        assert hand_over(team, body).status_code == 302
    assert Change.objects.count() == 4


def test_a_refusal_keeps_no_key(team: Team) -> None:
    body = BODY | {"key": key_of(team), "budget": "NaN"}
    assert hand_over(team, body).status_code == hand_over(team, body).status_code == 400
    assert hand_over(team, body | {"budget": "5"}).status_code == 302
    assert Change.objects.count() == 1


def test_of_two_that_come_at_once_one_makes_the_change(team: Team) -> None:
    body = BODY | {"key": key_of(team)}

    def press(_: int) -> Any:
        try:
            return hand_over(team, body)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(press, range(4)))
    assert {answer.status_code for answer in answers} == {302}
    assert len({answer["Location"] for answer in answers}) == 1
    assert Change.objects.count() == 1


@pytest.mark.chromium
@pytest.mark.slow
def test_a_double_click_sends_a_form_once(asgi_server: str, chromium: Browser, team: Team) -> None:
    found: list[str] = []
    page = watched(chromium, found)
    sign_in(page, asgi_server, team.owner.email)
    for milliseconds in (30, 80, 150):
        page.goto(f"{asgi_server}/organizations/{team.organization.pk}/tokens")
        page.get_by_label("Name").fill(f"after {milliseconds}")
        button = page.get_by_role("button", name="Make the token")
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 9, box["y"] + 9)
        page.wait_for_timeout(milliseconds)
        page.mouse.click(box["x"] + 9, box["y"] + 9)
        page.get_by_text("Copy it now").wait_for()
        assert ApiToken.objects.filter(name=f"after {milliseconds}").count() == 1
    assert not found, "\n".join(found)
