"""What comes in at a hook: known by its signature alone, done once, and in the log whatever became of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from budgets.meters import MeterKind, meter_key, read_meters
from budgets.money import Usd
from tasks.models import Change
from tasks.states import ChangeState
from tasks.work import work_on
from tenants.models import Membership, Role
from tests.factories.tasks import make_trunk
from tests.factories.tenants import make_member, make_organization, make_project
from tests.factories.webhooks import GITHUB_SECRET, SECRET, make_hook
from tests.tasks.repositories import make_repository, make_script, plan_data, says
from tests.tasks.threads import in_threads
from webhooks.hooks import rotate_hook
from webhooks.incoming import (
    BODY_BYTES_MAX,
    DELIVERIES_PER_MINUTE_MAX,
    REFUSALS_PER_MINUTE_MAX,
    UNSIGNED_LOGGED_PER_HOUR_MAX,
    forget_old,
)
from webhooks.models import IncomingDelivery, IncomingHook

pytestmark = pytest.mark.django_db

WANTED = {"goal": "The export has a header row.\nAnd no more.", "criteria": ["The first line names columns."]}


def hook_with_repository(**more: Any) -> IncomingHook:
    project = more.pop("project", None) or make_project()
    make_trunk(project)
    return make_hook(project, **more)


def send(
    hook: Any,
    data: Any = WANTED,
    *,
    message_id: str = "msg_1",
    secret: str = SECRET,
    at: float | None = None,
    client: Client | None = None,
    remote: str = "127.0.0.1",
) -> Any:
    """As a sender of the convention does, written after its text."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    stamp = str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return (client or Client()).post(
        f"/hooks/in/{getattr(hook, 'pk', hook)}",
        data=body,
        content_type="application/json",
        REMOTE_ADDR=remote,
        headers={
            "webhook-id": message_id,
            "webhook-timestamp": stamp,
            "webhook-signature": "v1," + base64.b64encode(digest).decode(),
        },
    )


def issue(**more: Any) -> dict[str, Any]:
    return {
        "number": 7,
        "title": "Export needs a header",
        "body": "Please.\n\n- [ ] The first line names the columns.\n- [x] It is a CSV.\n* [ ] `tests` pass\n",
        "html_url": "https://github.com/acme/tally/issues/7",
    } | more


def github(
    hook: IncomingHook,
    payload: Any,
    *,
    event: str = "issues",
    delivery: str = "",
    secret: str = GITHUB_SECRET,
    content_type: str = "application/json",
) -> Any:
    body = json.dumps(payload).encode()
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return Client().post(
        f"/hooks/in/{hook.pk}",
        data=body,
        content_type=content_type,
        headers={
            "x-hub-signature-256": f"sha256={digest}",
            "x-github-delivery": delivery or str(uuid4()),
            "x-github-event": event,
        },
    )


def labelled(label: str = "remit", **more: Any) -> dict[str, Any]:
    return {"action": "labeled", "label": {"name": label}, "issue": issue(**more)}


def test_signed_json_makes_a_change_through_the_service_of_rest() -> None:
    hook = hook_with_repository()
    answer = send(hook, WANTED | {"budget": "2.50", "invariants": ["Nothing is deleted."]})
    assert answer.status_code == 201, answer.content
    change = Change.objects.get()
    assert answer.json() == {"result": "created", "change": {"id": str(change.pk), "key": "CH-1"}}
    assert (change.author, change.project) == (hook.author, hook.project)
    assert change.title == "The export has a header row."
    assert change.state == ChangeState.PLANNING
    assert not change.plan_needs_approval
    assert change.invariants == ["Nothing is deleted."]
    key = meter_key(MeterKind.CHANGE, change.organization_id, str(change.pk), now=timezone.now())
    assert read_meters([key])[0].limit_usd == Usd.dollars("2.50")
    row = IncomingDelivery.objects.get()
    assert (row.accepted, row.code, row.change_id) == (True, "created", change.pk)
    hook.refresh_from_db()
    assert hook.used_at


