"""What earlier failures tell the next attempt: as it is, or shortened by the compactor (rows 20, 21)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from agents import archive
from agents.clock import Clock
from agents.compaction import LOG_TOKENS_MAX, Compacted, Compaction, compact_log
from agents.context.compile import tokens_in
from agents.context.packet import FailureFact
from agents.errors import StopRun
from agents.spec import HELD
from routing.escalate import stop_name
from routing.words import Tier
from tasks.admission import WAITS_FOR_HELD_MONEY
from tasks.attempts.refusal import NotStarted, Stopped, Waits
from tasks.dispatch import HELD_WAIT_SECONDS
from tasks.events import tell_noted
from tasks.funding import COMPACTION, payers_for
from tasks.models import Task
from tasks.retrieval import prior_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`compaction` is "", done or fallback: a column of the run."""

    failures: tuple[FailureFact, ...]
    compaction: str = ""


def failures_for(task: Task, *, run_id: UUID, clock: Clock) -> Told:
    """Step 4. A compaction's cost belongs to the run being started. Raises `NotStarted` when a budget refuses it."""
    failures = prior_failures(task)
    text = "\n\n".join(f"attempt {one.attempt} ({one.tier}, {one.end})\n{one.log}" for one in failures)
    if tokens_in(text) <= LOG_TOKENS_MAX:
        return Told(failures=failures)
    # A start that has to wait afterwards finds the summary and does not pay for it twice.
    key = f"{prefix_of(task)}/compacted-{sha256(text.encode()).hexdigest()[:32]}.txt"
    stored = _stored(key)
    if stored is not None:
        return Told(failures=_as_one(failures, stored), compaction=Compaction.DONE)
    compacted = _compact(task, text, run_id=run_id, now=clock.now(), clock=clock)
    if compacted.how is Compaction.DONE:
        archive.put(key, compacted.text.encode())
    return Told(failures=_as_one(failures, compacted.text), compaction=compacted.how)


def prefix_of(task: Task) -> str:
    """Where the packets and logs of a Task are stored (row 206)."""
    return f"context/{task.change.project_id}/{task.change_id}/{task.pk}"


def _compact(task: Task, text: str, *, run_id: UUID, now: datetime, clock: Clock) -> Compacted:
    payers = payers_for(
        task.change,
        purpose=COMPACTION,
        key=f"compactor:{run_id}",
        task=task,
        run_id=run_id,
        tier=Tier.HAIKU,
        now=now,
    )
    try:
        return compact_log(
            text,
            payers,
            clock=clock,
            tell=lambda noted: tell_noted(noted, change=task.change, task=task, now=clock.now()),
        )
    except StopRun as stop:
        if stop.note == HELD:
            waiting_for = f"{WAITS_FOR_HELD_MONEY}{stop.end}"
            raise NotStarted(Waits(waiting_for=waiting_for, seconds=HELD_WAIT_SECONDS)) from stop
        limit = stop_name(stop.end)
        refusal = Stopped(limit=limit, reason="compaction_refused", refusals=stop.refusals)
        raise NotStarted(refusal) from stop


def _as_one(failures: tuple[FailureFact, ...], log: str) -> tuple[FailureFact, ...]:
    """The whole history under its newest attempt; the earlier ones keep their line without a log."""
    *earlier, newest = failures
    bare = [FailureFact(attempt=one.attempt, tier=one.tier, end=one.end, log="") for one in earlier]
    return (
        *bare,
        FailureFact(attempt=newest.attempt, tier=newest.tier, end=newest.end, log=log),
    )


def _stored(key: str) -> str | None:
    try:
        return archive.get(key).decode()
    except archive.NotStored:
        return None
