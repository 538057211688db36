"""What earlier failures tell the next attempt: as it is, or shortened by the compactor (rows 20, 21)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from agents import archive
from agents.complete import Question, ask
from agents.context.compile import CHARACTERS_PER_TOKEN, tokens_in
from agents.context.packet import FailureFact
from agents.errors import StopRun
from agents.prompts import COMPACTOR
from agents.spec import HELD
from routing.words import BUDGET, Tier
from tasks.attempts.refusal import NotStarted, Stopped, Waits
from tasks.dispatch import HELD_WAIT_SECONDS, WAITS_FOR_HELD_MONEY
from tasks.funding import COMPACTION, payers_for
from tasks.models import Task
from tasks.retrieval import prior_failures

# Above this, and not at exactly this, logs are shortened (row 20).
FAILURE_TOKENS_MAX = 6_000
COMPACTED_TOKENS_MAX = 2_000
# The verbatim end that is kept when nobody could shorten the logs.
FALLBACK_CHARACTERS = FAILURE_TOKENS_MAX * CHARACTERS_PER_TOKEN
assert COMPACTED_TOKENS_MAX < FAILURE_TOKENS_MAX

DONE, FALLBACK = "done", "fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`compaction` is "", done or fallback: a column of the run."""

    failures: tuple[FailureFact, ...]
    compaction: str = ""


def failures_for(task: Task, *, run_id: UUID, now: datetime) -> Told:
    """Step 4. A compaction's cost belongs to the run being started. Raises `NotStarted` when a budget refuses it."""
    failures = prior_failures(task)
    text = "\n\n".join(f"attempt {one.attempt} ({one.tier}, {one.end})\n{one.log}" for one in failures)
    if tokens_in(text) <= FAILURE_TOKENS_MAX:
        return Told(failures=failures)
    key = f"{prefix_of(task)}/compacted-{sha256(text.encode()).hexdigest()[:32]}.txt"
    shortened = _stored(key) or _compacted(task, text, run_id=run_id, now=now)
    if shortened is None:
        return Told(failures=_as_one(failures, text[-FALLBACK_CHARACTERS:]), compaction=FALLBACK)
    archive.put(key, shortened.encode())  # a start that has to wait does not pay for it twice
    return Told(failures=_as_one(failures, shortened), compaction=DONE)


def prefix_of(task: Task) -> str:
    """Where the packets and logs of a Task are stored (row 206)."""
    return f"context/{task.change.project_id}/{task.change_id}/{task.pk}"


def _compacted(task: Task, text: str, *, run_id: UUID, now: datetime) -> str | None:
    """None when it failed for any reason but money; then the end of the logs is told as it is."""
    payers = payers_for(
        task.change,
        purpose=COMPACTION,
        key=f"compactor:{run_id}",
        task=task,
        run_id=run_id,
        tier=Tier.HAIKU,
        now=now,
    )
    question = Question(
        role=COMPACTION,
        system=COMPACTOR,
        prompt=f"<data logs>\n{text}\n</data>",
        tier=Tier.HAIKU,
        output_tokens_max=COMPACTED_TOKENS_MAX,
    )
    try:
        answer = ask(question, payers)
    except StopRun as stop:
        if stop.note == HELD:
            waiting_for = f"{WAITS_FOR_HELD_MONEY}{stop.end}"
            raise NotStarted(Waits(waiting_for=waiting_for, seconds=HELD_WAIT_SECONDS)) from stop
        if stop.end in BUDGET:
            raise NotStarted(
                Stopped(limit=stop.end, reason="compaction_refused", refusals=stop.refusals)
            ) from stop
        return None
    return answer.text.strip() or None


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
