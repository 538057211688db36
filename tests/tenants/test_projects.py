"""The rules of a project: bounds, owners' words, and the audit list."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from agents.spec import RunCaps
from routing.tiers import CALLS_HARD_MAX, CALLS_MAX
from routing.words import Tier
from tenants.caps import CAPS, caps_of
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import AuditEntry, Project
from tenants.projects import change_project
from tenants.text import free_text
from tests.tenants.conftest import House, api, browser

PATTERN = {"name": "an ACME key", "pattern": "ACME-[A-Z0-9]{8}"}


def _change(house: House, by: str = "owner", **wanted: object) -> Project:
    return change_project(house.project, wanted, by=getattr(house, by), now=timezone.now())


def test_defaults_of_the_caps_are_the_ones_that_are_kept_elsewhere() -> None:
    """Row 50."""
    for tier in Tier:
        assert CAPS[f"calls_{tier.word}"].default == CALLS_MAX[tier]
        assert CAPS[f"calls_{tier.word}"].maximum <= CALLS_HARD_MAX
    assert {"calls_max", "reads_max", "sandboxes_max"} <= RunCaps.__dataclass_fields__.keys()


def test_changes_are_saved_and_audited_with_before_and_after(house: House) -> None:
    _change(house, "admin", plan_needs_approval=True, name=house.project.name, caps={"reads": 20})
    entry = AuditEntry.objects.get()
    assert entry.before == {"plan_needs_approval": False, "caps": {}}
    assert entry.after == {"plan_needs_approval": True, "caps": {"reads": 20}}
    assert caps_of(Project.objects.get().caps)["reads"] == 20


def test_what_is_equal_already_is_no_change(house: House) -> None:
    _change(house, trusted=False, caps={})
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    "wanted",
    [
        {"trusted": True},
        {"extra_commands": [["npm", "run", "e2e"]]},
        {"publish_rules": {"secret_exceptions": ["*"]}},
    ],
)
def test_what_widens_the_sandbox_is_an_owners_word(house: House, wanted: dict[str, Any]) -> None:
    with pytest.raises(RoleTooLow, match="owner"):
        _change(house, "admin", **wanted, description="and this is not saved either")
    house.project.refresh_from_db()
    assert (house.project.trusted, house.project.description) == (False, "")
    _change(house, "owner", **wanted)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"caps": {"reads": 0}}, "caps.reads"),
        ({"caps": {"reads": 201}}, "caps.reads"),
        ({"caps": {"reads": True}}, "caps.reads"),
        ({"caps": {"reads": "12"}}, "caps.reads"),
        ({"caps": {"reads": 1.5}}, "caps.reads"),
        ({"caps": {"money": 1}}, "caps.money"),
        ({"caps": {"money": None}}, "caps.money"),
        ({"caps": [1]}, "caps"),
        ({"trusted": "true"}, "trusted"),
        ({"promotion": "never"}, "promotion"),
        ({"promotion": ["auto"]}, "promotion"),
        ({"connector": "Not a name"}, "connector"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"description": "x" * 10_001}, "description"),
        ({"extra_commands": ["npm run e2e"]}, "extra_commands.0"),
        ({"extra_commands": [[]]}, "extra_commands.0"),
        ({"extra_commands": [["/bin/sh"]]}, "extra_commands.0.0"),
        ({"extra_commands": [["npm", "a\nb"]]}, "extra_commands.0.1"),
        ({"extra_commands": [["npm"]] * 51}, "extra_commands"),
        ({"publish_rules": []}, "publish_rules"),
        ({"publish_rules": {"secrets_refused": False}}, "publish_rules.secrets_refused"),
        ({"publish_rules": {"file_kib_max": 0}}, "publish_rules.file_kib_max"),
        ({"publish_rules": {"file_kib_max": 102_401}}, "publish_rules.file_kib_max"),
        ({"publish_rules": {"files_max": True}}, "publish_rules.files_max"),
        ({"publish_rules": {"secret_patterns": "x"}}, "publish_rules.secret_patterns"),
        ({"publish_rules": {"secret_patterns": ["x"]}}, "publish_rules.secret_patterns.0"),
        ({"publish_rules": {"secret_patterns": [PATTERN] * 21}}, "publish_rules.secret_patterns"),
        (
            {"publish_rules": {"secret_patterns": [PATTERN | {"name": ""}]}},
            "publish_rules.secret_patterns.0.name",
        ),
        *(
            (
                {"publish_rules": {"secret_patterns": [PATTERN | {"pattern": bad}]}},
                "publish_rules.secret_patterns.0.pattern",
            )
            for bad in ("", "(", "a*", "(?=a)b", r"(a)\1", "a)|(b", "x" * 201)
        ),
        ({"publish_rules": {"secret_exceptions": ["a\nb"]}}, "publish_rules.secret_exceptions.0"),
        ({"publish_rules": {"secret_exceptions": ["a"] * 51}}, "publish_rules.secret_exceptions"),
        ({"organization": "other"}, "organization"),
        ({"slug": "other"}, "slug"),
    ],
)
def test_bad_settings_name_their_field_and_change_nothing(
    house: House, wanted: dict[str, Any], field: str
) -> None:
    before = Project.objects.values().get(pk=house.project.pk)
    with pytest.raises(InvalidInput) as refused:
        _change(house, description="ok", **wanted) if "description" not in wanted else _change(
            house, **wanted
        )
    assert refused.value.field == field
    answer = api(house.owner).patch(f"/api/v1/projects/{house.project.pk}", wanted, format="json")
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert Project.objects.values().get(pk=house.project.pk) == before


def test_the_form_saves_what_it_shows(house: House) -> None:
    address = f"/projects/{house.project.pk}"
    filled = {
        "name": "Ledger",
        "connector": "main",
        "promotion": "auto",
        "plan_needs_approval": "on",
        "extra_commands": "npm run e2e\nmake 'check all'",
        "cap_reads": "30",
        "cap_agents": "",
    }
    assert browser(house.owner).post(address, filled).status_code == 302
    house.project.refresh_from_db()
    assert house.project.extra_commands == [["npm", "run", "e2e"], ["make", "check all"]]
    assert (house.project.caps, house.project.promotion) == ({"reads": 30}, "auto")
    # An admin's form shows the owner's fields, and cannot change them.
    filled |= {"trusted": "on", "extra_commands": "rm x", "name": "Ledger 2"}
    assert browser(house.admin).post(address, filled).status_code == 302
    house.project.refresh_from_db()
    assert (house.project.name, house.project.trusted) == ("Ledger 2", False)
    assert len(house.project.extra_commands) == 2


def test_the_form_says_what_is_wrong_beside_the_field(house: House) -> None:
    filled = {"name": "Ledger", "connector": "Not a name", "promotion": "auto", "cap_reads": "9999"}
    page = browser(house.owner).post(f"/projects/{house.project.pk}", filled)
    assert page.status_code == 200
    assert b"less than or equal to 200" in page.content
    filled["cap_reads"] = "20"
    page = browser(house.owner).post(f"/projects/{house.project.pk}", filled)
    assert b"no valid short name" in page.content


def test_an_archived_project_is_hidden_from_the_list_and_comes_back(house: House) -> None:
    client, link = browser(house.admin), f'href="/projects/{house.project.pk}"'.encode()
    client.post(f"/projects/{house.project.pk}/archive", {"archived": "1"})
    assert link not in client.get("/projects").content
    assert link in client.get("/projects?archived=1").content
    client.post(f"/projects/{house.project.pk}/archive", {"archived": "0"})
    assert link in client.get("/projects").content


def test_what_agents_may_publish_is_set_on_the_page_and_audited(house: House) -> None:
    client = browser(house.owner)
    page = f"/projects/{house.project.pk}"
    form = {
        "name": house.project.name,
        "connector": "main",
        "promotion": "person",
        "allow_opus": "on",
        "publish_file_kib_max": "64",
        "publish_secret_patterns": "an ACME key: ACME:[A-Z0-9]{8}\r\n\r\n",
        "publish_secret_exceptions": "tests/fixtures/*",
    }
    assert client.post(page, form).status_code == 302
    house.project.refresh_from_db()
    rules = {
        "file_kib_max": 64,
        "secret_patterns": [{"name": "an ACME key", "pattern": "ACME:[A-Z0-9]{8}"}],
        "secret_exceptions": ["tests/fixtures/*"],
    }
    assert house.project.publish_rules == rules
    assert AuditEntry.objects.get().after == {"publish_rules": rules}
    body = client.get(page).content.decode()
    assert "an ACME key: ACME:[A-Z0-9]{8}" in body
    refused = client.post(page, form | {"publish_secret_patterns": "no colon"}).content.decode()
    assert "pattern: is empty" in refused.lower()
    admins = browser(house.admin).post(page, form | {"publish_file_kib_max": "1"})
    assert admins.status_code == 302
    house.project.refresh_from_db()
    assert house.project.publish_rules == rules


def test_over_rest_rules_are_shown_and_null_takes_one_back(house: House) -> None:
    ask = api(house.owner)
    path = f"/api/v1/projects/{house.project.pk}"
    wanted = {"files_max": 3, "secret_exceptions": ["a/*"]}
    answer = ask.patch(path, {"publish_rules": wanted}, format="json")
    assert answer.json()["publish_rules"] == wanted
    again = ask.patch(path, {"publish_rules": {"files_max": None, "secret_exceptions": []}}, format="json")
    assert again.json()["publish_rules"] == {}


@pytest.mark.parametrize(
    "name", ["\u3164", "\u2800", "\uffa0", "\ufe0f", "a\u3164", "a\ufe01", "a\U000e0041"], ids=ascii
)
def test_a_name_that_is_drawn_as_nothing_or_hides_something_is_refused(house: House, name: str) -> None:
    """Fault C89: two projects that look alike, or a link that nobody can see to click."""
    with pytest.raises(InvalidInput) as refused:
        _change(house, name=name)
    assert refused.value.field == "name"
    _change(house, name="Ship it \u2764\ufe0f")


def test_a_text_of_blanks_is_empty() -> None:
    with pytest.raises(InvalidInput, match="is empty"):
        free_text("reason", "\u3164 \u2800\n\ufe0f", characters_max=10, required=True)
