"""The doors of webhooks: pages, REST, admin and commands; who may, what is shown once, and what is never shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from budgets.money import Usd
from providers.sealing import KeyUnreadable
from tenants.models import AuditEntry, Organization, Project, Role, Scope
from tests.factories.tenants import (
    bearer,
    make_member,
    make_organization,
    make_project,
    make_token,
    make_user,
)
from tests.factories.webhooks import (
    SECRET,
    make_attempt,
    make_delivery,
    make_endpoint,
    make_hook,
    make_received,
)
from tests.webhooks.receiver import Receiver
from tests.webhooks.test_incoming import send
from webhooks.delivering import deliver_due
from webhooks.endpoints import ENDPOINTS_PER_ORGANIZATION_MAX
from webhooks.hooks import HOOKS_PER_PROJECT_MAX
from webhooks.models import Delivery, Endpoint, IncomingHook

pytestmark = pytest.mark.django_db
URL = "https://ci.example.org/remit"


@pytest.fixture
def organization() -> Organization:
    return make_organization(name="Acme")


@pytest.fixture
def admin(organization: Organization) -> Client:
    client = Client()
    client.force_login(make_member(organization, Role.ADMIN))
    return client


@pytest.fixture
def project(organization: Organization) -> Project:
    return make_project(organization)


def token(organization: Organization, role: Role = Role.ADMIN, scope: Scope = Scope.ADMIN) -> dict[str, Any]:
    return bearer(make_token(make_member(organization, role), organization, scopes=[scope])[1])


def api(organization: Organization, *more: object) -> str:
    return "/".join(["/api/v1/organizations", str(organization.pk), "webhooks", *map(str, more)])


def hooks_api(project: Project, *more: object) -> str:
    return "/".join(["/api/v1/projects", str(project.pk), "hooks", *map(str, more)])


def post(path: str, data: Any, who: dict[str, Any], **more: Any) -> Any:
    return Client().post(path, data, content_type="application/json", **who, **more)


def test_an_endpoint_lives_over_rest(organization: Organization) -> None:
    who = token(organization)
    made = post(api(organization), {"url": URL, "kinds": ["task.done", "change.ready"]}, who)
    assert made.status_code == 201, made.content
    body = made.json()
    assert body["secret"].startswith("whsec_")
    assert body["kinds"] == ["change.ready", "task.done"]
    shown = Client().get(api(organization, body["id"]), **who).json()
    assert "secret" not in shown
    assert [one["id"] for one in Client().get(api(organization), **who).json()["results"]] == [body["id"]]
    changed = (
        Client()
        .patch(
            api(organization, body["id"]),
            {"kinds": ["*"], "enabled": False},
            content_type="application/json",
            **who,
        )
        .json()
    )
    assert (changed["url"], changed["kinds"], changed["enabled"], changed["off_because"]) == (
        URL,
        ["*"],
        False,
        "person",
    )
    rotated = post(api(organization, body["id"], "rotate"), {}, who).json()
    assert rotated["secret"] != body["secret"]
    assert rotated["previous_secret_until"]
    assert Client().delete(api(organization, body["id"]), **who).status_code == 204
    assert Endpoint.objects.count() == 0
    acts = AuditEntry.objects.order_by("pk").values_list("action", flat=True)
    assert [act for act in acts if act.startswith("webhook")] == [
        "webhook.made",
        "webhook.changed",
        "webhook.secret_rotated",
        "webhook.removed",
    ]
    everything = str(list(AuditEntry.objects.values_list("before", "after")))
    assert body["secret"] not in everything
    assert rotated["secret"] not in everything


def test_a_repeated_post_makes_one_and_shows_the_secret_once(organization: Organization) -> None:
    who = token(organization) | {"HTTP_IDEMPOTENCY_KEY": "one"}
    first, second = (post(api(organization), {"url": URL, "kinds": ["*"]}, who) for _ in range(2))
    assert first.json()["secret"]
    assert second.json() == first.json() | {"secret": None}
    assert Endpoint.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kinds": ["*"]}, "url"),
        ({"url": URL}, "kinds"),
        ({"url": URL, "kinds": []}, "kinds"),
        ({"url": URL, "kinds": ["change.exploded"]}, "kinds.0"),
        ({"url": "ftp://x.example.org", "kinds": ["*"]}, "url"),
        ({"url": "https://169.254.169.254/", "kinds": ["*"]}, "url"),
        ({"url": URL, "kinds": ["*"], "description": "a\u0000b"}, "description"),
        ({"url": URL, "kinds": ["*"], "description": "x" * 201}, "description"),
        ({"url": URL, "kinds": ["*"], "secret": "mine"}, "secret"),
    ],
)
def test_a_wrong_endpoint_names_its_field(organization: Organization, body: Any, field: str) -> None:
    answer = post(api(organization), body, token(organization))
    assert answer.status_code == 400, answer.content
    assert answer.json()["field"] == field
    assert Endpoint.objects.count() == 0


def test_an_organization_has_so_many_endpoints_and_a_project_so_many_hooks(
    organization: Organization, project: Project
) -> None:
    who = token(organization)
    for _ in range(ENDPOINTS_PER_ORGANIZATION_MAX):
        make_endpoint(organization)
    answer = post(api(organization), {"url": URL, "kinds": ["*"]}, who)
    assert (answer.status_code, answer.json()["code"]) == (400, "too_many")
    author = make_member(organization)
    for _ in range(HOOKS_PER_PROJECT_MAX):
        make_hook(project, author=author)
    wanted = {"name": "n", "kind": "standard", "author": str(author.pk)}
    answer = post(hooks_api(project), wanted, who)
    assert (answer.status_code, answer.json()["code"]) == (400, "too_many")


@pytest.mark.parametrize(
    ("role", "scope"),
    [(Role.VIEWER, Scope.ADMIN), (Role.MEMBER, Scope.ADMIN), (Role.ADMIN, Scope.CHANGES_WRITE)],
)
def test_below_an_admin_or_without_the_scope_nothing_is_made(
    organization: Organization, project: Project, role: Role, scope: Scope
) -> None:
    endpoint = make_endpoint(organization)
    delivery = make_delivery(endpoint)
    hook = make_hook(project)
    who = token(organization, role, scope)
    for path, body in [
        (api(organization), {"url": URL, "kinds": ["*"]}),
        (api(organization, endpoint.pk, "rotate"), {}),
        (api(organization, endpoint.pk, "test"), {}),
        (api(organization, endpoint.pk, "resend"), {"since": timezone.now().isoformat()}),
        (api(organization, endpoint.pk, "deliveries", delivery.pk, "resend"), {}),
        (hooks_api(project), {"name": "n", "kind": "standard", "author": str(hook.author_id)}),
        (hooks_api(project, hook.pk, "rotate"), {}),
    ]:
        assert post(path, body, who).status_code == 403, path
    if role < Role.ADMIN:
        for path in (api(organization), api(organization, endpoint.pk, "deliveries"), hooks_api(project)):
            assert Client().get(path, **who).status_code == 403, path
    assert Endpoint.objects.count() == 1
    assert endpoint.deliveries.count() == 1


def test_a_row_of_another_endpoint_project_or_organization_is_not_there(organization: Organization) -> None:
    """Faults C79 and C81: also of an admin's own other parent."""
    who = token(organization)
    one, other = make_endpoint(organization), make_endpoint(organization)
    theirs = make_endpoint()
    delivery = make_delivery(other)
    assert Client().get(api(organization, one.pk, "deliveries", delivery.pk), **who).status_code == 404
    assert Client().get(api(organization, theirs.pk), **who).status_code == 404
    assert Client().get(api(theirs.organization, theirs.pk), **who).status_code == 404
    mine, also_mine = make_project(organization), make_project(organization)
    hook = make_hook(also_mine)
    assert Client().get(hooks_api(mine, hook.pk), **who).status_code == 404
    outsider = make_user()
    answer = post(hooks_api(mine), {"name": "n", "kind": "standard", "author": str(outsider.pk)}, who)
    assert (answer.status_code, answer.json()["field"], answer.json()["code"]) == (
        400,
        "author",
        "not_a_member",
    )
    viewer = make_member(organization, Role.VIEWER)
    answer = post(hooks_api(mine), {"name": "n", "kind": "standard", "author": str(viewer.pk)}, who)
    assert answer.json()["field"] == "author"


