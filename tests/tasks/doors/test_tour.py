"""No page is left out of the tour: each that has a name is looked at in `test_every_page`, or says here why not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLResolver, get_resolver, resolve
from django.views.decorators.http import require_POST

from tests.tasks.doors import test_every_page
from tests.tasks.doors.conftest import Team
from tests.tasks.doors.scene import make_scene, outside_pages

# Not pages of ours: machines read them, or Django's admin draws them (tests/tasks/doors/test_admin_lists.py).
ELSEWHERE = ("api/", "admin/", "hooks/in/", "healthz", "readyz", "static/")
# Pages that nobody looks at in the tour, and why that is right.
EXEMPT = {
    # answers that are no page
    "run-log": "a download",
    "run-output": "a download",
    "spend-csv": "a download",
    "changeset-patch": "a download",
    "candidate-patch": "a download",
    "mfa_download_recovery_codes": "a download",
    "repository-card": "a part of the project's page, which is looked at",
    # of allauth
    "account_inactive": "says one sentence in the frame of signing in",
    "account_reset_password_from_key_done": "says one sentence in the frame of signing in",
    "account_email_verification_sent": "never reached: an invitation's link has proved the address",
    "account_confirm_email": "never reached: an invitation's link has proved the address",
    "account_email": "never linked: the address is the account",
    "account_set_password": "leads on to the change of the password, which is looked at",
    "account_reauthenticate": "where the first page of the tour leads: looked at as reauthenticate",
    "account_request_reauthentication_code": "signing in by a code from a letter is off",
    "account_confirm_reauthentication_code": "signing in by a code from a letter is off",
    "account_confirm_login_code": "signing in by a code from a letter is off",
    "mfa_authenticate": "looked at as act-second-factor: only a password leads there",
    "mfa_reauthenticate": "the same form as of mfa_authenticate, within the account's frame",
    "mfa_view_recovery_codes": "the same list as after they were made, which is looked at",
}


def named_pages() -> Iterator[tuple[str, str]]:
    """Name and address of every named route that may answer a GET with a page."""

    def walk(patterns: list[Any], before: str) -> Iterator[tuple[str, str]]:
        for entry in patterns:
            text = before + str(entry.pattern).removeprefix("^")
            if isinstance(entry, URLResolver):
                yield from walk(entry.url_patterns, text)
            elif entry.name and not text.startswith(ELSEWHERE) and not only_posts(entry.callback):
                yield entry.name, text

    yield from walk(get_resolver().url_patterns, "")


def only_posts(view: Any) -> bool:
    """Whether `require_POST` stands somewhere around the view."""
    guard = require_POST(lambda request: None).__code__
    while view is not None:
        cells = inspect.getclosurevars(view).nonlocals if inspect.isfunction(view) else {}
        if getattr(view, "__code__", None) is guard and cells.get("request_method_list") == ["POST"]:
            return True
        view = getattr(view, "__wrapped__", None)
    return False


@pytest.mark.slow  # the scene is three Changes that are really worked on
def test_every_page_is_in_the_tour_or_says_why_not(team: Team) -> None:
    scene = make_scene(team)
    pages = [
        *scene.owner_pages,
        *scene.member_pages,
        *scene.stranger_pages,
        *scene.operator_pages,
        *outside_pages(team),
    ]
    seen = {resolve(address.partition("?")[0].partition("#")[0]).url_name for _, address in pages}
    seen |= set(re.findall(r'"(mfa_\w+)"', inspect.getsource(test_every_page)))
    named = dict(named_pages())

    missing = {name: address for name, address in named.items() if name not in seen | EXEMPT.keys()}
    assert not missing, f"Show these in tests/tasks/doors/scene.py, or say in EXEMPT why not: {missing}"
    assert EXEMPT.keys() <= named.keys(), f"no longer there: {EXEMPT.keys() - named.keys()}"
    assert not EXEMPT.keys() & seen, f"looked at by now: {EXEMPT.keys() & seen}"


def test_the_list_would_notice_a_page() -> None:
    """It knows pages, and tells them from what only takes a POST."""
    named = dict(named_pages())
    assert {"inbox", "change", "spend", "webhook", "organization-tokens", "account_login"} <= named.keys()
    assert not {"change-act", "candidate-promote", "webhook-act", "token-revoke", "saved-view"} & named.keys()


@pytest.mark.parametrize("reason", EXEMPT.values())
def test_an_exemption_has_a_reason(reason: str) -> None:
    assert len(reason) > 8
