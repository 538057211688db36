"""The three journeys of issue 6, by a real browser on a real server with a real worker.

Each fails on any console error, CSP report or failed request; the first test shows that such a thing is noticed.
"""

from __future__ import annotations

import re

import pytest
from django.utils.timezone import now
from playwright.sync_api import Browser, Page, expect

from budgets.keys import MeterKind
from budgets.models import LimitChange
from config.management.commands.demo import WANTED
from tasks.changes import submit_change
from tasks.models import Change, Reopening
from tasks.states import ChangeState
from tenants.models import Membership, Promotion, Role
from tests.browser import sign_in, watched
from tests.factories.tenants import PASSWORD
from tests.tasks.doors.conftest import Team

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

# Agents, sandboxes and git on a busy machine.
WORK_MILLISECONDS = 120_000


@pytest.mark.parametrize(
    ("planted", "noticed"),
    [
        ("console.error('planted')", "console: planted"),
        ("setTimeout(() => { throw new Error('planted') })", "error: planted"),
        ("fetch('/not-there')", "404: http"),
        ("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')", "CSP: style-src"),
        ("document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1:9/x>')", "CSP: img-src"),
        (
            "{ const s = document.createElement('script'); s.textContent = '1'; document.body.append(s) }",
            "CSP: script-src",
        ),
    ],
)
def test_what_goes_wrong_in_a_page_is_noticed(
    asgi_server: str, chromium: Browser, planted: str, noticed: str
) -> None:
    complaints: list[str] = []
    page = watched(chromium, complaints)
    page.goto(f"{asgi_server}/accounts/login/")
    assert complaints == []
    page.evaluate(f"() => {{ {planted} }}")
    page.wait_for_function("() => true")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    for _ in range(100):
        if complaints:
            break
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert any(noticed in said for said in complaints), complaints


def test_a_member_hands_a_change_over_and_follows_it_live_to_main(
    asgi_server: str, chromium: Browser, team: Team, worker: None
) -> None:
    team.project.promotion = Promotion.AUTO
    team.project.save()
    wanted, complaints = WANTED[1], list[str]()
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.member.email)
    expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    page.get_by_role("link", name="New change").click()
    page.get_by_label("Title").fill(wanted.title)
    page.get_by_label("Goal").fill(wanted.goal)
    for number, criterion in enumerate(wanted.criteria, start=1):
        page.locator(f"#criterion-{number}").fill(criterion.text)
        page.locator(f"#command-{number}").fill(criterion.command)
    page.get_by_label("Budget in US dollars").fill("2")
    page.get_by_role("button", name="Hand it over").click()
    page.wait_for_url(re.compile(r"/changes/[0-9a-f-]{36}$"))
    page.evaluate("window.neverLoadedAgain = true")
    state = page.locator("h1 .pill")
    expect(state).to_have_text("promoted", timeout=WORK_MILLISECONDS)
    assert page.evaluate("window.neverLoadedAgain"), "the page was loaded anew: it did not follow"
    expect(page.locator("li .row.between .pill[data-state=passed]")).to_have_count(len(wanted.criteria))
    expect(page.locator(".node[data-state=done]").first).to_be_attached()
    page.get_by_role("link", name="Evidence and diff").click()
    expect(page.locator("table.diff").first).to_be_visible()
    assert Change.objects.get().state == ChangeState.PROMOTED
    assert complaints == []


