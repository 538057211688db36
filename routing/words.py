"""The words that routing, the engine and the domain share."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Tier(IntEnum):
    """The three model tiers, cheapest first; `max()` of two is the safer one."""

    HAIKU = 1
    SONNET = 2
    OPUS = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Tier:
        return cls[word.upper()]


class TaskKind(StrEnum):
    """What sort of work a Task is."""

    PLAN = "plan"
    ARCHITECTURE = "architecture"
    ARBITRATION = "arbitration"
    IMPLEMENT = "implement"
    MIGRATE = "migrate"
    TEST = "test"
    REVIEW = "review"
    SUMMARIZE = "summarize"
    CLASSIFY = "classify"
    COMPACT = "compact"
    TRANSFORM = "transform"


# Only these get a workspace; the others answer with words (row 37).
WORKSPACE_KINDS = frozenset({TaskKind.IMPLEMENT, TaskKind.MIGRATE, TaskKind.TEST})


class Size(StrEnum):
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


class Risk(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Area(StrEnum):
    """The areas that carry a floor, and everything else."""

    GENERAL = "general"
    BILLING = "billing"
    AUTHORIZATION = "authorization"


class FailureClass(StrEnum):
    TRANSPORT = "transport"
    BUDGET = "budget"
    INTELLIGENCE = "intelligence"


class EndReason(StrEnum):
    """How an attempt ended. The text is what receipts, events and pages show."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    # transport
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    TRANSIENT = "transient"
    WORKER_LOST = "worker_lost"
    # transport, of an attempt that had paused: nothing was wrong with the agent's work
    ACTIVE_BUDGET_EXHAUSTED = "active_budget_exhausted"
    RESUME_REJECTED = "resume_rejected"
    # budget
    SPEND_LIMITED = "spend_limited"
    CHANGE_BUDGET = "change_budget"
    PROJECT_BUDGET = "project_budget"
    USER_BUDGET = "user_budget"
    MONTHLY_BUDGET = "monthly_budget"
    DAILY_CALL_CAP = "daily_call_cap"
    # intelligence: everything else
    RUN_CALL_CAP = "run_call_cap"
    RUN_COST_CAP = "run_cost_cap"
    FAILED_BY_AGENT = "failed_by_agent"
    STUCK = "stuck"
    BAD_OUTPUT = "bad_output"
    REFUSED = "refused"
    BAD_REQUEST = "bad_request"
    PUBLISH_FAILED = "publish_failed"
    NOTHING_CHANGED = "nothing_changed"


# Our own doing, not the Task's: such an attempt never counts.
NOT_COUNTED = frozenset({EndReason.WORKER_LOST, EndReason.ACTIVE_BUDGET_EXHAUSTED, EndReason.RESUME_REJECTED})
TRANSPORT = NOT_COUNTED | {EndReason.RATE_LIMITED, EndReason.TIMEOUT, EndReason.TRANSIENT}
BUDGET = frozenset(
    {
        EndReason.SPEND_LIMITED,
        EndReason.CHANGE_BUDGET,
        EndReason.PROJECT_BUDGET,
        EndReason.USER_BUDGET,
        EndReason.MONTHLY_BUDGET,
        EndReason.DAILY_CALL_CAP,
    }
)
# The stop that a person decides on (rows 189, 193); no run ends by it.
MAX_ATTEMPTS_PER_TIER = "max_attempts_per_tier"


def failure_class(reason: EndReason) -> FailureClass:
    """The class of a failed end; everything that is neither transport nor budget is intelligence."""
    assert reason not in (EndReason.COMPLETED, EndReason.CANCELLED), f"{reason} is no failure"
    if reason in TRANSPORT:
        return FailureClass.TRANSPORT
    return FailureClass.BUDGET if reason in BUDGET else FailureClass.INTELLIGENCE
