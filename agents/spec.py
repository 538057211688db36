"""What the engine is handed and what it hands back. It knows no Change and no Task rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from budgets.meters import MeterKey
from budgets.money import ZERO, Usd
from providers.messages import Thinking
from routing.words import EndReason, TaskKind, Tier

# One model call may take this long; a lease that is renewed between calls must outlive it.
CALL_SECONDS_MAX = 300
# A run of 32 calls asks for a few tools each; more is a flood.
TOOL_CALLS_MAX = 400
# The note of a StopRun when only held money stands in the way: the Task waits, it does not stop.
HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCaps:
    """The limits of one run, recorded on it. Defaults by tier, narrowed or widened by a project within hard maxima."""

    calls_max: int
    reads_max: int
    read_characters_max: int
    command_seconds_max: int
    output_characters_max: int
    sandboxes_max: int
    tool_calls_max: int = TOOL_CALLS_MAX  # checked per turn, before any call of the turn runs (row 58)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderModelTask:
    """The allowance that each physical call must fit as well, and what its record there says of the call."""

    model_task_id: UUID
    parent: str  # whose calls these are
    phase: str = "generation"
    input_capacity: int | None = None  # of a model that the catalogue does not know (row 95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payers:
    """Who pays for a call, and for what. Scopes come from rows, never from a client or a model.

    `run_id` names the attempt where there is one; `purpose` is a label, never a permission (row 241).
    `key` is the start of the idempotency key of every call made for these payers.
    """

    organization_id: UUID
    project_id: UUID | None  # None: the organization itself asks, such as for the test of a connector
    user_id: UUID | None  # none: an operator at the shell
    connector: str
    meters: tuple[MeterKey, ...]
    purpose: str
    key: str
    change_id: UUID | None = None
    task_id: UUID | None = None
    run_id: UUID | None = None
    tier: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    allowance: UnderModelTask | None = None  # None: the meters alone decide (row 148)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """The repository an attempt works on. Commits are full ids; `start_commit` has the stack merged in."""

    repository_id: UUID  # of the project: names its bare repository
    base_commit: str
    start_commit: str


class Permission(StrEnum):
    """What may become of a tool call. Nobody is there to be asked during a run: `ask` is `deny` (row 49)."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class ToolRule:
    """`pattern` is a glob over names of tools, such as `*_file`."""

    pattern: str
    permission: Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """Everything the engine may know about one attempt."""

    run_id: UUID
    agent_id: str  # agt_<task> (row 5)
    kind: TaskKind
    tier: Tier
    model: str
    thinking: Thinking
    output_tokens_max: int
    caps: RunCaps
    budget: Usd | None  # the Task's share (row 51); None: no cap
    payers: Payers
    prompt: str  # the rendered packet
    packet_hash: str
    source: SourceTree | None  # None: a project without source (row 39)
    changeset_id: UUID  # the name under which work is published
    message: str  # the commit message
    committed_at: int  # seconds since the epoch: fixed, so that ids repeat
    trusted: bool = False
    extra_commands: tuple[tuple[str, ...], ...] = ()
    # Patterns of commands that wait for a person's yes: the attempt pauses before each.
    approval_commands: tuple[tuple[str, ...], ...] = ()
    pauses: int = 0  # so far
    publish_rules: Mapping[str, Any] = field(default_factory=dict)  # what the project's owner set
    archive_prefix: str = ""  # context/<project>/<change>/<task>
    # One tuple of rules per ancestor, outermost first; in each the last match wins, and any deny denies.
    tool_rules: tuple[tuple[ToolRule, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The work of a finished attempt, in git and in the object store (row 216)."""

    commit: str
    base_commit: str
    start_commit: str
    files: tuple[str, ...]  # differ from base
    own_files: tuple[str, ...]  # on top of the stack
    patch_key: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that happened during a run and is worth an event; `key` makes it happen once (row 236)."""

    kind: str
    key: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, and what it cost. `cost` is the known part; `unknown_calls` counts the rest."""

    end: EndReason
    note: str = ""  # fixed words, or the agent's own reason for fail_task
    cost: Usd = ZERO
    unknown_calls: int = 0
    calls: int = 0
    reads: int = 0
    intent: str = ""
    published: Published | None = None
    tool_log_key: str = ""
    refusals: tuple[Mapping[str, Any], ...] = ()  # every meter that refused, as data
    failure_log: str = ""  # what the next attempt should know, bounded
    retry_after_seconds: float | None = None
    noted: tuple[Noted, ...] = ()  # for the domain's events: model.retry, model.fallback
    detail: Mapping[str, Any] = field(
        default_factory=dict
    )  # beside refusals and retry-after, on the run's row


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """An attempt that stopped before a command: everything that it needs to go on is stored, and nothing is held.

    `tree_commit` keeps the workspace under a ref of its own; empty when none was open.
    """

    argv: tuple[str, ...]
    why: str
    snapshot_key: str
    tree_commit: str
    patch_key: str
    calls: int
    reads: int
    tool_log_key: str
    noted: tuple[Noted, ...] = ()


class Supervisor(Protocol):
    """The domain's hand on a running attempt. Called before each model call and each tool, and while commands run."""

    def beat(self) -> None:
        """Renew the lease and the claims; raises `StopRun` when cancelled, out of time, or no longer the owner."""
        ...

    def seconds_left(self) -> float:
        """Until the deadline of the run, which no call and no wait may pass (row 126); infinite without one."""
        ...
