"""A browser that keeps every complaint: of its console, its walls (CSP) and its network. A test wants none."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

from tests.factories.tenants import PASSWORD

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
CUT_SHORT = "net::ERR_ABORTED"
# The page's own word on what its policy refused, beside what the console says.
_REPORTS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.effectiveDirective} refused ${event.blockedURI} ${event.sample}`));
"""


def watched(
    chromium: Browser, complaints: list[str], *, expected: str = "", width: int = 1280, **context: Any
) -> Page:
    """A page of a fresh session. `expected` is a pattern of addresses that may answer with an error."""
    page = chromium.new_context(viewport={"width": width, "height": 800}, **context).new_page()
    page.set_default_timeout(20_000)
    page.add_init_script(_REPORTS)

    def console(said: ConsoleMessage) -> None:
        about = said.location.get("url", "")
        if said.type in ("error", "warning") and not (expected and re.search(expected, about)):
            complaints.append(f"{page.url}: console: {said.text}")

    def failed(request: Request) -> None:
        # A request that the next page cut short did not fail: the icon of the last one, on a busy machine.
        if request.failure != CUT_SHORT:
            complaints.append(f"{page.url}: failed: {request.url}: {request.failure}")

    def answered(answer: Response) -> None:
        if answer.status >= 400 and not (expected and re.search(expected, answer.url)):
            complaints.append(f"{page.url}: {answer.status}: {answer.url}")

    page.on("console", console)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: error: {error}"))
    page.on("requestfailed", failed)
    page.on("response", answered)
    return page


def sign_in(page: Page, base: str, email: str, *, to: str = "/") -> None:
    """By the form, as a person does."""
    page.goto(f"{base}/accounts/login/?next={to}")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{base}{to}")
