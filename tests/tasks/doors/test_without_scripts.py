"""What asks before it destroys, and what is made once, in a browser that runs no script."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from django.test import Client
from playwright.sync_api import Browser, expect

from tenants.models import ApiToken
from tests.browser import sign_in
from tests.factories.tenants import make_token
from tests.factories.webhooks import make_endpoint, make_hook
from tests.tasks.doors.conftest import Team
from webhooks.models import Endpoint, IncomingHook

# Words on buttons after which something is gone for good.
FOR_GOOD = ("Remove the", "Revoke “")


class Buttons(HTMLParser):
    """The words on each button of a page, and whether it is folded away behind a question."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, bool]] = []
        self._asked = 0
        self._words: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "details":
            self._asked += 1
            assert dict(attrs).get("open", "no") == "no", "a question starts folded"
        if tag == "button":
            self._words = []

    def handle_data(self, data: str) -> None:
        if self._words is not None:
            self._words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "details":
            self._asked -= 1
        if tag == "button" and self._words is not None:
            self.found.append(("".join(self._words).strip(), self._asked > 0))
            self._words = None


@pytest.mark.django_db(transaction=True)
def test_what_is_gone_for_good_is_asked_first(team: Team) -> None:
    client = Client()
    client.force_login(team.owner)
    make_token(team.owner, team.organization)
    of, project = team.organization.pk, team.project.pk
    endpoint, hook = make_endpoint(team.organization), make_hook(team.project, author=team.member)
    for page in (
        f"/organizations/{of}/webhooks/{endpoint.pk}",
        f"/projects/{project}/hooks/{hook.pk}",
        f"/organizations/{of}/tokens",
    ):
        buttons = Buttons()
        buttons.feed(client.get(page).content.decode())
        final = [asked for words, asked in buttons.found if words.startswith(FOR_GOOD)]
        assert final, page
        assert all(final), page
        assert not any(words in ("Remove", "Revoke") for words, _ in buttons.found), page


@pytest.mark.chromium
@pytest.mark.slow
def test_asking_and_making_once_need_no_script(asgi_server: str, chromium: Browser, team: Team) -> None:
    of = f"{asgi_server}/organizations/{team.organization.pk}"
    endpoint, hook = make_endpoint(team.organization), make_hook(team.project, author=team.member)
    page = chromium.new_context(java_script_enabled=False).new_page()
    sign_in(page, asgi_server, team.owner.email)

    page.goto(f"{of}/webhooks/{endpoint.pk}")
    expect(page.get_by_role("button", name="Remove the webhook")).to_be_hidden()
    page.get_by_text("Remove…").click()
    assert Endpoint.objects.filter(pk=endpoint.pk).exists()
    page.get_by_role("button", name="Remove the webhook").click()
    expect(page.get_by_text("is removed. Nothing is sent there any more.")).to_be_visible()

    page.goto(f"{asgi_server}/projects/{team.project.pk}/hooks/{hook.pk}")
    page.get_by_text("Remove…").click()
    page.get_by_role("button", name="Remove the hook").click()
    expect(page.get_by_text("Its address takes nothing any more.")).to_be_visible()
    assert not IncomingHook.objects.exists()

    page.goto(f"{of}/tokens")
    page.get_by_label("Name").fill("pressed twice")
    page.get_by_role("button", name="Make the token").dblclick()
    shown = page.locator(".secret code")
    expect(shown).to_contain_text("rmt_")
    token = ApiToken.objects.get(name="pressed twice")
    assert (shown.text_content() or "").startswith(token.prefix)
    page.get_by_text("Revoke…").click()
    page.get_by_role("button", name="Revoke “pressed twice”").click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
