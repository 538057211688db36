"""Every page, light and dark, at a desk's width and a phone's: no complaint, nothing wider than the window, and
axe-core finds nothing.

`PAGES_TO=/a/folder pytest --slow ...` leaves a picture of each there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from axe_playwright_python.sync_playwright import Axe
from django.urls import reverse
from playwright.sync_api import Browser, Page

from tasks import reads
from tasks.states import ChangeState
from tenants.models import Role, User
from tests.browser import sign_in, watched
from tests.factories.tasks import make_change, make_criterion, make_stopped_task
from tests.factories.tenants import PASSWORD, make_member
from tests.tasks.doors.conftest import Team
from tests.tasks.doors.scene import Scene, make_scene, outside_pages

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

WIDTHS = (1280, 390)
SCHEMES: Sequence[Literal["light", "dark"]] = ("light", "dark")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPTIONS = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
REFUSED = r"/(limits|00000000-0000-7000-8000-000000000000|never-sent)$"
# A picture that comes from a package, not from us.
FOREIGN = {"api-docs"}
# Django's own part of the admin's pages.
NOT_OURS = {"exclude": [[".breadcrumbs"]]}
GUESSES_MAX = 30


@pytest.fixture
def scene(team: Team) -> Scene:
    return make_scene(team)


def test_every_page_is_whole_in_both_schemes_at_both_widths(
    asgi_server: str, chromium: Browser, scene: Scene
) -> None:
    found: list[str] = []
    visits: Sequence[tuple[User | None, Sequence[tuple[str, str]], str]] = (
        (scene.team.owner, scene.owner_pages, "owner"),
        (scene.team.member, scene.member_pages, "member"),
        (None, scene.stranger_pages, "stranger"),
        (scene.operator, scene.operator_pages, "operator"),
    )
    for person, pages, who in visits:
        page = watched(chromium, found, expected=REFUSED)
        if person is not None:
            sign_in(page, asgi_server, person.email)
        for name, address in pages:
            page.goto(asgi_server + address)
            found += [
                f"{who} {name} {said}" for said in looked_at(page, f"{who}-{name}", axe=name not in FOREIGN)
            ]
        page.context.close()
    assert not found, "\n".join(found)


def test_pages_to_the_outside_are_whole(asgi_server: str, chromium: Browser, team: Team) -> None:
    found: list[str] = []
    page = watched(chromium, found)
    sign_in(page, asgi_server, team.owner.email)
    for name, address in outside_pages(team):
        page.goto(asgi_server + address)
        found += [f"{name} {said}" for said in looked_at(page, f"owner-{name}", axe=True)]
    for name, address, fields, button in (
        (
            "webhook-made",
            f"/organizations/{team.organization.pk}/webhooks",
            {"Address": "http://127.0.0.1:9/new"},
            "Make the webhook",
        ),
        ("hook-made", f"/projects/{team.project.pk}/hooks", {"Name": "Pipeline"}, "Make the hook"),
    ):
        page.goto(asgi_server + address)
        for label, value in fields.items():
            page.get_by_label(label).first.fill(value)
        page.get_by_role("button", name=button).click()
        page.get_by_text("shown once").first.wait_for()
        found += [f"{name} {said}" for said in looked_at(page, f"act-{name}", axe=True)]
    assert not found, "\n".join(found)


def test_the_way_to_a_second_factor_is_whole(asgi_server: str, chromium: Browser, team: Team) -> None:
    found: list[str] = []
    page = watched(chromium, found, expected="/totp/activate/$")
    sign_in(page, asgi_server, team.owner.email)
    page.goto(asgi_server + reverse("mfa_activate_totp"))
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url(f"**{reverse('mfa_activate_totp')}")

    def look(name: str) -> None:
        found.extend(f"{name} {said}" for said in looked_at(page, f"second-factor-{name}", axe=True))

    page.get_by_label("Authenticator code").fill("000000")
    page.get_by_role("button", name="Activate").click()
    look("wrong-code")
    secret = page.get_by_label("Authenticator secret").input_value()
    page.get_by_label("Authenticator code").fill(code_of(secret))
    page.get_by_role("button", name="Activate").click()
    page.wait_for_url("**/recovery-codes/**")
    look("recovery-codes")
    for name in ("mfa_index", "mfa_generate_recovery_codes", "mfa_deactivate_totp"):
        page.goto(asgi_server + reverse(name))
        look(name)
    assert not found, "\n".join(found)


def code_of(secret: str) -> str:
    return str(format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time())))))


def test_pages_behind_an_act_are_whole_as_well(
    asgi_server: str, chromium: Browser, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown once, what an error looks like, and the forms of the admin's actions."""
    found: list[str] = []
    change = make_change(
        team.project, author=team.member, state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget"
    )
    make_stopped_task(change)
    make_criterion(change)
    home = f"{asgi_server}/organizations/{team.organization.pk}"

    def look(page: Page, name: str, *, axe: bool = True) -> None:
        found.extend(f"{name} {said}" for said in looked_at(page, f"act-{name}", axe=axe))

    page = watched(chromium, found)
    sign_in(page, asgi_server, team.owner.email)
    page.goto(f"{home}/members")
    page.get_by_label("Email address").fill("guest@example.org")
    page.get_by_role("button", name="Send the invitation").click()
    look(page, "invited")
    page.goto(f"{home}/tokens")
    page.get_by_label("Name").fill("pipeline")
    page.get_by_role("button", name="Make the token").click()
    look(page, "token")
    page.goto(f"{asgi_server}/changes")
    page.get_by_label("Choose CH-").check()
    page.get_by_role("button", name="Cancel…").click()
    look(page, "cancel-many")
    page.goto(f"{asgi_server}/changes/{change.pk}/raise")
    page.get_by_label("New limit").fill("3")
    page.get_by_role("button", name="What would it do?").click()
    look(page, "raise-preview")
    page.keyboard.press("?")
    look(page, "keys")

    strict = watched(chromium, found, expected="/(new|login/|changes)$")
    sign_in(strict, asgi_server, team.member.email)
    strict.goto(f"{asgi_server}/projects/{team.project.pk}/changes/new")
    strict.get_by_label("Title").fill("x")
    strict.get_by_label("Goal").fill("y")
    strict.get_by_role("button", name="Hand it over").click()
    look(strict, "form-with-problems")
    with monkeypatch.context() as broken:
        broken.setattr(reads, "changes_for", None)
        strict.goto(f"{asgi_server}/changes")
        look(strict, "server-error")

    TOTP.activate(team.admin, "JBSWY3DPEHPK3PXP")
    door = watched(chromium, found)
    door.goto(f"{asgi_server}/accounts/login/")
    door.get_by_label("Email").fill(team.admin.email)
    door.get_by_label("Password").fill(PASSWORD)
    door.get_by_role("button", name="Sign in").click()
    door.wait_for_url("**/2fa/authenticate/**")
    look(door, "second-factor")
    team.member.refresh_from_db()  # whose last sign-in is part of the key
    key = default_token_generator.make_token(team.member)
    door.goto(f"{asgi_server}/accounts/password/reset/key/{user_pk_to_url_str(team.member)}-{key}/")
    look(door, "new-password")

    operator = make_member(team.organization, Role.OWNER, password=PASSWORD, is_staff=True, is_superuser=True)
    desk = watched(chromium, found)
    sign_in(desk, asgi_server, operator.email, to="/admin/tasks/change/")
    for action in ("raise_limit", "cancel"):
        desk.goto(f"{asgi_server}/admin/tasks/change/")
        desk.locator("input.action-select").first.check()
        desk.select_option("select[name=action]", action)
        desk.get_by_role("button", name="Go").click()
        look(desk, f"admin-{action}")

    guesser = watched(chromium, found, expected="/login/$")
    for _ in range(GUESSES_MAX):
        guesser.goto(f"{asgi_server}/accounts/login/")
        guesser.get_by_label("Email").fill(team.member.email)
        guesser.get_by_label("Password").fill("wrong")
        with guesser.expect_navigation() as led:
            guesser.get_by_role("button", name="Sign in").click()
        if led.value.status == 429:
            break
    assert led.value.status == 429
    look(guesser, "too-many-tries")
    assert not found, "\n".join(found)


