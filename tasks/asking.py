"""One metered question about a Change, and what its end means for the Change's own work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.utils import timezone

from agents.complete import Answer, Question, ask
from agents.errors import StopRun
from agents.spec import HELD, Payers
from budgets.keys import MeterKey
from budgets.meters import payer_meters
from routing.words import BUDGET, TRANSPORT, EndReason, Tier
from tasks.admission import WAITS_FOR_HELD_MONEY
from tasks.dispatch import wake_waiting_for_money
from tasks.events import record, tell_noted, write_receipt
from tasks.fence import QUESTION_LEASE_SECONDS, RESUMED_STATES, WorkHold
from tasks.funding import payers_for, stop_change
from tasks.models import Change, Trunk
from tasks.questions import ChangeFacts
from tasks.states import ChangeState
from tasks.transitions import move_change
from tenants.models import Project, User

WORK_DELAYS_MAX = 6
WORK_DELAY_SECONDS = 5  # doubled each time: 5, 10, 20, ... 160
FAILURE_CHARACTERS_MAX = 1_000
# Holds end at any moment and mostly wake who waits; a lease lets none of them live for ever, so nobody counts these.
HELD_DELAY_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A model role of the platform: which tier answers, how long, and whether the daily counter counts it (row 142)."""

    name: str
    system: str
    tier: Tier
    output_tokens_max: int
    counts_daily: bool = False


def ask_role(
    change: Change,
    role: Role,
    prompt: str,
    *,
    now: datetime,
    hold: WorkHold | None = None,
    attempt: int | None = None,
) -> Answer:
    """Ask once; every meter of the Change holds first. Raises StopRun. Never inside a transaction.

    Each asking has a key of its own: a question of a worker that died may have been paid, and stays held.
    `hold` is the work that this question belongs to; its lease must outlive the answer.
    """
    payers = payers_for(
        change,
        purpose=role.name,
        key=f"{role.name}:{change.pk}:{uuid4().hex}",
        tier=role.tier,
        attempt=attempt,
        counts_daily=role.counts_daily,
        now=now,
    )
    with holds_end(change.organization_id):
        return ask(
            _question(role, prompt),
            payers,
            supervisor=None if hold is None else _Asking(hold),
            tell=lambda noted: tell_noted(noted, change=change, now=timezone.now()),
        )


def ask_before_a_change(
    project: Project, role: Role, prompt: str, *, by: User, also: Sequence[MeterKey] = (), now: datetime
) -> Answer:
    """Ask about a request that is no Change yet: the project, the person and the month pay (row 147)."""
    meters = payer_meters(
        organization_id=project.organization_id,
        project_id=project.pk,
        user_id=by.pk,
        change_id=None,
        connector=project.connector,
        counts_daily=role.counts_daily,
        now=now,
    )
    payers = Payers(
        organization_id=project.organization_id,
        project_id=project.pk,
        user_id=by.pk,
        connector=project.connector,
        meters=(*meters, *also),
        purpose=role.name,
        key=f"{role.name}:{project.pk}:{uuid4().hex}",
        tier=role.tier.word,
    )
    with holds_end(project.organization_id):
        return ask(_question(role, prompt), payers)


@contextmanager
def holds_end(organization_id: UUID) -> Iterator[None]:
    """Wake whoever waits for held money after a question that had some; one that was refused held nothing."""
    try:
        yield
    except StopRun as stop:
        if stop.end not in BUDGET:
            wake_waiting_for_money(organization_id, now=timezone.now())
        raise
    wake_waiting_for_money(organization_id, now=timezone.now())


def _question(role: Role, prompt: str) -> Question:
    return Question(
        role=role.name,
        system=role.system,
        prompt=prompt,
        tier=role.tier,
        output_tokens_max=role.output_tokens_max,
    )


@dataclass(frozen=True, slots=True)
class _Asking:
    """The engine's supervisor of a question: before each call the lease is made long enough to outlive it."""

    hold: WorkHold

    def beat(self) -> None:
        self.hold.renew(timezone.now(), seconds=QUESTION_LEASE_SECONDS)

    def seconds_left(self) -> float:
        """A question has its own time alone."""
        return math.inf


