"""What this floor needs by the clock. It may run twice."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from tenants.idempotency import forget_old


@shared_task(name="tenants.forget_old_requests", acks_late=True, ignore_result=True)
def forget_old_requests() -> None:
    """Idempotency records that no client may count on any more."""
    forget_old(now=timezone.now())
