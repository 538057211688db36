"""What must never be, the database refuses (rows 1, 26; examples.md 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from routing.words import EndReason
from tasks.models import Change, DecisionReceipt, Event, Reopening, Task, TaskRun
from tasks.states import RunState, TaskState
from tests.factories.tasks import (
    NOW,
    make_change,
    make_dependency,
    make_event,
    make_receipt,
    make_run,
    make_stopped_task,
    make_task,
)
from tests.factories.tenants import make_member, make_organization

pytestmark = pytest.mark.django_db

REFUSED: dict[str, Callable[[], Any]] = {
    "run_one_active_per_task": lambda: make_run(make_run().task),
    "run_attempt_once": lambda: make_run(
        make_run().task, attempt=1, state="succeeded", end_reason="completed"
    ),
    "run_attempt_counts_from_one": lambda: make_run(attempt=0),
    "run_ended_says_when_and_how": lambda: make_run(state=RunState.SUCCEEDED),
    "run_failed_names_its_class": lambda: make_run(state=RunState.FAILED, end_reason=EndReason.TIMEOUT),
    "task_blocked_says_by_what": lambda: make_task(state=TaskState.BLOCKED),
    "task_stop_only_while_blocked": lambda: make_task(stop_limit="change_budget"),
    "task_is_started_only_when_ready": lambda: make_task(state=TaskState.RUNNING, owner="somebody"),
    "task_state_is_a_known_one": lambda: make_task(state="odd"),
    "dependency_not_on_itself": lambda: (lambda task: make_dependency(task, task))(make_task()),
    "change_blocked_names_its_limit": lambda: make_change(state="budget_blocked"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_database_refuses(name: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        REFUSED[name]()


def test_a_change_of_another_organizations_project_is_refused() -> None:
    """Row 1: cross-tenant foreign keys."""
    stranger = make_organization()
    with pytest.raises(DatabaseError), transaction.atomic():
        make_change(organization=stranger, author=make_member(stranger))
    change = make_change()
    with pytest.raises(DatabaseError), transaction.atomic():
        Change.objects.filter(pk=change.pk).update(organization=stranger)


def test_receipts_events_and_reopenings_are_append_only() -> None:
    receipt, event = make_receipt(), make_event()
    task = make_stopped_task()
    by = make_member(task.change.organization)
    reopening = Reopening.objects.create(task=task, key="k", by=by, stop_limit="change_budget", at=NOW)
    for model, row, change in (
        (DecisionReceipt, receipt, {"decision": "opus"}),
        (Event, event, {"kind": "odd"}),
        (Reopening, reopening, {"reason": "another"}),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            model.objects.filter(pk=row.pk).update(**change)
    Reopening.objects.filter(pk=reopening.pk).update(by=None)  # the person was deleted


def test_the_rows_of_a_change_go_with_it() -> None:
    run = make_run()
    make_receipt(run.task.change, task=run.task, run=run)
    make_event(run.task.change, task=run.task, run=run)
    run.task.change.delete()
    assert not Task.objects.exists()
    assert not TaskRun.objects.exists()
    assert not DecisionReceipt.objects.exists()
