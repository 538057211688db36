"""Which due Tasks start now: lock the Change, admit, hand out."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.related import NEVER_SENT
from agents.spec import CALL_SECONDS_MAX
from budgets.errors import ClosedDifferently
from budgets.models import Reservation, ReservationState
from budgets.reservations import keep, refund
from tasks.admission import BLOCKED_LIMIT, PAUSED, WAITS_FOR_HELD_MONEY, AdmissionFacts, Admit, Wait, admit
from tasks.events import record
from tasks.models import Change, Task, TaskRun
from tasks.owners import is_surely_dead
from tasks.states import WORKING_CHANGES, ChangeState, TaskState
from tasks.transitions import locked_change
from tasks.wake import wake_change, wake_task
from tenants.caps import caps_of

# How long a worker may take from taking a Task to its first run row: a classifier's and a
# compactor's question at most. Whoever dies in between is found by its process or by this lease.
START_LEASE_SECONDS = 2 * CALL_SECONDS_MAX + 60
# A wake that was sent is not sent again for this long: a busy worker's queue must not fill with copies.
WAKE_AGAIN_SECONDS = 60
WAKES_PER_SWEEP_MAX = 500

# Tasks of a Change that stopped at a limit go on where their own meters have room: each asks for itself.
STARTING_STATES = (ChangeState.RUNNING, ChangeState.BUDGET_BLOCKED)
# Holds end at any moment and mostly wake who waits; this is how long the others wait before they ask again.
HELD_WAIT_SECONDS = 10


def due_tasks(now: datetime) -> QuerySet[Task]:
    """Ready Tasks whose time has come and that nobody is starting, oldest first."""
    due: QuerySet[Task] = Task.objects.filter(
        Q(not_before=None) | Q(not_before__lte=now),
        state=TaskState.READY,
        change__state__in=STARTING_STATES,
    ).order_by("change_id", "created_at", "position")
    return due


def take(task_id: UUID, *, owner: str, now: datetime) -> Task | None:
    """Whoever moves the row may start it. A second, late or early wake takes nothing (rows 13, 16)."""
    with transaction.atomic():
        change_id = Task.objects.filter(pk=task_id).values_list("change_id", flat=True).first()
        if change_id is None:
            return None
        change = locked_change(change_id)
        due = list(due_tasks(now).filter(change=change))
        task = next((task for task in due if task.pk == task_id), None)
        if task is None:
            return None
        older = due[: due.index(task)]
        match admit(_facts(change, older, now=now)):
            case Wait(note):
                _note_wait(task, change, note, now=now)
                _wake(older, now=now)
                return None
            case Admit():
                return _hand_out(task, change, owner=owner, now=now)


def wake_next(change: Change, *, now: datetime) -> None:
    """A place in the Change is free: wake its oldest due Tasks, one for each free place (row 16)."""
    free = _free(change, now)
    if free > 0 and change.paused_at is None:
        _wake(due_tasks(now).filter(change=change)[:free], now=now)


def wake_lost(now: datetime) -> int:
    """The beat's share of row 13: wake every due Task that may start and was not woken lately. How many."""
    stale = now - timedelta(seconds=WAKE_AGAIN_SECONDS)
    # A nudge from before it was due does not count: it took nothing.
    unwoken = Q(woken_at=None) | Q(woken_at__lte=stale) | Q(woken_at__lt=F("not_before"))
    lost = due_tasks(now).filter(unwoken, change__paused_at=None)
    free: dict[UUID, int] = {}
    chosen: list[Task] = []
    for task in lost.select_related("change__project")[:WAKES_PER_SWEEP_MAX]:
        if task.change_id not in free:
            free[task.change_id] = _free(task.change, now)
        if free[task.change_id] > 0:
            free[task.change_id] -= 1
            chosen.append(task)
    _wake(chosen, now=now)
    return len(chosen)


def wake_waiting_for_money(organization_id: UUID, *, besides: Task | None = None, now: datetime) -> None:
    """A hold ended: whoever waits for one in this organization may ask again at once, after the commit.

    Tasks, and Changes whose planning or composing waits. Only for holds that were there: who was refused wakes
    nobody, or two that wait would wake each other for ever. Not before the commit: their rows belong to other
    Changes, whose locks this transaction does not have. `besides` is the Task that has just begun to wait.
    """
    skipped = besides.pk if besides else None
    transaction.on_commit(partial(_wake_waiting, organization_id, skipped, now))


def give_back(task: Task, *, not_before: datetime, waiting_for: str, index_waits: int = 0) -> bool:
    """The starter could not start it yet: it is due again at that time. False when it was no longer the starter's."""
    mine = Task.objects.filter(pk=task.pk, state=TaskState.READY, owner=task.owner)
    return bool(
        mine.update(owner="", not_before=not_before, waiting_for=waiting_for, index_waits=index_waits)
    )