def test_the_log_of_deliveries_over_rest(organization: Organization) -> None:
    who = token(organization)
    endpoint = make_endpoint(organization)
    failed = make_delivery(endpoint, state="failed", ended_at=timezone.now(), problem="tries_used_up")
    make_attempt(failed, ended_at=timezone.now(), status=500, milliseconds=12, answer="\x1b[31mdown")
    make_delivery(endpoint)
    rows = (
        Client().get(api(organization, endpoint.pk, "deliveries") + "?state=failed", **who).json()["results"]
    )
    assert [(row["id"], row["next_at"]) for row in rows] == [(str(failed.pk), None)]
    one = Client().get(api(organization, endpoint.pk, "deliveries", failed.pk), **who).json()
    assert one["payload"] == failed.payload
    assert (one["attempts"][0]["status"], one["attempts"][0]["milliseconds"]) == (500, 12)
    assert Client().get(api(organization, endpoint.pk, "deliveries") + "?state=odd", **who).status_code == 400
    since = (timezone.now() - timedelta(hours=1)).isoformat()
    assert post(api(organization, endpoint.pk, "resend"), {"since": since}, who).json() == {"resent": 1}
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    assert post(api(organization, endpoint.pk, "resend"), {"since": later}, who).json()["field"] == "since"


def test_a_test_event_over_rest_arrives(organization: Organization) -> None:
    with Receiver() as receiver:
        endpoint = make_endpoint(organization, url=receiver.url, kinds=["task.done"])
        answer = post(api(organization, endpoint.pk, "test"), {}, token(organization))
        assert answer.status_code == 202
        deliver_due()
    (got,) = receiver.got
    assert (got.id, got.data["type"]) == (answer.json()["message_id"], "webhook.test")
    Endpoint.objects.update(enabled=False, off_because="person")
    answer = post(api(organization, endpoint.pk, "test"), {}, token(organization))
    assert (answer.status_code, answer.json()["code"]) == (400, "switched_off")