def test_an_admin_raises_a_budget_and_the_window_opens_again(
    asgi_server: str, chromium: Browser, team: Team, worker: None
) -> None:
    change = submit_change(team.project, WANTED[2], by=team.member, now=now())
    complaints: list[str] = []
    page = watched(chromium, complaints)
    sign_in(page, asgi_server, team.admin.email)
    row = page.locator("[data-row]").filter(has_text=WANTED[2].title)
    row.get_by_role("link", name="Raise…").click(timeout=WORK_MILLISECONDS)
    page.get_by_label("New limit").fill("3")
    page.get_by_label("Reason").fill("It is worth it.")
    page.get_by_role("button", name="What would it do?").click()
    preview = page.get_by_role("status").filter(has_text="What this will do")
    expect(preview).to_contain_text("It reopens")
    promised = preview.locator("strong").all_inner_texts()
    assert promised
    assert not Reopening.objects.exists()
    page.get_by_role("button", name="Raise", exact=True).click()
    page.wait_for_url(f"{asgi_server}/changes/{change.pk}")
    expect(page.locator(".messages")).to_contain_text("can go on")
    page.evaluate("window.neverLoadedAgain = true")
    expect(page.locator("h1 .pill")).to_have_text("ready", timeout=WORK_MILLISECONDS)
    assert page.evaluate("window.neverLoadedAgain"), "the page was loaded anew: it did not follow"
    opened = Reopening.objects.select_related("task")
    assert {f"{change.key}/{each.task.key}" for each in opened} == set(promised)
    assert {each.by for each in opened} == {team.admin}
    page.goto(f"{asgi_server}/tasks/{opened[0].task_id}")
    expect(page.locator("#window-2")).to_contain_text(f"reopened by {team.admin.email}")
    expect(page.locator("#window-2")).to_contain_text("It is worth it.")
    assert complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_an_owner_invites_sets_budgets_and_makes_a_token(
    asgi_server: str, chromium: Browser, team: Team, width: int
) -> None:
    complaints: list[str] = []
    page = watched(chromium, complaints, width=width)
    home = f"/organizations/{team.organization.pk}"
    sign_in(page, asgi_server, team.owner.email, to=home)

    tab(page, "Members")
    page.get_by_label("Email address").fill("guest@example.org")
    page.get_by_label("Role", exact=True).select_option(label="member")
    page.get_by_role("button", name="Send the invitation").click()
    link = page.locator(".secret code").inner_text()
    guest = watched(chromium, complaints, width=width)
    guest.goto(link)
    guest.get_by_label("Choose a password").fill(PASSWORD)
    guest.get_by_role("button", name="Make the account and join").click()
    expect(guest.locator(".messages")).to_contain_text("Welcome to Acme")
    joined = Membership.objects.get(user__email="guest@example.org")
    assert joined.role == Role.MEMBER

    for email, amount in (("guest@example.org", "25"), (team.member.email, "40.50")):
        page.goto(f"{asgi_server}{home}/limits")
        page.locator("[data-row]").filter(has_text=email).get_by_role("link").click()
        page.get_by_label("New limit").fill(amount)
        page.get_by_role("button", name="What would it do?").click()
        expect(page.get_by_role("status").filter(has_text="What this will do")).to_contain_text(amount)
        page.get_by_role("button", name="Set the limit").click()
        expect(page.locator(".messages")).to_contain_text("The limit is")
        expect(page.locator("[data-row]").filter(has_text=email)).to_contain_text(amount)
    assert LimitChange.objects.filter(kind=MeterKind.USER, by=team.owner).count() == 2

    tab(page, "Tokens")
    page.get_by_label("Name").fill("pipeline")
    page.get_by_label("raise and lower limits").check()
    page.get_by_role("button", name="Make the token").click()
    plain = page.locator(".secret code").inner_text()
    alone = chromium.new_context()  # no cookie of anybody: the token alone opens the door
    answer = alone.request.get(
        f"{asgi_server}/api/v1{home}/limits", headers={"Authorization": f"Bearer {plain}"}
    )
    assert answer.status == 200, answer.text()
    assert "25.000000" in {row["limit"] for row in answer.json() if row["subject"] == str(joined.user_id)}
    alone.close()
    for one in (page, guest):
        assert one.evaluate("document.documentElement.scrollWidth <= innerWidth"), one.url
    assert complaints == []


def tab(page: Page, name: str) -> None:
    page.locator("nav.tabs").get_by_role("link", name=name).click()
