"""Celery's entries of tenants."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from tenants.idempotency import forget_old


@shared_task(name="tenants.forget_old_requests", ignore_result=True)
def forget_old_requests() -> None:
    forget_old(now=timezone.now())