def looked_at(page: Page, name: str, *, axe: bool) -> Iterator[str]:
    """What is wrong with the page that is open, at each width and in each scheme."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width and axe:
            yield f"at {width}: {wide} wide: {page.evaluate(_WIDEST)}"
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.evaluate(_WHEN_COLOURS_STAY)
            if folder := os.environ.get("PAGES_TO"):
                Path(folder).mkdir(parents=True, exist_ok=True)
                page.screenshot(path=Path(folder) / f"{name}-{width}-{scheme}.png", full_page=True)
            if axe:
                yield from (f"at {width}, {scheme}: {said}" for said in axe_says(page))


def axe_says(page: Page) -> Iterator[str]:
    answer: dict[str, Any] = Axe().run(page, context=NOT_OURS, options=OPTIONS).response
    for rule in answer["violations"]:
        for node in rule["nodes"][:3]:
            why = " ".join(node.get("failureSummary", "").split())
            yield f"{rule['id']}: {node['target']} {why[:200]}"


# Django's admin fades from one scheme to the other; only what ends is waited for.
_WHEN_COLOURS_STAY = """() => Promise.all(document.getAnimations()
  .filter((each) => each.effect.getComputedTiming().endTime !== Infinity)
  .map((each) => each.finished.catch(() => 0)))"""
_WIDEST = """[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
  .slice(0, 4).map((e) => `${e.tagName}.${e.className?.baseVal ?? e.className}`).join(' ')"""
