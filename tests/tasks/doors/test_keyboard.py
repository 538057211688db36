"""By keyboard alone: every act of the journeys is reached and done, focus is seen where it is, nothing traps it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.money import Usd
from tasks.models import Change, TaskRun
from tasks.states import ChangeState, TaskState
from tenants.models import ApiToken, Invitation
from tests.browser import sign_in, watched
from tests.factories.tasks import make_change, make_criterion, make_run, make_stopped_task, make_task
from tests.factories.tenants import PASSWORD
from tests.tasks.doors.conftest import Team

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

STOPS_MAX = 150
# What has the focus, and whether a person sees it: an outline, and inside the window.
_FOCUS = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const look = getComputedStyle(at), place = at.getBoundingClientRect();
  return {
    name: at.getAttribute("aria-label") || at.labels?.[0]?.innerText || at.innerText || at.name || at.id || at.tagName,
    seen: look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2 || look.boxShadow !== "none",
    inside: place.width > 0 && place.bottom > 0 && place.top < innerHeight
      && place.right > 0 && place.left < innerWidth,
  };
}"""

_TO_THE_TOP = """() => {
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute("tabindex");
  scrollTo(0, 0);
}"""


def stops_of(page: Page) -> Iterator[dict[str, object]]:
    """Each place where Tab stops, from the top of the page until it leaves it."""
    page.evaluate(_TO_THE_TOP)
    for _ in range(STOPS_MAX):
        page.keyboard.press("Tab")
        stop = page.evaluate(_FOCUS)
        if stop is None:
            return
        yield stop
    raise AssertionError(f"{page.url}: Tab never leaves the page")


def tab_to(page: Page, name: str) -> None:
    """Tab until something of that name has the focus, as a person looks for it."""
    seen = []
    for stop in stops_of(page):
        seen.append(" ".join(str(stop["name"]).split()))
        assert stop["seen"], f"{page.url}: the focus on {stop['name']!r} is not to be seen"
        assert stop["inside"], f"{page.url}: {stop['name']!r} has the focus outside of the window"
        if re.match(name, seen[-1]):
            return
    raise AssertionError(f"{page.url}: no {name!r} among {seen}")


def press(page: Page, name: str, key: str = "Enter") -> None:
    tab_to(page, name)
    page.keyboard.press(key)


def follow(page: Page, name: str) -> None:
    """Press what leads to another page, and wait for it."""
    tab_to(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def write(page: Page, name: str, text: str) -> None:
    tab_to(page, name)
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_member_hands_over_and_steers_a_change_by_keyboard(
    asgi_server: str, chromium: Browser, team: Team, width: int
) -> None:
    complaints: list[str] = []
    page = watched(chromium, complaints, width=width)
    page.goto(f"{asgi_server}/accounts/login/")
    write(page, "Email", team.member.email)
    write(page, "Password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{asgi_server}/")
    follow(page, "New change")
    page.wait_for_url("**/changes/new")
    write(page, "Title", "By keyboard")
    write(page, "Goal", "Nobody needs a mouse.")
    write(page, "1. What must be true", "It works")
    follow(page, "Keep as a draft")
    page.wait_for_url(re.compile(r"/changes/[0-9a-f-]{36}$"))
    follow(page, "Hand it over")
    expect(page.locator("h1 .pill")).to_have_text("planning")
    follow(page, "Pause")
    expect(page.locator("h1")).to_contain_text("paused")
    press(page, r"Cancel…")
    follow(page, r"Cancel CH-\d+")
    expect(page.locator("h1")).to_contain_text("cancelled")
    assert Change.objects.get().state == ChangeState.CANCELLED
    assert complaints == []


def test_an_admin_raises_stops_and_promotes_by_keyboard(
    asgi_server: str, chromium: Browser, team: Team
) -> None:
    change = make_change(
        team.project,
        number=1,
        title="Needs money",
        author=team.member,
        state=ChangeState.BUDGET_BLOCKED,
        stop_limit="change_budget",
    )
    make_criterion(change)
    task = make_stopped_task(change)
    limit_of(change, team)
    other = make_change(team.project, number=2, title="At work", author=team.member)
    run = make_run(
        make_task(other, state=TaskState.RUNNING),
        caps={"calls_max": 16, "reads_max": 12},
        started_at=timezone.now(),
    )
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.admin.email)
    page.keyboard.press("j")  # the first row, by its link
    page.keyboard.press("Enter")
    page.wait_for_url(f"{asgi_server}/changes/{change.pk}")
    follow(page, "Raise this change|Raise a limit")
    write(page, "New limit", "3")
    follow(page, "What would it do")
    expect(page.get_by_role("status").filter(has_text="What this will do")).to_contain_text("It reopens")
    follow(page, "Raise$")
    page.wait_for_url(f"{asgi_server}/changes/{change.pk}")
    task.refresh_from_db()
    assert task.state == TaskState.READY

    page.goto(f"{asgi_server}/runs/{run.pk}")
    press(page, "Stop…")
    write(page, "Why", "it goes astray")
    page.keyboard.press("Enter")
    expect(page.get_by_text("stopping")).to_be_visible()
    assert TaskRun.objects.get(pk=run.pk).stop_reason == "it goes astray"
    assert complaints == []


