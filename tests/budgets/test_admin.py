"""The money in the admin: to read, and one act through the ledger's own service."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from budgets.apps import BudgetsConfig
from budgets.models import Meter, Reservation
from budgets.money import Usd
from budgets.reservations import keep
from tenants.models import AuditEntry
from tests.factories.budgets import limit, make_hold, make_payers
from tests.factories.tenants import make_user

pytestmark = pytest.mark.django_db

MODELS = [model for model in admin.site._registry if model._meta.app_label == BudgetsConfig.name]


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_list_opens_and_nothing_can_be_edited(operator: Client, model: type) -> None:
    meters = make_payers()
    limit(meters[0], Usd(1))
    name = f"admin:budgets_{model._meta.model_name}"  # type: ignore[attr-defined]
    assert operator.get(reverse(f"{name}_changelist")).status_code == 200
    assert operator.get(reverse(f"{name}_add")).status_code == 403


def test_a_row_is_shown_with_its_entries_and_cannot_be_saved(operator: Client) -> None:
    held = make_hold()
    page = reverse("admin:budgets_reservation_change", args=[held.reservation_id])
    shown = operator.get(page)
    assert shown.status_code == 200
    assert b"hold" in shown.content
    assert operator.post(page, {"state": "refunded"}).status_code == 403
    assert operator.post(page.replace("/change/", "/delete/"), {"post": "yes"}).status_code == 403


def test_an_unknown_charge_is_released_with_a_reason(operator: Client) -> None:
    meters = make_payers()
    unknown, held = make_hold(meters), make_hold(meters, 1_000)
    keep(unknown.reservation_id, reason="timeout")
    page = reverse("admin:budgets_reservation_changelist")
    chosen = {"action": "release", "_selected_action": [unknown.reservation_id, held.reservation_id]}
    asked = operator.post(page, chosen)
    assert b"may have been billed" in asked.content
    assert Reservation.objects.get(pk=unknown.reservation_id).state == "unknown"
    nothing = operator.post(page, {**chosen, "release": "Release", "reason": " "})
    assert nothing.status_code == 200
    assert Reservation.objects.get(pk=unknown.reservation_id).state == "unknown"
    operator.post(page, {**chosen, "release": "Release", "reason": "not on the invoice"})
    assert Reservation.objects.get(pk=unknown.reservation_id).state == "refunded"
    assert Reservation.objects.get(pk=held.reservation_id).state == "held"
    assert Meter.objects.get(kind="change").spent_usd == Usd(0)
    assert AuditEntry.objects.get(action="charge.released").reason == "not on the invoice"