def test_a_hooks_own_budget_holds_where_the_sender_names_none() -> None:
    hook = hook_with_repository(budget=Usd.dollars("1.00"))
    send(hook)
    change = Change.objects.get()
    key = meter_key(MeterKind.CHANGE, change.organization_id, str(change.pk), now=timezone.now())
    assert read_meters([key])[0].limit_usd == Usd.dollars("1.00")


def test_the_same_id_is_answered_the_same_and_does_nothing() -> None:
    hook = hook_with_repository()
    first, second, third = send(hook), send(hook), send(hook, at=time.time() - 60)
    assert first.json() == second.json() == third.json()
    assert (second.status_code, second.headers["Idempotency-Replayed"]) == (201, "true")
    assert "Idempotency-Replayed" not in first.headers
    assert Change.objects.count() == 1
    assert IncomingDelivery.objects.get().repeated == 2


def test_the_same_id_with_another_body_is_a_conflict() -> None:
    hook = hook_with_repository()
    send(hook)
    answer = send(hook, WANTED | {"goal": "Another."})
    assert (answer.status_code, answer.json()["code"]) == (409, "delivery_id_reused")
    assert Change.objects.count() == 1
    assert set(IncomingDelivery.objects.values_list("accepted", "code")) == {
        (True, "created"),
        (False, "delivery_id_reused"),
    }


def test_an_id_belongs_to_one_hook() -> None:
    one, other = hook_with_repository(), hook_with_repository()
    assert [send(one).status_code, send(other).status_code] == [201, 201]


def test_a_refusal_names_the_field_keeps_nothing_and_gives_its_id_back() -> None:
    hook = hook_with_repository()
    answer = send(hook, {"goal": "x", "criteria": []})
    assert answer.status_code == 400
    assert (answer.json()["field"], answer.json()["code"]) == ("criteria", "required")
    assert Change.objects.count() == 0
    refused = IncomingDelivery.objects.get()
    assert (refused.accepted, refused.code, refused.delivery_id) == (False, "required", "msg_1")
    assert "criteria" in refused.detail
    assert send(hook).status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", ""),
        (b"not json", ""),
        (b"[]", ""),
        (b'{"goal": NaN}', ""),
        (b'{"goal": "a", "goal": "b"}', ""),
        (b"\xff\xfe", ""),
        (b"[" * 100_000, ""),
        (json.dumps(WANTED | {"author": "me"}).encode(), "author"),
        (json.dumps(WANTED | {"budget": "-1"}).encode(), "budget"),
        (json.dumps(WANTED | {"budget": "1e400"}).encode(), "budget"),
        (json.dumps(WANTED | {"goal": "a\u0000b"}).encode(), "goal"),
        (
            json.dumps(WANTED | {"criteria": [{"text": "x", "command": "a; b"}]}).encode(),
            "criteria[0].command",
        ),
    ],
)
def test_bad_bodies_are_told_with_their_field_and_change_nothing(body: bytes, field: str) -> None:
    answer = send(hook_with_repository(), body)
    assert answer.status_code == 400, answer.content
    assert answer.json().get("field", "") == field
    assert Change.objects.count() == 0


