"""A plan that nobody touched is not an edited one, although browsers send lines with a carriage return."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from tasks.models import DecisionReceipt
from tasks.states import ChangeState
from tenants.models import Role
from tests.factories.tasks import make_change, make_criterion
from tests.factories.tenants import make_member
from tests.tasks.doors.scene import PLAN

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("found", "reason"), [("billing", "approved"), ("general", "approved_edited")])
def test_an_untouched_plan_is_approved_as_it_stands(client: Client, found: str, reason: str) -> None:
    change = make_change(state=ChangeState.AWAITING_APPROVAL, plan=PLAN)
    make_criterion(change)
    client.force_login(make_member(change.organization, Role.ADMIN))
    change.refresh_from_db()  # a page shows the database's own order of keys
    shown = json.dumps(change.plan, indent=2, ensure_ascii=False)
    sent = shown.replace('"billing"', f'"{found}"').replace("\n", "\r\n")
    assert client.post(f"/changes/{change.pk}/plan", {"plan": sent}).status_code == 302
    assert DecisionReceipt.objects.get(change=change, kind="plan").reasons == [reason]
