"""Who stands in for a connector: set through every door, checked before it is stored, audited."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from providers.connectors import line_for
from providers.fallback import FallbackGateway
from providers.models import Connector
from providers.plans import RETRIES_MAX, STAND_INS_MAX
from providers.saving import save_connector, set_fallback, switch_connector
from tenants.errors import InvalidInput, RoleTooLow
from tenants.models import AuditEntry, Organization, Role, User
from tests.factories.providers import make_connector
from tests.factories.tenants import bearer, make_member, make_organization, make_token, make_user

pytestmark = pytest.mark.django_db
OFF = {
    "claude-haiku-5-5": {"model": "gpt-4o-mini", "thinking": "off"},
    "claude-sonnet-5-5": {"model": "gpt-4.1", "thinking": "off"},
    "claude-opus-5-5": {"model": "gpt-4.1", "thinking": "off"},
}
PLAN = {"connectors": [{"connector": "spare", "models": OFF}], "max_retries": 1, "retry_transport": True}


@pytest.fixture
def organization() -> Organization:
    return make_organization()


@pytest.fixture
def admin(organization: Organization) -> User:
    return make_member(organization, Role.ADMIN)


@pytest.fixture
def main(organization: Organization) -> Connector:
    """And `spare`, which speaks another wire."""
    make_connector(organization, name="spare", kind="openai", config={})
    return make_connector(organization, name="main", kind="anthropic", config={})


def refusal(connector: Connector, plan: dict[str, Any], by: User) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        set_fallback(connector, plan, by=by)
    connector.refresh_from_db()
    assert (connector.fallback, connector.version) == ({}, 1), "nothing was changed"
    assert refused.value.field == "fallback"
    assert refused.value.remedy
    return refused.value


def test_a_plan_makes_a_line_of_accounts(main: Connector, admin: User) -> None:
    """Rows 111, 113."""
    saved = set_fallback(main, PLAN, by=admin)
    assert (saved.fallback, saved.version) == (PLAN, 2)
    line = line_for(main.organization_id, "main")
    assert isinstance(line, FallbackGateway)
    assert [target.connector for target in line.targets] == ["main", "spare"]
    assert (line.policy.retries_max, line.policy.retry_transport, line.tries_max) == (1, True, 4)
    entry = AuditEntry.objects.get()
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.action, entry.before["fallback"], entry.after["fallback"]) == ("connector.saved", {}, PLAN)


def test_without_a_plan_it_is_the_account_alone(main: Connector) -> None:
    assert not isinstance(line_for(main.organization_id, "main"), FallbackGateway)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"nonsense": 1}, "fallback.nonsense"),
        ({"connectors": "spare"}, "lists up to"),
        ({"connectors": ["a", "b", "c", "d"]}, f"up to {STAND_INS_MAX}"),
        ({"connectors": [7]}, "connectors[0]"),
        ({"connectors": [{"connector": ""}]}, "connectors[0].connector"),
        ({"connectors": [{"connector": "spare", "why": "x"}]}, "connectors[0]"),
        ({"connectors": ["spare", "spare"]}, "connectors[1] names 'spare' a second time"),
        ({"connectors": [{"connector": "spare", "models": {"x": ""}}]}, "connectors[0].models.x"),
        ({"connectors": [], "max_retries": RETRIES_MAX + 1}, "max_retries"),
        ({"connectors": [], "max_retries": True}, "max_retries"),
        ({"connectors": [], "retry_transport": "yes"}, "retry_transport"),
        ({"connectors": ["main"]}, "names this connector itself"),
        ({"connectors": ["elsewhere"]}, "no connector named 'elsewhere'"),
        ({"connectors": ["spare"]}, "cannot be asked for claude-haiku-5-5 (with tools, thinking adaptive)"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_with_its_place(
    main: Connector, admin: User, plan: dict[str, Any], words: str
) -> None:
    assert words in refusal(main, plan, admin).problem


def test_another_organizations_connector_is_not_there(main: Connector, admin: User) -> None:
    """Row 3: it is named as little as one that does not exist."""
    make_connector(name="theirs", kind="anthropic", config={})
    theirs, nobodys = (refusal(main, {"connectors": [name]}, admin) for name in ("theirs", "nobodys"))
    assert theirs.code == nobodys.code == "connector_not_found"
    assert theirs.problem.replace("theirs", "") == nobodys.problem.replace("nobodys", "")
    assert theirs.remedy == nobodys.remedy == "Make it first, or name one that is there: spare."


def test_a_disabled_connector_stands_in_for_nobody(main: Connector, admin: User) -> None:
    switch_connector(Connector.objects.get(name="spare"), enabled=False, by=admin)
    assert refusal(main, PLAN, admin).code == "connector_disabled"


def test_two_may_stand_in_for_each_other(main: Connector, admin: User) -> None:
    """A plan is the whole line: whoever stands in is asked, and its own plan is not followed. So nothing goes round."""
    spare = Connector.objects.get(name="spare")
    back = set_fallback(spare, {"connectors": ["main"]}, by=admin)
    there = set_fallback(main, PLAN, by=admin)
    assert [one["connector"] for one in back.fallback["connectors"]] == ["main"]
    assert there.fallback == PLAN


def test_a_model_without_a_price_stands_in_for_none(main: Connector, admin: User) -> None:
    """Row 84: unknown is not free, so every limit in dollars would refuse it in the middle of an outage."""
    declared = {"can": ["tools", "thinking_off"], "input_tokens": 32_000, "output_tokens": 16_000}
    Connector.objects.filter(name="spare").update(config={"profiles": {"qwen": declared}}, version=2)
    named = {name: {"model": "qwen", "thinking": "off"} for name in OFF}
    refused = refusal(main, {"connectors": [{"connector": "spare", "models": named}]}, admin)
    assert (refused.code, "qwen" in refused.problem) == ("no_known_price", True)


def test_a_plan_that_stays_does_not_stop_another_change(
    main: Connector, admin: User, organization: Organization
) -> None:
    """What has become of a stand-in meanwhile is no reason to refuse a new header."""
    set_fallback(main, PLAN, by=admin)
    switch_connector(Connector.objects.get(name="spare"), enabled=False, by=admin)
    saved = save_connector(
        organization, name="main", kind="anthropic", headers={"x-a": "b"}, fallback=PLAN, by=admin
    )
    assert (saved.headers, saved.fallback) == ({"x-a": "b"}, PLAN)


def test_only_admins_decide_who_stands_in(main: Connector, organization: Organization) -> None:
    with pytest.raises(RoleTooLow):
        set_fallback(main, PLAN, by=make_member(organization, Role.MEMBER))


def test_over_rest_it_is_set_shown_kept_and_taken_away(main: Connector, admin: User) -> None:
    path = f"/api/v1/organizations/{main.organization_id}/connectors/{main.pk}"
    client, sent = (
        Client(),
        {
            "content_type": "application/json",
            **bearer(make_token(admin, main.organization, scopes=["admin"])[1]),
        },
    )
    answer = client.patch(path, {"fallback": PLAN}, **sent)
    assert (answer.status_code, answer.json()["fallback"]) == (200, PLAN)
    assert client.patch(path, {"headers": {"x-a": "b"}}, **sent).json()["fallback"] == PLAN
    wrong = client.patch(path, {"fallback": {"connectors": ["elsewhere"]}}, **sent)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "connector_not_found")
    assert wrong.json()["field"] == "fallback"
    assert client.patch(path, {"fallback": {}}, **sent).json()["fallback"] == {}


def test_on_the_page_it_is_a_line_each(main: Connector, admin: User) -> None:
    client = Client()
    client.force_login(admin)
    path = reverse("connector", args=[main.organization_id, main.pk])
    line = "spare: " + ", ".join(
        f"{ours} = {named['model']} thinking off" for ours, named in sorted(OFF.items())
    )
    form = {"headers": "", "config": "", "base_url": ""}
    client.post(path, {**form, "fallback": line, "max_retries": "1", "retry_transport": "on"})
    main.refresh_from_db()
    assert main.fallback == PLAN
    assert line in client.get(path).content.decode()
    spare = Connector.objects.get(name="spare")
    shown = client.get(reverse("connector", args=[main.organization_id, spare.pk])).content.decode()
    assert "Stands in for" in shown
    for said, why in (
        ("elsewhere", "no connector named"),
        ("spare: x", "names no model"),
        ("main", "itself"),
    ):
        assert why in client.post(path, {**form, "fallback": said}).content.decode()
    client.post(path, form)
    main.refresh_from_db()
    assert main.fallback == {}


def test_an_operator_sets_it_in_the_admin(main: Connector) -> None:
    operator, client = make_user(is_staff=True, is_superuser=True), Client()
    client.force_login(operator)
    path = reverse("admin:providers_connector_changelist")
    act = {"action": "stand_ins", "_selected_action": [str(main.pk)]}
    assert "Stand-ins of main" in client.post(path, act).content.decode()
    wrong = client.post(path, {**act, "save": "Save", "fallback": "elsewhere"}).content.decode()
    assert "no connector named" in wrong
    line = "spare: " + ", ".join(
        f"{ours} = {named['model']} thinking off" for ours, named in sorted(OFF.items())
    )
    client.post(path, {**act, "save": "Save", "fallback": line, "max_retries": "1", "retry_transport": "on"})
    main.refresh_from_db()
    assert main.fallback == PLAN
    assert AuditEntry.objects.get().actor_id == operator.pk
    two = {"action": "stand_ins", "_selected_action": [str(row.pk) for row in Connector.objects.all()]}
    assert "Choose one connector" in client.post(path, two, follow=True).content.decode()