def test_an_owner_invites_sets_a_budget_and_makes_a_token_by_keyboard(
    asgi_server: str, chromium: Browser, team: Team
) -> None:
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.owner.email)
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(re.compile("/organizations"))
    page.goto(f"{asgi_server}/organizations/{team.organization.pk}")
    follow(page, "Members")
    write(page, "Email address", "guest@example.org")
    follow(page, "Send the invitation")
    expect(page.locator(".secret code")).to_be_visible()
    assert Invitation.objects.filter(email="guest@example.org").exists()
    follow(page, "Limits")
    follow(page, rf"Change the limit: Author, this month, {re.escape(team.member.email)}")
    write(page, "New limit", "12")
    follow(page, "Set the limit")
    expect(page.locator(".messages")).to_contain_text("$12.00")
    follow(page, "Tokens")
    write(page, "Name", "pipeline")
    press(page, "raise and lower limits", "Space")
    follow(page, "Make the token")
    expect(page.locator(".secret code")).to_be_visible()
    assert set(ApiToken.objects.get().scopes) == {"read", "budgets:write"}
    assert complaints == []


def test_keys_help_move_and_never_take_what_is_typed(asgi_server: str, chromium: Browser, team: Team) -> None:
    changes = [
        make_change(team.project, number=number, author=team.member, title=f"Change {number}")
        for number in (1, 2, 3)
    ]
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.member.email)
    keys = page.locator("#keys")
    page.keyboard.press("?")
    expect(keys).to_be_visible()
    for _ in range(5):  # the dialog keeps the focus, and lets it go
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('#keys')"
        )
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    for letter, path in (("c", "/changes"), ("p", "/projects"), ("s", "/spend"), ("i", "/")):
        page.keyboard.press("g")
        page.keyboard.press(letter)
        page.wait_for_url(f"{asgi_server}{path}")
    page.goto(f"{asgi_server}/changes")
    for key, row in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        expect(page.locator("[data-row]").nth(row)).to_have_class(re.compile("current"))
    page.keyboard.press("/")
    page.keyboard.type("g?jk")
    expect(page.locator("#q")).to_have_value("g?jk")
    expect(keys).to_be_hidden()
    page.goto(f"{asgi_server}/changes/{changes[0].pk}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null"), "the link skips nothing"
    tab_to(page, "Cancel…")
    page.keyboard.press("Enter")
    expect(page.locator("#cancel > div")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#cancel > div")).to_be_hidden()
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert complaints == []


def test_nothing_moves_for_those_who_want_no_motion(asgi_server: str, chromium: Browser, team: Team) -> None:
    change = make_change(team.project, number=1, author=team.member)
    complaints: list[str] = []
    moving = "document.getAnimations({subtree: true}).length"
    for wish, count in (("no-preference", 1), ("reduce", 0)):
        page = watched(chromium, complaints, reduced_motion=wish)
        sign_in(page, asgi_server, team.member.email)
        page.goto(f"{asgi_server}/changes/{change.pk}")
        expect(page.locator("h1 .pill")).to_have_text("running")
        assert page.evaluate(moving) == count, wish
    assert complaints == []


def test_pages_are_read_without_scripts(asgi_server: str, chromium: Browser, team: Team) -> None:
    """pages.md: all pages work without JavaScript for reading; the forms do as well."""
    change = make_change(team.project, number=1, author=team.member, title="Plain")
    make_criterion(change)
    make_task(change, title="The only task")
    complaints: list[str] = []
    page = watched(chromium, complaints, java_script_enabled=False)
    sign_in(page, asgi_server, team.member.email)
    page.goto(f"{asgi_server}/changes?q=plain")
    page.get_by_role("link", name="Plain").click()
    expect(page.get_by_role("link", name="T1 The only task").last).to_be_visible()
    assert page.locator(".copy:visible, .needs-js:visible").count() == 0
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("h1")).to_contain_text("paused")
    assert complaints == []


def limit_of(change: Change, team: Team) -> None:
    set_limit(
        organization_id=change.organization_id,
        kind=MeterKind.CHANGE,
        subject=str(change.pk),
        to=Usd.dollars("1"),
        by=team.admin,
        reason="",
        key=f"test-{change.pk}",
        now=timezone.now(),
    )
