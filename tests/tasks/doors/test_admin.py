"""The admin: everything can be read, nothing edited, and the acts call the same services as the pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from budgets.money import Usd
from tasks.models import Change, Task
from tasks.states import ChangeState, TaskState
from tenants.models import AuditEntry, User
from tests.factories.tasks import make_change, make_run, make_stopped_task, make_task
from tests.factories.tenants import make_user
from tests.tasks.money import give_budget

pytestmark = pytest.mark.django_db

OURS = ("tasks", "agents", "budgets", "providers", "tenants")


@pytest.fixture
def operator() -> User:
    return make_user(is_staff=True, is_superuser=True)


@pytest.fixture
def client(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def test_every_model_has_its_screen() -> None:
    """Issue: all models, money and logs read-only."""
    missing = [
        model._meta.label
        for label in OURS
        for model in apps.get_app_config(label).get_models()
        if not admin.site.is_registered(model)
    ]
    assert missing == []


@pytest.mark.parametrize("label", ["tasks", "budgets", "agents"])
def test_nothing_of_the_domain_the_ledger_or_the_logs_is_edited_by_hand(label: str, client: Client) -> None:
    for model in apps.get_app_config(label).get_models():
        screen = admin.site._registry[model]
        request = client.get("/admin/").wsgi_request
        assert not screen.has_add_permission(request), model
        assert not screen.has_change_permission(request), model
        assert not screen.has_delete_permission(request), model


def test_every_list_opens(client: Client) -> None:
    make_run(make_task(make_change()))
    for label in OURS:
        for model in apps.get_app_config(label).get_models():
            path = reverse(f"admin:{label}_{model._meta.model_name}_changelist")
            assert client.get(path + "?q=x").status_code == 200, path


def test_an_operator_raises_a_budget_after_a_preview(client: Client, operator: User) -> None:
    change = make_change(state=ChangeState.BUDGET_BLOCKED, stop_limit="change_budget")
    task = make_stopped_task(change)
    give_budget(change, Usd.dollars("1"))
    path = reverse("admin:tasks_change_changelist")
    body: dict[str, Any] = {"action": "raise_limit", "_selected_action": [change.pk]}
    form = client.post(path, body)
    assert "New limit" in form.content.decode()
    fields = {
        "meter": "change",
        "to": "4",
        "reason": "asked by phone",
        "key": form.context["form"].initial["key"],
    }
    preview = client.post(path, {**body, **fields, "preview": "x"})
    assert f"reopens {task.key}" in preview.content.decode()
    assert Task.objects.get(pk=task.pk).state == TaskState.BLOCKED
    client.post(path, {**body, **fields, "raise": "x"})
    assert Task.objects.get(pk=task.pk).state == TaskState.READY
    assert AuditEntry.objects.filter(organization=change.organization, actor=operator).exists()


def test_an_operator_reopens_a_window(client: Client) -> None:
    change = make_change(state=ChangeState.BUDGET_BLOCKED, stop_limit="max_attempts_per_tier")
    task = make_stopped_task(change, "max_attempts_per_tier")
    path = reverse("admin:tasks_task_changelist")
    body = {"action": "reopen", "_selected_action": [task.pk]}
    assert "Reason" in client.post(path, body).content.decode()
    client.post(path, {**body, "key": "k", "reason": "by hand", "reopen": "x"})
    assert Task.objects.get(pk=task.pk).attempts_reset_at is not None


def test_staff_without_the_permission_acts_on_nothing() -> None:
    change = make_change()
    staff = Client()
    staff.force_login(make_user(is_staff=True))
    staff.post(
        reverse("admin:tasks_change_changelist"),
        {"action": "cancel", "_selected_action": [change.pk], "key": "k", "reason": "", "cancel": "x"},
    )
    assert Change.objects.get(pk=change.pk).state == ChangeState.RUNNING
