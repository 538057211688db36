"""The operators' screens: they open, they show no secret, and nothing is edited there."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse

from tenants.models import User
from tests.factories.tenants import make_invitation, make_token
from tests.tenants.conftest import House, browser

MODELS = [model for model in admin.site._registry if model._meta.app_label == "tenants"]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_lists_and_rows_open_and_hide_digests(house: House, model: type[User]) -> None:
    operator = User.objects.create_superuser("operator@example.org", "operators password")
    make_token(house.owner, house.organization)
    make_invitation(house.organization, invited_by=house.owner)
    client, name = browser(operator), f"admin:tenants_{model._meta.model_name}"
    client.patch(f"/api/v1/organizations/{house.organization.pk}", {"name": "x"})
    assert client.get(reverse(f"{name}_changelist") + "?q=example").status_code == 200
    row = model._default_manager.first()
    if row is not None:
        page = client.get(reverse(f"{name}_change", args=[row.pk]))
        assert page.status_code == 200
        assert getattr(row, "digest", "no digest").encode() not in page.content
        if model is not User:
            assert b'name="_save"' not in page.content


def test_an_owner_is_no_operator(house: House) -> None:
    assert browser(house.owner).get("/admin/").status_code == 302
