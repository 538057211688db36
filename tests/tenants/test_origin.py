"""Each request has an id, which the client, the logs and the audit list share."""

from __future__ import annotations

import pytest

from tenants.models import AuditEntry
from tests.tenants.conftest import House, api, browser


def test_a_sane_id_of_a_proxy_is_kept_and_told_back(house: House) -> None:
    answer = api(house.owner).get("/api/v1/projects", HTTP_X_REQUEST_ID="abc-12345.6")
    assert answer.headers["X-Request-ID"] == "abc-12345.6"


@pytest.mark.parametrize("sent", ["", "short", "x" * 65, "with space 123", "a\tb-1234567", "<script>alert"])
def test_an_odd_id_is_replaced(house: House, sent: str) -> None:
    answer = api(house.owner).get("/api/v1/projects", HTTP_X_REQUEST_ID=sent)
    assert answer.headers["X-Request-ID"] != sent
    assert len(answer.headers["X-Request-ID"]) == 32


def test_the_audit_list_says_from_where(house: House) -> None:
    client = api(house.owner)
    client.patch(
        f"/api/v1/organizations/{house.organization.pk}",
        {"name": "Other"},
        HTTP_X_REQUEST_ID="request-of-ana",
        REMOTE_ADDR="192.0.2.7",
    )
    entry = AuditEntry.objects.get()
    assert (entry.request_id, entry.remote) == ("request-of-ana", "192.0.2.7")
    page = browser(house.admin).get(f"/organizations/{house.organization.pk}/audit")
    assert b"192.0.2.7" in page.content


def test_a_client_cannot_name_its_own_address(house: House) -> None:
    api(house.owner).patch(
        f"/api/v1/organizations/{house.organization.pk}",
        {"name": "Other"},
        HTTP_X_FORWARDED_FOR="203.0.113.9",
        REMOTE_ADDR="192.0.2.7",
    )
    assert AuditEntry.objects.get().remote == "192.0.2.7"