def test_a_hook_lives_over_rest(organization: Organization, project: Project) -> None:
    who = token(organization)
    author = make_member(organization)
    wanted = {"name": "From CI", "kind": "github", "author": str(author.pk), "budget": "2.50"}
    made = post(hooks_api(project), wanted, who)
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["label"], body["budget"]) == ("remit", "2.500000")
    assert urlsplit(body["address"]).path == f"/hooks/in/{body['id']}"
    assert len(body["secret"]) == 64
    assert "secret" not in Client().get(hooks_api(project, body["id"]), **who).json()
    changed = (
        Client()
        .patch(
            hooks_api(project, body["id"]),
            {"label": "agents", "budget": None, "enabled": False},
            content_type="application/json",
            **who,
        )
        .json()
    )
    assert (changed["label"], changed["budget"], changed["enabled"]) == ("agents", None, False)
    assert post(hooks_api(project), wanted, who).json()["code"] == "taken"
    hook = IncomingHook.objects.get()
    make_received(hook)
    (row,) = Client().get(hooks_api(project, body["id"], "deliveries"), **who).json()["results"]
    assert row["code"] == "created"
    assert post(hooks_api(project, body["id"], "rotate"), {}, who).json()["secret"] != body["secret"]
    assert Client().delete(hooks_api(project, body["id"]), **who).status_code == 204


def test_an_admin_makes_an_endpoint_in_the_browser_tests_it_and_reads_its_log(
    admin: Client, organization: Organization
) -> None:
    page = f"/organizations/{organization.pk}/webhooks"
    with Receiver(answers=[(500, {}, b"\x1b[31m<script>alert(1)</script>\xe2\x80\xae")]) as receiver:
        made = admin.post(page, {"url": receiver.url, "description": "Our CI", "kinds": ["*"]})
        text = made.content.decode()
        assert "whsec_" in text
        assert "whsec_" not in admin.get(page).content.decode()
        endpoint = Endpoint.objects.get()
        asked = admin.post(f"{page}/{endpoint.pk}/act", {"act": "test"})
        deliver_due()
    delivery = Delivery.objects.get()
    assert asked.headers["Location"] == f"{page}/{endpoint.pk}/deliveries/{delivery.pk}"
    log = admin.get(asked.headers["Location"]).content.decode()
    assert "&lt;script&gt;alert(1)" in log
    assert "<script>alert" not in log
    assert "⟨U+202E⟩" in log
    assert "\x1b" not in log
    assert "webhook.test" in admin.get(f"{page}/{endpoint.pk}").content.decode()
    assert (
        "webhook.test"
        not in admin.get(f"{page}/{endpoint.pk}?state=failed").content.decode().split("<main")[1]
    )


