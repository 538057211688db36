"""An owner invites, somebody joins, a token is made: by a real browser, with no error in its console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tenants.models import Role
from tests.conftest import chromium_path
from tests.factories.tenants import PASSWORD, make_member, make_organization, make_project

CUT_SHORT = "net::ERR_ABORTED"
pytestmark = [pytest.mark.chromium, pytest.mark.django_db(transaction=True)]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


def _watched(chromium: Browser, complaints: list[Any], **more: Any) -> Page:
    page = chromium.new_context(**more).new_page()
    page.on(
        "console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # A request that the next page cut short did not fail: the icon of the last one, on a busy machine.
    page.on(
        "requestfailed",
        lambda request: None if request.failure == CUT_SHORT else complaints.append(request.url),
    )
    page.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 400 else None)
    return page


def _sign_in(page: Page, base: str, email: str) -> None:
    page.goto(f"{base}/accounts/login/?next=/organizations")
    page.fill("[name=login]", email)
    page.fill("[name=password]", PASSWORD)
    page.click("main button.primary")
    page.wait_for_url("**/organizations/*")


@pytest.mark.parametrize("width", [1280, 390])
def test_an_owner_invites_somebody_who_joins_and_makes_a_token(
    live_server: LiveServer, chromium: Browser, width: int
) -> None:
    organization = make_organization()
    owner = make_member(organization, Role.OWNER, password=PASSWORD)
    make_project(organization, name="Ledger")
    complaints: list[Any] = []
    size = {"viewport": {"width": width, "height": 800}}

    page = _watched(chromium, complaints, **size)
    _sign_in(page, live_server.url, owner.email)
    page.click("nav.tabs >> text=Members")
    page.fill("[name=email]", "guest@example.org")
    page.click("text=Send the invitation")
    link = page.inner_text(".secret code")

    guest = _watched(chromium, complaints, **size)
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
    complaints: list[Any] = []
    page = _watched(chromium, complaints)
    _sign_in(page, live_server.url, owner.email)
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
