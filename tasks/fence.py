"""Who works on a Change itself: one worker at a time, and a killed worker's work is taken again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents.spec import CALL_SECONDS_MAX
from budgets.errors import ClosedDifferently
from budgets.models import Reservation, ReservationState
from budgets.reservations import keep
from tasks.errors import TaskError
from tasks.events import record
from tasks.models import Change
from tasks.owners import is_surely_dead, this_process
from tasks.states import WORKING_CHANGES, ChangeState
from tasks.transitions import move_change
from tasks.wake import wake_change

# A worker that is silent this long has lost the work. It says so before each question and each command.
WORK_LEASE_SECONDS = 120
WORK_BEAT_SECONDS = 20
# Nobody beats while a model answers, so a question takes a longer lease.
QUESTION_LEASE_SECONDS = 360
assert WORK_LEASE_SECONDS >= 4 * WORK_BEAT_SECONDS, "a lease must outlive missed beats"
assert QUESTION_LEASE_SECONDS >= CALL_SECONDS_MAX + 60, "a lease must outlive one model call"

# What a Change that is blocked by a stop of its own work was about to do (`stop_detail["work"]`).
RESUMED_STATES = {"planning": ChangeState.PLANNING, "composing": ChangeState.COMPOSING}


class WorkLost(TaskError):
    """Somebody else holds this Change's work now, or it was cancelled: write nothing more."""

    def __init__(self, change_id: UUID) -> None:
        super().__init__(f"the work of change {change_id} is held by somebody else")


@dataclass(slots=True)
class WorkHold:
    """The right to work on one Change. Every write goes through `writing`."""

    change_id: UUID
    key: str
    renewed_at: datetime

    def beat(self) -> None:
        """Called often; renews the lease when it has aged. Raises `WorkLost`."""
        now = timezone.now()
        if now - self.renewed_at >= timedelta(seconds=WORK_BEAT_SECONDS):
            self.renew(now)

    def renew(self, now: datetime, *, seconds: int = WORK_LEASE_SECONDS) -> None:
        held = Change.objects.filter(pk=self.change_id, work_key=self.key)
        if not held.update(not_before=now + timedelta(seconds=seconds)):
            raise WorkLost(self.change_id)
        self.renewed_at = now

    @contextmanager
    def writing(self) -> Iterator[Change]:
        """One transaction with the Change's row locked, open to the holder alone. Raises `WorkLost`."""
        with transaction.atomic():
            held = Change.objects.select_for_update().filter(pk=self.change_id, work_key=self.key)
            change = held.first()
            if change is None:
                raise WorkLost(self.change_id)
            yield change

    def end(self, *, again_at: datetime | None = None) -> None:
        """Give the work back; `again_at` makes it due again. Nothing happens to work that was lost."""
        held = Change.objects.filter(pk=self.change_id, work_key=self.key)
        held.update(work_key="", not_before=again_at, waiting_for="")


def due_changes(now: datetime) -> QuerySet[Change]:
    """The Changes whose own work may be taken: planning, composing, or after a stop that ended by itself."""
    resting = Q(state=ChangeState.BUDGET_BLOCKED, stop_detail__has_key="work")
    return Change.objects.filter(
        Q(state__in=WORKING_CHANGES) | resting, paused_at__isnull=True, not_before__lte=now
    )


def take_work(change_id: UUID, *, now: datetime) -> WorkHold | None:
    """Whoever moves the row may work. A second wake, or one that comes too early, gets nothing."""
    key = f"{this_process()}:{uuid4().hex}"
    lease = now + timedelta(seconds=WORK_LEASE_SECONDS)
    if not due_changes(now).filter(pk=change_id).update(work_key=key, not_before=lease):
        return None
    return WorkHold(change_id, key, now)


def free_dead_work(now: datetime) -> int:
    """Work whose worker is surely gone is due again at once; elsewhere the lease decides. How many."""
    held = Change.objects.filter(state__in=WORKING_CHANGES, not_before__gt=now).exclude(work_key="")
    dead = [
        (pk, key) for pk, key in held.values_list("pk", "work_key") if is_surely_dead(key.rpartition(":")[0])
    ]
    freed = 0
    for pk, key in dead:
        _keep_holds(pk)
        taken = Change.objects.filter(pk=pk, work_key=key)
        freed += taken.update(work_key="", not_before=now)
    return freed


def _keep_holds(change_id: UUID) -> None:
    """Nobody is left to say what a dead worker's question cost: it is charged at its worst case, as unknown."""
    ours = Reservation.objects.filter(change_id=change_id, run_id=None, state=ReservationState.HELD)
    for reservation_id in ours.values_list("pk", flat=True):
        with suppress(ClosedDifferently):  # the reaper was faster
            keep(reservation_id, reason="the worker process died during the question", actor="sweep")


def make_due(change: Change, *, now: datetime) -> None:
    """Let the next worker take this Change's work; whoever held it has lost it. Call inside the transaction."""
    Change.objects.filter(pk=change.pk).update(not_before=now, work_key="", work_delays=0, waiting_for="")
    change.not_before, change.work_key, change.work_delays, change.waiting_for = now, "", 0, ""
    wake_change(change.pk)


def make_rest(change: Change) -> None:
    """The Change's own work is over until its Tasks say otherwise; whoever held it has lost it."""
    Change.objects.filter(pk=change.pk).update(not_before=None, work_key="", work_delays=0, waiting_for="")
    change.not_before, change.work_key, change.work_delays, change.waiting_for = None, "", 0, ""


@transaction.atomic
def resume_work(change: Change, *, because: str, now: datetime) -> bool:
    """Go on with planning or composing after the stop was lifted. False when the stop was not of this kind."""
    locked: Change = Change.objects.select_for_update().get(pk=change.pk)
    to = RESUMED_STATES.get(str(locked.stop_detail.get("work", "")))
    if locked.state != ChangeState.BUDGET_BLOCKED or to is None:
        return False
    move_change(locked, to, because=because, now=now)
    record("change.work.resumed", change=locked, data={"work": to.value, "because": because}, now=now)
    make_due(locked, now=now)
    change.refresh_from_db()
    return True