def test_acts_in_the_browser(admin: Client, organization: Organization) -> None:
    endpoint = make_endpoint(organization)
    page = f"/organizations/{organization.pk}/webhooks/{endpoint.pk}"
    assert "whsec_" in admin.post(f"{page}/act", {"act": "rotate"}).content.decode()
    admin.post(f"{page}/act", {"act": "disable"})
    endpoint.refresh_from_db()
    assert not endpoint.enabled
    refused = admin.post(f"{page}/act", {"act": "test"}, follow=True).content.decode()
    assert "Enable it first" in refused
    admin.post(f"{page}/act", {"act": "enable"})
    failed = make_delivery(endpoint, state="failed", ended_at=timezone.now())
    assert (
        "1 delivery is sent once more"
        in admin.post(f"{page}/act", {"act": "resend", "hours": "24"}, follow=True).content.decode()
    )
    Delivery.objects.update(state="failed", ended_at=timezone.now())
    admin.post(f"{page}/deliveries/{failed.pk}/resend")
    assert Delivery.objects.get().state == "pending"
    assert "Press one of its buttons" in admin.post(f"{page}/act", {"act": "x"}, follow=True).content.decode()
    saved = admin.post(page, {"url": URL, "description": "", "kinds": ["task.done"]}, follow=True)
    assert "Saved" in saved.content.decode()
    wrong = admin.post(page, {"url": "nonsense", "description": "", "kinds": ["task.done"]})
    assert "https://" in wrong.content.decode()
    admin.post(f"{page}/act", {"act": "remove"})
    assert Endpoint.objects.count() == 0


def test_members_get_no_page_of_webhooks(organization: Organization, project: Project) -> None:
    endpoint, hook = make_endpoint(organization), make_hook(project)
    client = Client()
    client.force_login(make_member(organization, Role.MEMBER))
    for path in (
        f"/organizations/{organization.pk}/webhooks",
        f"/organizations/{organization.pk}/webhooks/{endpoint.pk}",
        f"/projects/{project.pk}/hooks",
        f"/projects/{project.pk}/hooks/{hook.pk}",
    ):
        assert client.get(path).status_code == 403, path


def test_an_admin_makes_a_hook_in_the_browser_and_sees_what_came_in(
    admin: Client, organization: Organization, project: Project
) -> None:
    author = make_member(organization)
    page = f"/projects/{project.pk}/hooks"
    assert "Incoming hooks" in admin.get(f"/projects/{project.pk}").content.decode()
    wanted = {"name": "CI", "kind": "standard", "author": str(author.pk), "budget": "1.00", "label": ""}
    assert "Nothing was saved" in admin.post(page, wanted | {"budget": "5,00"}).content.decode()
    made = admin.post(page, wanted).content.decode()
    hook = IncomingHook.objects.get()
    secret = made.split("whsec_")[1].split("<")[0]
    assert f"/hooks/in/{hook.pk}" in made
    answer = send(hook, secret="whsec_" + secret)
    assert (answer.status_code, answer.json()["code"]) == (400, "no_repository")
    send(hook, secret=SECRET)
    shown = admin.get(f"{page}/{hook.pk}").content.decode()
    assert "has no repository yet" in shown
    assert "signature invalid" in shown
    assert "whsec_" not in shown
    hook.budget = Usd.dollars("1234.567891")
    hook.save()
    kept = admin.get(f"{page}/{hook.pk}").context["form"]["budget"].value()
    settings = {"name": "CI 2", "author": str(author.pk), "budget": kept}
    assert "Saved" in admin.post(f"{page}/{hook.pk}", settings, follow=True).content.decode()
    hook.refresh_from_db()
    assert hook.budget == Usd.dollars("1234.567891"), "a form that is saved as it was shown changes nothing"
    settings = {"name": "CI 2", "author": str(author.pk), "budget": ""}
    assert "Saved" in admin.post(f"{page}/{hook.pk}", settings, follow=True).content.decode()
    assert "whsec_" in admin.post(f"{page}/{hook.pk}/act", {"act": "rotate"}).content.decode()
    admin.post(f"{page}/{hook.pk}/act", {"act": "disable"})
    hook.refresh_from_db()
    assert (hook.name, hook.budget, hook.enabled) == ("CI 2", None, False)
    author.memberships.all().delete()
    assert "It takes nothing now" in admin.get(f"{page}/{hook.pk}").content.decode()
    admin.post(f"{page}/{hook.pk}/act", {"act": "remove"})
    assert IncomingHook.objects.count() == 0


