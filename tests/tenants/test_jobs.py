"""The hourly job: it may run twice, and it leaves what still counts."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from tenants.idempotency import KEPT_HOURS
from tenants.jobs import forget_old_requests
from tenants.models import IdempotencyRecord
from tests.factories.tenants import make_user


def test_old_idempotency_records_go_and_young_ones_stay(db: None) -> None:
    user = make_user()
    for key in ("old", "young"):
        IdempotencyRecord.objects.create(user=user, key=key, fingerprint="f")
    too_old = timezone.now() - timedelta(hours=KEPT_HOURS, minutes=1)
    IdempotencyRecord.objects.filter(key="old").update(created_at=too_old)
    forget_old_requests()
    forget_old_requests()
    assert [record.key for record in IdempotencyRecord.objects.all()] == ["young"]
