"""A button that is pressed twice, and a form that comes back by the back button: done once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from django.core import mail
from django.db import connections
from django.db.models import Model
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser

from providers.models import Connector
from tasks.models import Change, Preflight, ProjectImport
from tenants import idempotency
from tenants.models import ApiToken, IdempotencyRecord, Invitation, Organization, Project
from tests.browser import sign_in, watched
from tests.factories.tenants import make_invitation, make_project
from tests.factories.webhooks import make_endpoint, make_hook
from tests.tasks.doors.conftest import Team
from webhooks.models import Delivery, Endpoint, IncomingHook

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
    body = BODY | {"form_key": key_of(team)}
    first, second = hand_over(team, body), hand_over(team, body)
    assert first.status_code == second.status_code == 302
    assert first["Location"] == second["Location"]
    assert Change.objects.count() == 1


def test_another_text_or_another_page_is_another_change(team: Team) -> None:
    key = key_of(team)
    for body in (
        BODY | {"form_key": key},
        BODY | {"form_key": key, "title": "Another"},
        BODY | {"form_key": key_of(team)},
        BODY,
    ):
        assert hand_over(team, body).status_code == 302
    assert Change.objects.count() == 4


def test_a_refusal_keeps_no_key(team: Team) -> None:
    body = BODY | {"form_key": key_of(team), "budget": "NaN"}
    assert hand_over(team, body).status_code == hand_over(team, body).status_code == 400
    assert hand_over(team, body | {"budget": "5"}).status_code == 302
    assert Change.objects.count() == 1


def test_of_two_that_come_at_once_one_makes_the_change(team: Team) -> None:
    body = BODY | {"form_key": key_of(team)}

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


@dataclass(frozen=True)
class Making:
    """A form that makes something: its page, what is typed, what there is one more of, what its answer shows once."""

    page: str
    body: dict[str, Any]
    model: type[Model]
    shows: str = ""


MAKING = {
    "token": Making(
        "/organizations/{of}/tokens", {"name": "ci", "scopes": ["read"], "days": "90"}, ApiToken, "rmt_"
    ),
    "invitation": Making(
        "/organizations/{of}/members",
        {"email": "joins@example.org", "role": "20"},
        Invitation,
        "testserver/invitations/",
    ),
    "webhook": Making(
        "/organizations/{of}/webhooks", {"url": "http://127.0.0.1:9/x", "kinds": ["*"]}, Endpoint, "whsec_"
    ),
    "hook": Making(
        "/projects/{project}/hooks",
        {"name": "Jira", "kind": "standard", "author": "{member}", "label": "remit"},
        IncomingHook,
        "whsec_",
    ),
    "connector": Making(
        "/organizations/{of}/connectors", {"name": "second", "kind": "anthropic", "key": "sk-test"}, Connector
    ),
    "project": Making(
        "/projects/new",
        {"organization": "{of}", "name": "New", "slug": "new", "connector": "main"},
        Project,
    ),
    "organization": Making("/organizations/new", {"name": "New", "slug": "new"}, Organization),
    "preflight": Making("/projects/{project}/preflights", {"commands": "true"}, Preflight),
    "import": Making(
        "/projects/{empty}/repository", {"source": "https://git.example.org/a.git"}, ProjectImport
    ),
    "change": Making("/projects/{project}/changes/new", BODY, Change),
}


@pytest.mark.parametrize("what", sorted(MAKING))
def test_pressed_twice_without_scripts_a_form_makes_one_and_both_answers_say_the_same(
    team: Team, what: str
) -> None:
    """Of two clicks a browser shows the second answer: a secret that only the first one had would be lost."""
    making, client = MAKING[what], boss(team)
    names = {
        "of": team.organization.pk,
        "project": team.project.pk,
        "member": team.member.pk,
        "empty": make_project(team.organization).pk,
    }
    page = making.page.format(**names)
    keys = re.findall(r'name="form_key" value="([^"]+)"', client.get(page).content.decode())
    assert keys, "the form carries a key"
    body = {k: v.format(**names) if isinstance(v, str) else v for k, v in making.body.items()}
    before, letters = making.model._default_manager.count(), len(mail.outbox)

    first, second = (client.post(page, body | {"form_key": keys[-1]}) for _ in range(2))

    assert making.model._default_manager.count() == before + 1
    assert (first.status_code, first.get("Location")) == (second.status_code, second.get("Location"))
    if making.shows:
        secrets = [
            re.findall(rf"[^\s\"<>]*{making.shows}[^\s\"<>…]{{20,}}", a.content.decode())
            for a in (first, second)
        ]
        assert secrets[0]
        assert secrets[0] == secrets[1]
        assert "pressed the button twice" not in first.content.decode()
        assert "pressed the button twice" in second.content.decode()
    assert len(mail.outbox) - letters == (what == "invitation")


@pytest.mark.parametrize("what", ["token", "invitation", "webhook", "hook"])
def test_a_secret_is_shown_again_for_a_short_time_only_and_kept_unreadable(
    team: Team, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, client = MAKING[what], boss(team)
    names = {"of": team.organization.pk, "project": team.project.pk, "member": team.member.pk}
    body = {k: v.format(**names) if isinstance(v, str) else v for k, v in making.body.items()}
    page = making.page.format(**names)
    secret = re.compile(rf"{making.shows}[^\s\"<>…]{{20,}}")
    first = client.post(page, body | {"form_key": "k" * 36})
    (shown,) = set(secret.findall(first.content.decode()))
    assert shown not in str(list(IdempotencyRecord.objects.values_list("body", flat=True)))

    monkeypatch.setattr(idempotency, "SHOWN_AGAIN_SECONDS", -1)
    late = client.post(page, body | {"form_key": "k" * 36})

    assert late.status_code == 200
    assert not secret.search(late.content.decode())
    assert "was made when you sent this form before" in late.content.decode()


def test_a_secret_that_is_rotated_by_a_double_click_is_rotated_once(team: Team) -> None:
    """Twice would end the secret before at once, and every message signed with it."""
    client = boss(team)
    endpoint, hook = make_endpoint(team.organization), make_hook(team.project, author=team.member)
    for page in (
        f"/organizations/{team.organization.pk}/webhooks/{endpoint.pk}",
        f"/projects/{team.project.pk}/hooks/{hook.pk}",
    ):
        key = re.findall(r'name="form_key" value="([^"]+)"', client.get(page).content.decode())[-1]
        answers = [
            client.post(f"{page}/act", {"act": "rotate", "form_key": key}).content.decode() for _ in range(2)
        ]
        first, second = (set(re.findall(r"whsec_[^\s\"<>…]{20,}", text)) for text in answers)
        assert first
        assert first == second
    (before,) = endpoint.secrets(now=timezone.now())
    endpoint.refresh_from_db()
    assert before in endpoint.secrets(now=timezone.now())


def test_other_acts_of_a_button_that_is_pressed_twice_are_one_act(team: Team) -> None:
    client, endpoint = boss(team), make_endpoint(team.organization)
    invitation, _ = make_invitation(team.organization)
    for _ in range(2):
        client.post(
            f"/organizations/{team.organization.pk}/webhooks/{endpoint.pk}/act",
            {"act": "test", "form_key": "a"},
        )
        client.post(
            f"/organizations/{team.organization.pk}/invitations/{invitation.pk}",
            {"act": "renew", "form_key": "a"},
        )
    assert Delivery.objects.count() == 1
    assert len(mail.outbox) == 1


def boss(team: Team) -> Client:
    """An owner who also runs the deployment."""
    team.owner.is_staff = True
    team.owner.save()
    client = Client()
    client.force_login(team.owner)
    return client


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