def test_an_unknown_address_one_that_is_off_and_a_wrong_signature_look_the_same() -> None:
    off = hook_with_repository(enabled=False)
    hook = hook_with_repository()
    answers = [
        send(uuid4()),
        send(off),
        send(hook, secret="whsec_" + "A" * 44),
        send(hook, at=time.time() - 301),
        send(hook, at=time.time() + 301),
        send(hook, message_id=""),
        Client().post(f"/hooks/in/{hook.pk}", data=b"{}", content_type="application/json"),
        github(hook, {}),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert {tuple(sorted(answer.headers)) for answer in answers} == {tuple(sorted(answers[0].headers))}
    assert Change.objects.count() == 0
    assert set(off.deliveries.values_list("accepted", "code")) == {(False, "switched_off")}
    assert set(hook.deliveries.values_list("accepted", "code")) == {(False, "signature_invalid")}
    assert set(hook.deliveries.values_list("delivery_id", flat=True)) == {""}


def test_only_a_post_is_taken() -> None:
    hook = hook_with_repository()
    for method in ("get", "put", "patch", "delete"):
        assert getattr(Client(), method)(f"/hooks/in/{hook.pk}").status_code == 405


def test_a_large_body_is_refused_before_anything_is_looked_up() -> None:
    answer = send(hook_with_repository(), b"x" * (BODY_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["code"]) == (400, "too_long")
    answer = send(hook_with_repository(), b"x" * (5 * 1024 * 1024))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert IncomingDelivery.objects.count() == 0


@pytest.mark.parametrize("lost", ["membership", "role", "switched off"])
def test_an_author_who_may_not_submit_any_more_is_a_clear_refusal(lost: str) -> None:
    """Whose month would pay? Nobody's: an admin names another member."""
    hook = hook_with_repository()
    mine = Membership.objects.filter(user=hook.author)
    if lost == "membership":
        mine.delete()
    elif lost == "role":
        mine.update(role=Role.VIEWER)
    else:
        hook.author.is_active = False
        hook.author.save()
    answer = send(hook)
    assert (answer.status_code, answer.json()["code"]) == (403, "author_gone")
    assert "names another" in answer.json()["detail"]
    assert Change.objects.count() == 0
    assert hook.deliveries.get().code == "author_gone"
    hook.author = make_member(hook.project.organization)
    hook.save()
    assert send(hook).status_code == 201, "the same id, once the reason is gone"


@pytest.fixture
def one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: all that a test sends falls into one minute."""
    moment = timezone.now()
    monkeypatch.setattr("tasks.api.incoming.timezone", SimpleNamespace(now=lambda: moment))


@pytest.mark.usefixtures("one_minute")
def test_whoever_guesses_is_slowed_down_and_fills_no_table() -> None:
    hook = hook_with_repository()
    codes = [send(hook, secret="whsec_" + "A" * 44).status_code for _ in range(REFUSALS_PER_MINUTE_MAX + 1)]
    assert codes == [401] * REFUSALS_PER_MINUTE_MAX + [429]
    assert send(hook).status_code == 429, "from there"
    assert send(hook, remote="127.0.0.9").status_code == 201, "but not from elsewhere"
    for number in range(UNSIGNED_LOGGED_PER_HOUR_MAX):
        send(hook, secret="whsec_" + "A" * 44, remote=f"127.0.1.{number}")
    assert hook.deliveries.filter(accepted=False).count() == UNSIGNED_LOGGED_PER_HOUR_MAX


@pytest.mark.usefixtures("one_minute")
def test_a_hook_takes_so_many_a_minute() -> None:
    hook = hook_with_repository()
    for _ in range(DELIVERIES_PER_MINUTE_MAX):
        assert send(hook).status_code == 201  # one Change, the rest are repetitions
    answer = send(hook)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
    assert Change.objects.count() == 1


def test_a_rotated_secret_is_taken_beside_the_old_one_for_a_day() -> None:
    hook = hook_with_repository()
    admin = make_member(hook.project.organization, Role.ADMIN)
    _, secret = rotate_hook(hook, by=admin, now=timezone.now())
    assert [send(hook, message_id="a", secret=each).status_code for each in (secret, SECRET)] == [201, 201]
    IncomingHook.objects.update(previous_until=timezone.now() - timedelta(seconds=1))
    assert send(hook, message_id="b", secret=SECRET).status_code == 401
    assert send(hook, message_id="b", secret=secret).status_code == 201


def test_a_leaked_secret_ends_at_once_when_it_is_rotated_twice() -> None:
    hook = hook_with_repository()
    admin = make_member(hook.project.organization, Role.ADMIN)
    for _ in range(2):
        hook, _ = rotate_hook(hook, by=admin, now=timezone.now())
    assert send(hook, secret=SECRET).status_code == 401


def test_an_issue_that_gets_the_label_becomes_a_change() -> None:
    hook = hook_with_repository(kind="github")
    answer = github(hook, labelled())
    assert answer.status_code == 201, answer.content
    change = Change.objects.get()
    assert change.title == "Export needs a header"
    assert "Please." in change.goal
    assert "https://github.com/acme/tally/issues/7" in change.goal
    assert [one.text for one in change.criteria.all()] == [
        "The first line names the columns.",
        "`tests` pass",
    ]
    assert [one.command for one in change.criteria.all()] == ["", ""], "a stranger's text is never a command"
    assert not change.plan_needs_approval


def test_an_issue_without_a_task_list_is_judged_and_its_plan_waits_for_a_person() -> None:
    hook = hook_with_repository(kind="github")
    assert github(hook, labelled(body=None)).status_code == 201
    change = Change.objects.get()
    assert change.plan_needs_approval
    (criterion,) = change.criteria.all()
    assert criterion.command == ""


def test_githubs_other_words_are_answered_and_do_nothing() -> None:
    hook = hook_with_repository(kind="github")
    assert github(hook, {"zen": "Keep it logically awesome."}, event="ping").json() == {"pong": True}
    for payload, event in [
        (labelled("bug"), "issues"),
        ({"action": "opened", "issue": issue()}, "issues"),
        ({"action": "labeled"}, "issues"),
        ({"action": "labeled", "label": "remit", "issue": issue()}, "issues"),
        ({"ref": "main"}, "push"),
    ]:
        answer = github(hook, payload, event=event)
        assert (answer.status_code, answer.json()["result"]) == (200, "ignored")
    assert Change.objects.count() == 0
    assert hook.deliveries.filter(accepted=True).count() == 6


def test_the_label_is_the_hooks_own() -> None:
    hook = hook_with_repository(kind="github", label="Agents please")
    assert github(hook, labelled("remit")).status_code == 200
    assert github(hook, labelled("agents please")).status_code == 201


def test_githubs_form_content_type_is_told_how_to_mend_it() -> None:
    hook = hook_with_repository(kind="github")
    answer = github(hook, labelled(), content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 400
    assert "application/json" in answer.json()["remedy"]


def test_githubs_body_happens_once_also_under_another_id() -> None:
    """Its ids are not signed: whoever caught a body could send it again under a new one."""
    hook = hook_with_repository(kind="github")
    answers = [github(hook, labelled(), delivery=name) for name in ("a", "a", "b")]
    assert [each.status_code for each in answers] == [201, 201, 201]
    assert len({each.content for each in answers}) == 1
    assert Change.objects.count() == 1


def test_a_hostile_issue_is_plain_text() -> None:
    hook = hook_with_repository(kind="github")
    body = "a\u202eb\u0000c\r\n- [ ] \u200bhidden\x1b[31m" + "\n- [ ] more" * 500
    answer = github(hook, labelled(title="t\u0000\u202e" + "x" * 5_000, body=body))
    assert answer.status_code == 201, answer.content
    change = Change.objects.get()
    assert len(change.title) <= 200
    assert "⟨U+202E⟩" in change.goal
    assert change.criteria.count() == 50
    assert "\u200b" not in change.criteria.get(position=1).text


def test_old_lines_of_the_log_are_forgotten() -> None:
    hook = hook_with_repository()
    send(hook)
    assert forget_old(timezone.now()) == 0
    assert forget_old(timezone.now() + timedelta(days=31)) == 1
    github(hook_with_repository(kind="github"), labelled())
    assert forget_old(timezone.now() + timedelta(days=31)) == 0, (
        "it bears no time: it must never happen again"
    )


@pytest.mark.django_db(transaction=True)
def test_two_at_once_do_it_once_and_are_answered_the_same() -> None:
    organization = make_organization()
    hook = hook_with_repository(project=make_project(organization))

    def one(_: int) -> tuple[int, bytes]:
        answer = send(hook)
        connections.close_all()
        return answer.status_code, answer.content

    answers = in_threads(6, one)
    assert len(set(answers)) == 1, answers
    assert answers[0][0] == 201
    assert Change.objects.count() == 1
    assert IncomingDelivery.objects.filter(accepted=True).count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_plan_of_an_issue_without_criteria_waits_though_its_project_asks_for_no_approval() -> None:
    project = make_project()
    make_repository(project)
    make_script(project.organization, says("planner", plan_data({"id": "T1"})))
    assert not project.plan_needs_approval
    assert github(make_hook(project, kind="github"), labelled(body="Please.")).status_code == 201
    change = Change.objects.get()
    work_on(change.pk)
    change.refresh_from_db()
    assert change.state == ChangeState.AWAITING_APPROVAL
    assert not change.tasks.exists()
