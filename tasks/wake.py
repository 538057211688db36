"""A wake: an id on a queue, after commit. It may be lost, doubled or late; the rows decide."""

from __future__ import annotations

import logging
from functools import partial
from uuid import UUID

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

WAKE_TASK = "tasks.wake"
WAKE_CHANGE = "tasks.work_on_change"
WAKE_PREFLIGHT = "tasks.run_preflight"
WAKE_IMPORT = "tasks.run_import"
WAKE_QUESTION = "tasks.ask_helper"

log = logging.getLogger(__name__)


def wake_task(task_id: UUID) -> None:
    """Nudge the workers to start a Task that is due. A lost nudge costs one beat (row 13)."""
    transaction.on_commit(partial(_send, WAKE_TASK, task_id))


def wake_change(change_id: UUID) -> None:
    """Nudge the workers to plan or compose a Change that is due."""
    transaction.on_commit(partial(_send, WAKE_CHANGE, change_id))


def wake_preflight(preflight_id: UUID) -> None:
    """Nudge the workers to take a Preflight that waits."""
    transaction.on_commit(partial(_send, WAKE_PREFLIGHT, preflight_id))


def wake_import(import_id: UUID) -> None:
    """Nudge the workers to take an import that waits."""
    transaction.on_commit(partial(_send, WAKE_IMPORT, import_id))


def wake_question(question_id: UUID) -> None:
    """Nudge the workers to ask what a client wants to know of a helper."""
    transaction.on_commit(partial(_send, WAKE_QUESTION, question_id))


def _send(job: str, row_id: UUID) -> None:
    """A broker that is away must not undo what is already committed: the sweep finds the row."""
    try:
        current_app.send_task(job, args=[str(row_id)], ignore_result=True, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("wake lost, the next sweep finds it: %s %s (%s)", job, row_id, error)
