"""Celery's entries of webhooks. Each is safe to run twice, late or not at all."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from webhooks import deliveries, incoming
from webhooks.delivering import deliver_due
from webhooks.wake import DELIVER_JOB


@shared_task(name=DELIVER_JOB, acks_late=True, ignore_result=True)
def deliver() -> None:
    """Every few seconds, and after each event that somebody wants to hear of: send what is due."""
    deliver_due()


@shared_task(name="webhooks.forget_old", acks_late=True, ignore_result=True)
def forget_old() -> None:
    """Every night: what ended long ago is deleted."""
    now = timezone.now()
    while deliveries.forget_old(now):
        pass
    incoming.forget_old(now)
