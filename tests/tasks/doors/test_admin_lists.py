"""The admin's lists and acts, over every model: bounded queries, nothing by hand, nothing without the right."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agents.models import Reconciliation, WorkerHost
from budgets.models import Invocation, LedgerVerdict, LimitChange, Meter, ModelTask, ThresholdCrossing
from budgets.money import Usd
from tasks.admin import ROWS_AT_ONCE_MAX
from tasks.models import Change, Check, Reopening
from tasks.states import ChangeState
from tenants.audit import note
from tenants.models import AuditEntry, IdempotencyRecord, User
from tests.factories.agents import (
    make_approval,
    make_indexed_file,
    make_model_call,
    make_tool_call,
    make_tree_index,
)
from tests.factories.budgets import limit, make_hold, make_payers
from tests.factories.providers import make_connector
from tests.factories.tasks import (
    make_allowance,
    make_candidate,
    make_change,
    make_changeset,
    make_claim,
    make_criterion,
    make_event,
    make_import,
    make_preflight,
    make_question,
    make_receipt,
    make_run,
    make_task,
    make_trunk,
)
from tests.factories.tenants import (
    make_invitation,
    make_member,
    make_organization,
    make_project,
    make_token,
    make_user,
)
from tests.factories.webhooks import make_attempt, make_hook, make_received

SECRET = "JBSWY3DPEHPK3PXP"
pytestmark = pytest.mark.django_db

# Every model that the admin shows, ours or a package's; Django's own groups and log are not our screens.
SCREENS = sorted(
    (model for model in admin.site._registry if model._meta.app_label not in ("auth", "admin")),
    key=lambda model: model._meta.label,
)
# Accounts are the deployment's own, and the only rows that an operator writes by hand.
WRITTEN_BY_HAND = {"tenants.User"}
FEW, MANY = 3, 30


def make_one_of_each() -> None:
    """Each call: an organization, a project, a Change and so on of their own, so that no row shares its relations."""
    now = timezone.now()
    project = make_project()
    organization = project.organization
    change = make_change(project)
    task = make_task(change)
    make_task(change, needs=(task,))
    run = make_run(task)
    criterion = make_criterion(change)
    candidate = make_candidate(change)
    Check.objects.create(
        candidate=candidate, criterion=criterion, commit="a", verdict="passed", started_at=now, ended_at=now
    )
    make_changeset(task, run=run)
    make_claim(run)
    make_event(change, task=task)
    make_receipt(change, task=task, run=run)
    make_trunk(project)
    make_preflight(project, by=change.author)
    make_import(project, by=change.author, sealed_password=SECRET)
    Reopening.objects.create(task=task, key="k", by=change.author, stop_limit="replan", at=now)
    payers = make_payers(organization, project_id=project.pk, user_id=change.author_id, change_id=change.pk)
    make_hold(payers)
    make_model_call(
        run_id=run.pk, organization_id=organization.pk, project_id=project.pk, key=f"call of {run.pk}"
    )
    make_tool_call(run_id=run.pk, organization_id=organization.pk, position=1, model_call=1)
    make_indexed_file(make_tree_index(project))
    approval = make_approval(
        organization, project_id=project.pk, change_id=change.pk, task_id=task.pk, run_id=run.pk
    )
    Reconciliation.objects.create(
        organization=organization,
        approval=approval,
        took_effect=True,
        by=change.author,
        reason="seen",
        at=now,
    )
    limit(payers[1], Usd(5_000_000))
    meter = Meter.objects.filter(organization=organization).first()
    assert meter is not None
    ThresholdCrossing.objects.create(
        organization=organization, meter=meter, unit="usd", percent=50, limit=2, spent=1, at=now
    )
    metered = ModelTask.objects.create(organization=organization, created_at=now)
    Invocation.objects.create(
        task=metered, key="1", logical="1", purpose="agent", phase="generation", state="admitted",
        held_calls=1, held_tokens=1, charged_tokens=1, started_at=now,
    )  # fmt: skip
    make_question(make_allowance(project, by=change.author), by=change.author)
    LedgerVerdict.objects.get_or_create(defaults={"at": now})
    WorkerHost.objects.create(worker=f"w@{run.pk}", host="h", tier="A", probed_at=now)
    make_connector(organization)
    make_invitation(organization, invited_by=change.author)
    make_token(change.author, organization)
    note(organization, change.author, "project.changed", "project x")
    IdempotencyRecord.objects.create(user=change.author, key="k", fingerprint="f" * 64)
    EmailAddress.objects.create(user=change.author, email=change.author.email, primary=True)
    Authenticator.objects.create(user=change.author, type="totp", data={"secret": SECRET})
    hook = make_hook(project, author=change.author)
    make_received(hook)
    make_attempt()


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


def address(model: type[Model], page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def queries(client: Client, path: str) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as seen:
        answer = client.get(path)
    assert answer.status_code == 200, path
    return [each["sql"] for each in seen.captured_queries]


def test_no_list_asks_more_for_more_rows(operator: Client) -> None:
    """Issue: no N+1, in the list and in the filters beside it."""
    for _ in range(FEW):
        make_one_of_each()
    few = {model: queries(operator, address(model, "changelist")) for model in SCREENS}
    assert [model._meta.label for model in SCREENS if not model._default_manager.exists()] == []
    for _ in range(MANY - FEW):
        make_one_of_each()
    grown = {}
    for model in SCREENS:
        many = queries(operator, address(model, "changelist"))
        if len(many) > len(few[model]):
            grown[model._meta.label] = (len(few[model]), len(many), many[-1][:300])
    assert grown == {}


def test_nothing_is_made_changed_or_deleted_by_a_hand_made_request(operator: Client) -> None:
    make_one_of_each()
    done = []
    for model in SCREENS:
        if model._meta.label in WRITTEN_BY_HAND:
            continue
        row = model._default_manager.first()
        assert row is not None
        body = {field.name: "1" for field in model._meta.fields} | {"_save": "Save", "post": "yes"}
        before = list(model._default_manager.order_by("pk").values())
        pages = [("add", ()), ("change", (row.pk,)), ("delete", (row.pk,))]
        for page, args in pages[: 2 if model is Authenticator else 3]:
            answer = operator.post(address(model, page, *args), body)
            if answer.status_code != 403:
                done.append(f"{model._meta.label} {page}: {answer.status_code}")
        chosen = {"_selected_action": [row.pk], "action": "delete_selected", "post": "yes"}
        if model is not Authenticator:
            operator.post(address(model, "changelist"), chosen)
        if list(model._default_manager.order_by("pk").values()) != before:
            done.append(f"{model._meta.label}: not as before")
    assert done == []


def test_no_screen_shows_a_secret(operator: Client) -> None:
    make_one_of_each()
    for model in SCREENS:
        row = model._default_manager.first()
        assert row is not None
        for path in (address(model, "changelist"), address(model, "change", row.pk)):
            assert SECRET not in operator.get(path).content.decode(), path


def test_who_may_only_look_has_no_act(client: Client) -> None:
    """A member of the staff with every `view` permission and no other."""
    make_one_of_each()
    staff = make_user(is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(staff)
    offered = {}
    for model in SCREENS:
        page = client.get(address(model, "changelist"))
        assert page.status_code == 200, model
        form = page.context["action_form"] if page.context else None
        names = [name for name, _ in form.fields["action"].choices if name] if form else []
        if names:
            offered[model._meta.label] = names
    assert offered == {}


def test_a_right_to_change_people_is_no_right_to_be_an_operator(client: Client) -> None:
    staff, chief = (
        make_user(is_staff=True),
        make_user(is_staff=True, is_superuser=True, password="chief's own password"),
    )
    staff.user_permissions.set(
        Permission.objects.filter(codename__in=["view_user", "change_user", "add_user"])
    )
    client.force_login(staff)
    body = {
        "email": staff.email, "first_name": "Me", "last_name": "",
        "is_active": "on", "is_staff": "on", "is_superuser": "on",
        "user_permissions": [str(each) for each in Permission.objects.values_list("pk", flat=True)],
        "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip
    client.post(address(User, "change", staff.pk), body)
    staff.refresh_from_db()
    assert (staff.is_superuser, staff.user_permissions.count()) == (False, 3)
    client.post(address(User, "change", chief.pk), body | {"email": "mine@example.org"})
    client.post(
        f"/admin/tenants/user/{chief.pk}/password/",
        {"password1": "a new password!", "password2": "a new password!"},
    )
    before = chief.password
    chief.refresh_from_db()
    assert (chief.email != "mine@example.org", chief.password) == (True, before)


@pytest.mark.parametrize("many", [False, True])
def test_a_lost_second_factor_is_removed_and_the_organization_sees_it(operator: Client, many: bool) -> None:
    person = make_member(make_organization())
    factor = Authenticator.objects.create(user=person, type="totp", data={"secret": SECRET})
    chosen = {"_selected_action": [factor.pk], "action": "delete_selected", "post": "yes"}
    path = address(Authenticator, "changelist") if many else address(Authenticator, "delete", factor.pk)
    operator.post(path, chosen if many else {"post": "yes"})
    assert not Authenticator.objects.exists()
    entry = AuditEntry.objects.get(action="member.second_factor_removed")
    assert (entry.subject, entry.before) == (person.email, {"kind": "totp"})


def test_who_may_remove_factors_removes_none_of_an_operator(client: Client) -> None:
    staff, chief = make_user(is_staff=True), make_user(is_staff=True, is_superuser=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="mfa"))
    client.force_login(staff)
    factor = Authenticator.objects.create(user=chief, type="totp", data={"secret": SECRET})
    chosen = {"_selected_action": [factor.pk], "action": "delete_selected", "post": "yes"}
    client.post(address(Authenticator, "changelist"), chosen)
    client.post(address(Authenticator, "delete", factor.pk), {"post": "yes"})
    assert Authenticator.objects.exists()


@pytest.mark.parametrize(
    ("act", "more"),
    [
        ("cancel", {"key": "k", "reason": ""}),
        ("raise_limit", {"meter": "change", "to": "4", "reason": "r", "key": "k"}),
    ],
)
def test_more_rows_than_an_act_takes_are_refused_as_a_whole(
    operator: Client, act: str, more: dict[str, str]
) -> None:
    project = make_project()
    changes = [make_change(project) for _ in range(ROWS_AT_ONCE_MAX + 1)]
    body = {"action": act, "_selected_action": [each.pk for each in changes], **more}
    answer = operator.post(address(Change, "changelist"), {**body, act.partition("_")[0]: "x"}, follow=True)
    assert f"Choose at most {ROWS_AT_ONCE_MAX} rows" in answer.content.decode()
    assert set(Change.objects.values_list("state", flat=True)) == {ChangeState.RUNNING}
    assert not LimitChange.objects.exists()


def test_the_reason_of_an_operators_cancel_is_in_the_audit_list(operator: Client) -> None:
    change = make_change()
    body = {
        "action": "cancel",
        "_selected_action": [change.pk],
        "key": "k",
        "reason": "a duplicate",
        "cancel": "x",
    }
    operator.post(address(Change, "changelist"), body)
    assert AuditEntry.objects.get(action="change.cancelled").reason == "a duplicate"


HUGE = "9" * 26


@pytest.mark.parametrize("model", [*SCREENS, Group], ids=lambda model: model._meta.label)
def test_a_filter_that_no_row_can_match_is_no_fault_of_the_server(
    admin_client: Client, model: type[Model]
) -> None:
    """An address is typed, shared and cut: each list answers, whatever stands behind its question mark."""
    where = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    day = admin.site._registry[model].date_hierarchy
    asked = [
        f"{model._meta.pk.name}__in={value}" for value in (HUGE, f"1,-{HUGE}", "9" * 200, "9" * 5000, "x", "")
    ]
    asked += [f"{day}__year={year}" for year in ("0", "-1", "10000", HUGE, "x", "2026")] if day else []
    asked += [f"{day}__year=2026&{day}__month={month}" for month in ("0", "13", HUGE)] if day else []
    asked += ["p=" + HUGE, "o=" + HUGE, "q=%F0%9F%92%A9", "id__exact=x", "zzz=1"]
    for query in asked:
        answer = admin_client.get(f"{where}?{query}")
        assert answer.status_code in (200, 302, 400), query
    assert admin_client.get(f"{where}?q={HUGE}").status_code == 200