def test_an_endpoint_that_remit_gave_up_stands_in_the_inbox_of_admins(organization: Organization) -> None:
    make_endpoint(
        organization, enabled=False, off_because="failing", off_at=timezone.now(), description="Our CI"
    )
    make_endpoint(
        organization, enabled=False, off_because="person", off_at=timezone.now(), description="Old one"
    )
    shown = {}
    for role in (Role.MEMBER, Role.ADMIN):
        client = Client()
        client.force_login(make_member(organization, role))
        text = client.get("/").content.decode()
        shown[role] = ("Our CI" in text, "Old one" in text)
    stranger = Client()
    stranger.force_login(make_member(make_organization(), Role.OWNER))
    assert shown == {Role.MEMBER: (False, False), Role.ADMIN: (True, False)}
    assert "Our CI" not in stranger.get("/").content.decode()


def test_operators_see_no_secret_no_payload_and_no_answer_and_switch_both(organization: Organization) -> None:
    endpoint = make_endpoint(organization)
    delivery = make_delivery(endpoint)
    attempt = make_attempt(delivery, answer="A STRANGERS TEXT")
    hook = make_hook(make_project(organization))
    received = make_received(hook)
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    for name, row in {
        "endpoint": endpoint,
        "delivery": delivery,
        "attempt": attempt,
        "incominghook": hook,
        "incomingdelivery": received,
    }.items():
        assert client.get(f"/admin/webhooks/{name}/?q=x").status_code == 200
        text = client.get(f"/admin/webhooks/{name}/{row.pk}/change/").content.decode()
        assert str(row) in text or str(row.pk) in text
        for secret in (endpoint.sealed_secret, hook.sealed_secret, SECRET, "A STRANGERS TEXT", '"version":1'):
            assert secret not in text, name
    for name, pk in (("endpoint", endpoint.pk), ("incominghook", hook.pk)):
        chosen = {"action": "disable", "_selected_action": [str(pk)]}
        assert "names you, and why" in client.post(f"/admin/webhooks/{name}/", chosen).content.decode()
        assert not AuditEntry.objects.filter(action__endswith=".disabled", subject__contains=str(pk)).exists()
        client.post(f"/admin/webhooks/{name}/", chosen | {"switch": "x", "reason": "floods a stranger"})
    endpoint.refresh_from_db()
    hook.refresh_from_db()
    assert (endpoint.enabled, hook.enabled) == (False, False)
    done = AuditEntry.objects.filter(action__in=["webhook.disabled", "hook.disabled"])
    assert [entry.reason for entry in done] == ["floods a stranger"] * 2


def test_lists_ask_as_much_for_many_as_for_one(
    admin: Client, organization: Organization, project: Project, django_assert_max_num_queries: Any
) -> None:
    endpoint, hook = make_endpoint(organization), make_hook(project)
    for _ in range(8):
        make_endpoint(organization)
        make_attempt(make_delivery(endpoint))
        make_hook(project)
        make_received(hook)
    page = f"/organizations/{organization.pk}/webhooks"
    for path in (
        page,
        f"{page}/{endpoint.pk}",
        f"/projects/{project.pk}/hooks",
        f"/projects/{project.pk}/hooks/{hook.pk}",
    ):
        with django_assert_max_num_queries(12):
            assert admin.get(path).status_code == 200


def test_every_secret_moves_to_a_new_sealing_key(settings: Any) -> None:
    endpoint, hook = make_endpoint(), make_hook()
    endpoint.put_secret("whsec_AAAA", previous_until=timezone.now() + timedelta(hours=1))
    endpoint.save()
    old = settings.PLANE
    fresh = Fernet.generate_key().decode()
    settings.PLANE = replace(old, connector_keys=(fresh, *old.connector_keys))
    out = StringIO()
    call_command("reseal_webhooks", stdout=out)
    assert out.getvalue().startswith("2 webhooks")
    settings.PLANE = replace(old, connector_keys=(fresh,))
    now = timezone.now()
    assert Endpoint.objects.get(pk=endpoint.pk).secrets(now=now) == ["whsec_AAAA", SECRET]
    assert IncomingHook.objects.get(pk=hook.pk).secrets(now=now) == [SECRET]
    settings.PLANE = replace(old, connector_keys=(Fernet.generate_key().decode(),))
    with pytest.raises(KeyUnreadable):
        Endpoint.objects.get(pk=endpoint.pk).secrets(now=now)
    with pytest.raises(CommandError, match=str(endpoint.pk)):
        call_command("reseal_webhooks", stdout=StringIO())


def test_a_sealed_secret_is_no_plain_text_in_the_database() -> None:
    endpoint = make_endpoint()
    (stored,) = Endpoint.objects.values_list("sealed_secret", flat=True)
    assert SECRET not in stored
    assert SECRET.removeprefix("whsec_") not in stored
    assert endpoint.secrets(now=timezone.now()) == [SECRET]