def facts_of(change: Change) -> ChangeFacts:
    return ChangeFacts(
        key=change.key,
        title=change.title,
        goal=change.goal,
        criteria=[criterion.text for criterion in change.criteria.all()],
        invariants=list(change.invariants),
        project=change.project.name,
        description=change.project.description,
    )


def stop_work(hold: WorkHold, work: str, stop: StopRun, *, now: datetime) -> None:
    """What a refused or failed question does to the Change: wait, block with the limit's name, or fail.

    `work` is "planning" or "composing": where a lifted stop goes on.
    """
    assert work in RESUMED_STATES, work
    with hold.writing() as change:
        if stop.note == HELD:
            _wait_for_holds(change, work, stop.end.value, now=now)
        elif stop.end in TRANSPORT and change.work_delays < WORK_DELAYS_MAX:
            seconds = stop.retry_after_seconds or WORK_DELAY_SECONDS * 2**change.work_delays
            _delay(change, work, stop.end.value, seconds=seconds, now=now)
        elif stop.end in BUDGET:
            _block(change, work, stop, now=now)
        else:
            _fail(change, work, stop, now=now)


def stop_after_fault(hold: WorkHold, fault: Exception, *, now: datetime) -> None:
    """A fault of ours: the work is tried again a few times, then the Change fails and names the fault's kind."""
    with hold.writing() as change:
        if change.work_delays < WORK_DELAYS_MAX:
            seconds = WORK_DELAY_SECONDS * 2**change.work_delays
            _delay(change, change.state, "internal_fault", seconds=seconds, now=now)
        else:
            note = f"internal fault: {type(fault).__name__}"
            _fail(change, change.state, StopRun(EndReason.TRANSIENT, note), now=now)


def _wait_for_holds(change: Change, work: str, limit: str, *, now: datetime) -> None:
    """Asked again when a hold ends, told once. No delay is counted: while it would fit, nothing stops it."""
    waiting_for = f"{WAITS_FOR_HELD_MONEY}{limit}"
    again_at = now + timedelta(seconds=HELD_DELAY_SECONDS)
    Change.objects.filter(pk=change.pk).update(work_key="", not_before=again_at, waiting_for=waiting_for)
    if change.waiting_for != waiting_for:
        data = {"work": work, "because": limit, "again_at": again_at.isoformat()}
        record("change.work.delayed", change=change, data=data, now=now)


def _delay(change: Change, work: str, because: str, *, seconds: float, now: datetime) -> None:
    again_at = now + timedelta(seconds=seconds)
    Change.objects.filter(pk=change.pk).update(
        work_key="", not_before=again_at, work_delays=change.work_delays + 1, waiting_for=""
    )
    data = {"work": work, "because": because, "again_at": again_at.isoformat()}
    record("change.work.delayed", change=change, data=data, now=now)


def _block(change: Change, work: str, stop: StopRun, *, now: datetime) -> None:
    stop_change(change, stop.end.value, work=work, refusals=stop.refusals, now=now)
    Change.objects.filter(pk=change.pk).update(
        work_key="", not_before=_turn_of(stop.refusals), work_delays=0, waiting_for=""
    )


def _fail(change: Change, work: str, stop: StopRun, *, now: datetime) -> None:
    failure = f"{work} stopped: {stop.note[:FAILURE_CHARACTERS_MAX] or stop.end.value}"
    move_change(
        change,
        ChangeState.FAILED,
        because=stop.end.value,
        now=now,
        also={"failure": failure, "work_key": "", "not_before": None, "work_delays": 0},
    )
    write_receipt("failure", stop.end.value, change=change, reasons=[work], now=now)


def _turn_of(refusals: Sequence[Mapping[str, object]]) -> datetime | None:
    """When every refusing meter begins a new period: then the work is due by itself. None: a person must act."""
    ends = [str(refusal.get("ends_at") or "") for refusal in refusals]
    if not ends or not all(ends):
        return None
    return max(datetime.fromisoformat(end) for end in ends)


def source_of(change: Change) -> Trunk:
    """The trunk of the Change's project. Submission made sure that there is one."""
    trunk: Trunk = Trunk.objects.get(project_id=change.project_id)
    return trunk