def free_abandoned_starts(now: datetime) -> int:
    """Tasks whose starter died before it had a run row are due again at once. How many."""
    starting = Task.objects.filter(state=TaskState.READY, not_before__gt=now).exclude(owner="")
    freed = 0
    for task in [task for task in starting.select_related("change") if is_surely_dead(task.owner)]:
        holds = list(_holds_of_a_start(task))  # before anybody else may start it
        if give_back(task, not_before=now, waiting_for=task.waiting_for, index_waits=task.index_waits):
            freed += 1
            _close_holds(holds)
            if holds:
                wake_waiting_for_money(task.change.organization_id, besides=task, now=now)
    return freed


def _holds_of_a_start(task: Task) -> QuerySet[Reservation]:
    """What the start asked for under the id of a run that never came to have a row."""
    known = TaskRun.objects.filter(task=task).values("pk")
    held = Reservation.objects.filter(task_id=task.pk, state=ReservationState.HELD, run_id__isnull=False)
    return held.exclude(run_id__in=known)


def _close_holds(holds: Iterable[Reservation]) -> None:
    """Nobody is left to say what became of a dead start's questions: unknown, but for what certainly stayed here."""
    for hold in holds:
        with suppress(ClosedDifferently):  # the reaper was faster
            if hold.model in NEVER_SENT:
                refund(hold.pk, reason="the worker died; this embedder sends nothing", actor="sweep")
            else:
                keep(hold.pk, reason="the worker process died during the start", actor="sweep")


def _facts(change: Change, older: list[Task], *, now: datetime) -> AdmissionFacts:
    return AdmissionFacts(
        active=_active(change, now),
        older_due=len(older),
        paused=change.paused_at is not None,
        agents_max=_agents_max(change),
    )


def _free(change: Change, now: datetime) -> int:
    return _agents_max(change) - _active(change, now)


def _agents_max(change: Change) -> int:
    """8 agents of a Change, or what the project's owner has set (row 16)."""
    return caps_of(change.project.caps)["agents"]


def _active(change: Change, now: datetime) -> int:
    starting = Q(state=TaskState.READY, not_before__gt=now) & ~Q(owner="")
    return Task.objects.filter(Q(state=TaskState.RUNNING) | starting, change=change).count()


def _hand_out(task: Task, change: Change, *, owner: str, now: datetime) -> Task:
    lease = now + timedelta(seconds=START_LEASE_SECONDS)
    # What it waited for before stays on the row until it runs: a start that waits again tells it once.
    note = "" if task.waiting_for in (BLOCKED_LIMIT, PAUSED) else task.waiting_for
    Task.objects.filter(pk=task.pk).update(owner=owner, not_before=lease, waiting_for=note)
    task.owner, task.not_before, task.waiting_for, task.change = owner, lease, note, change
    record("agent.wake", change=change, task=task, data={"agent": task.agent_id}, now=now)
    return task


def _note_wait(task: Task, change: Change, note: str, *, now: datetime) -> None:
    if task.waiting_for != note:
        Task.objects.filter(pk=task.pk).update(waiting_for=note)
        record("task.waits", change=change, task=task, data={"for": note}, now=now)


def _wake_waiting(organization_id: UUID, skipped: UUID | None, now: datetime) -> None:
    waiting = Task.objects.filter(
        state=TaskState.READY,
        owner="",
        waiting_for__startswith=WAITS_FOR_HELD_MONEY,
        change__organization_id=organization_id,
    ).exclude(pk=skipped)
    for task in waiting.order_by("created_at", "position")[:WAKES_PER_SWEEP_MAX]:
        # One row, one statement: nothing here can wait for a lock while it holds another.
        still = Task.objects.filter(pk=task.pk, state=TaskState.READY, owner="", waiting_for=task.waiting_for)
        if still.update(not_before=now):
            _wake([task], now=now)
    changes = _waiting_changes(organization_id, now)
    for change_id in list(changes.order_by("not_before").values_list("pk", flat=True)[:WAKES_PER_SWEEP_MAX]):
        if changes.filter(pk=change_id).update(not_before=now):
            wake_change(change_id)


def _waiting_changes(organization_id: UUID, now: datetime) -> QuerySet[Change]:
    """Whose own work waits for held money: nobody is at it, and it is not due yet."""
    waiting: QuerySet[Change] = Change.objects.filter(
        organization_id=organization_id,
        state__in=WORKING_CHANGES,
        paused_at__isnull=True,
        work_key="",
        not_before__gt=now,
        waiting_for__startswith=WAITS_FOR_HELD_MONEY,
    )
    return waiting


def _wake(tasks: Iterable[Task], *, now: datetime) -> None:
    for task in tasks:
        Task.objects.filter(pk=task.pk).update(woken_at=now)
        wake_task(task.pk)
