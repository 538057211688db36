"""An owner invites, somebody joins, a token is made: by a real browser, with no error in its console."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from tenants.models import Role
from tests.browser import sign_in, watched
from tests.factories.tenants import PASSWORD, make_member, make_organization, make_project

pytestmark = [pytest.mark.chromium, pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.mark.parametrize("width", [1280, 390])
def test_an_owner_invites_somebody_who_joins_and_makes_a_token(
    live_server: LiveServer, chromium: Browser, width: int
) -> None:
    organization = make_organization()
    owner = make_member(organization, Role.OWNER, password=PASSWORD)
    make_project(organization, name="Ledger")
    complaints: list[str] = []

    page = watched(chromium, complaints, width=width)
    sign_in(page, live_server.url, owner.email, to=f"/organizations/{organization.pk}")
    page.click("nav.tabs >> text=Members")
    page.fill("[name=email]", "guest@example.org")
    page.click("text=Send the invitation")
    link = page.inner_text(".secret code")

    guest = watched(chromium, complaints, width=width)
    guest.goto(link)
    guest.fill("[name=password]", PASSWORD)
    guest.click("text=Make the account and join")
    guest.wait_for_load_state()
    guest.goto(f"{live_server.url}/organizations/{organization.pk}/tokens")
    guest.fill("[name=name]", "pipeline")
    guest.click("text=Make the token")
    plain = guest.inner_text(".secret code")
    answer = guest.request.get(
        f"{live_server.url}/api/v1/projects", headers={"Authorization": f"Bearer {plain}", "Cookie": ""}
    )
    assert [row["name"] for row in answer.json()["results"]] == ["Ledger"]
    assert guest.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert complaints == []


def test_keys_go_to_pages_walk_rows_and_list_themselves(live_server: LiveServer, chromium: Browser) -> None:
    organization = make_organization()
    owner = make_member(organization, Role.OWNER, password=PASSWORD)
    project = make_project(organization)
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, live_server.url, owner.email, to=f"/organizations/{organization.pk}")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("p")
    page.wait_for_url("**/projects")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/projects/{project.pk}")
    assert complaints == []


def test_paper_is_light_whatever_the_screen_is(live_server: LiveServer, chromium: Browser) -> None:
    """Issue 6: every page prints. Black words on the grounds of a dark screen are none."""
    complaints: list[str] = []
    page = watched(chromium, complaints, color_scheme="dark")
    page.goto(f"{live_server.url}/accounts/login/")
    ground = "getComputedStyle(document.documentElement).getPropertyValue('--add')"
    dark = page.evaluate(ground)
    page.emulate_media(media="print", color_scheme="dark")
    printed = page.evaluate(ground)
    page.emulate_media(media="screen", color_scheme="light")
    assert printed == page.evaluate(ground) != dark
    assert complaints == []
