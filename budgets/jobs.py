"""What the books need by the clock. Each job may run twice, and anywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from celery import shared_task
from django.utils import timezone

from budgets.audit import audit_ledger
from budgets.limits import return_expired, set_clocks
from budgets.meters import follow_defaults
from budgets.model_tasks import abandon_old
from budgets.reservations import reap, thresholds
from budgets.thresholds import note_missed_crossings
from tenants.apart import apart


def _note_missed_crossings(now: datetime) -> None:
    note_missed_crossings(now, thresholds())


SWEEP: tuple[Callable[[datetime], object], ...] = (
    reap,
    abandon_old,
    return_expired,
    set_clocks,
    follow_defaults,
    _note_missed_crossings,
)


@shared_task(name="budgets.reap", acks_late=True, ignore_result=True)
def sweep() -> None:
    """Lapsed holds become unknown; expired raises return; changed settings hold; missed thresholds are written.

    Raises that end before the next sweeps get a job for that moment.
    One broken step keeps none of the others from its work.
    """
    now = timezone.now()
    for step in SWEEP:
        with apart(step.__name__):
            step(now)


@shared_task(name="budgets.return_limits", acks_late=True, ignore_result=True)
def return_limits() -> None:
    """It is the end of a limit for a time."""
    return_expired(timezone.now())


@shared_task(name="budgets.audit", acks_late=True, ignore_result=True)
def audit() -> None:
    """Add up the books, and keep the verdict for the readiness probe."""
    audit_ledger(timezone.now())
