"""Celery's entries: ids in, one service, nothing returned. Each is safe to run twice, late or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from celery import shared_task
from django.utils import timezone

from tasks.attempts.run import run_task
from tasks.attempts.watch import end_dead_runs, refresh_late_costs
from tasks.attempts.watch import watch_runs as watch_all_runs
from tasks.dispatch import free_abandoned_starts, wake_lost
from tasks.fence import due_changes, free_dead_work
from tasks.helper_questions import ask_question, wake_due_questions
from tasks.imports import end_forgotten_imports, run_import, wake_due_imports
from tasks.pauses import end_forsaken_pauses
from tasks.preflights import run_preflight, wake_due_preflights
from tasks.promotion import index_trunks_behind
from tasks.thresholds import tell_thresholds
from tasks.unknowns import tell_unknown_charges
from tasks.uploads import clear_abandoned_uploads
from tasks.wake import WAKE_CHANGE, WAKE_IMPORT, WAKE_PREFLIGHT, WAKE_QUESTION, WAKE_TASK, wake_change
from tasks.windows import resume_stops
from tasks.work import work_on
from tenants.apart import apart

CHANGES_PER_SWEEP_MAX = 500


@shared_task(name=WAKE_TASK, acks_late=True, ignore_result=True)
def wake(task_id: str) -> None:
    """A Task may be due: take it and work on it (row 13)."""
    run_task(UUID(task_id))


@shared_task(name=WAKE_CHANGE, acks_late=True, ignore_result=True)
def work_on_change(change_id: str) -> None:
    """A Change may be due for planning, integrating or composing."""
    work_on(UUID(change_id))


@shared_task(name=WAKE_PREFLIGHT, acks_late=True, ignore_result=True)
def run_one_preflight(preflight_id: str) -> None:
    """A Preflight may be due: open a checkout, install, run the checks."""
    run_preflight(UUID(preflight_id))


@shared_task(name=WAKE_IMPORT, acks_late=True, ignore_result=True)
def run_one_import(import_id: str) -> None:
    """An import may be due: fetch a repository, and make it the project's."""
    run_import(UUID(import_id))


@shared_task(name=WAKE_QUESTION, acks_late=True, ignore_result=True)
def ask_helper(question_id: str) -> None:
    """A client's question may be due: ask it, or end it when its worker died over it."""
    ask_question(UUID(question_id))


@shared_task(name="tasks.watch_runs", acks_late=True, ignore_result=True)
def watch_runs() -> None:
    """Every minute: the checks of the active runs (rows 9, 10)."""
    now = timezone.now()
    for step in (watch_all_runs, refresh_late_costs):
        with apart(step.__name__):
            step(now)


@shared_task(name="tasks.sweep", acks_late=True, ignore_result=True)
def sweep() -> None:
    """Every few seconds: whatever a lost wake, a dead worker or a new period left lying.

    One broken row (a repository that is gone, say) must not keep all tenants from their next wake.
    """
    now = timezone.now()
    for step in SWEEP:
        with apart(step.__name__):
            step(now)


def wake_due_changes(now: datetime) -> int:
    """The sweep's share of a Change's own work. How many were woken."""
    due = list(due_changes(now).values_list("pk", flat=True)[:CHANGES_PER_SWEEP_MAX])
    for change_id in due:
        wake_change(change_id)
    return len(due)


SWEEP: tuple[Callable[[datetime], object], ...] = (
    end_dead_runs,
    free_abandoned_starts,
    end_forsaken_pauses,
    free_dead_work,
    resume_stops,
    tell_thresholds,
    tell_unknown_charges,
    wake_lost,
    wake_due_changes,
    wake_due_preflights,
    wake_due_imports,
    end_forgotten_imports,
    wake_due_questions,
    clear_abandoned_uploads,
    index_trunks_behind,
)
