"""What both ledgers answer: the same frozen rows, whatever the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from budgets.decisions import MeterReading

# Percent of a limit that make an event when spending passes them; settings.BUDGET_THRESHOLDS overrides.
THRESHOLDS_PERCENT = (50, 80, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Whose call it is and what for: columns of the reservation, so that every report reads the one ledger.

    All of it comes from rows of the plane, never from a client or a model.
    """

    organization_id: UUID
    purpose: str
    model: str
    project_id: UUID | None = None
    user_id: UUID | None = None
    change_id: UUID | None = None
    task_id: UUID | None = None
    run_id: UUID | None = None
    tier: str = ""
    connector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One hold to make, in plain numbers: micro-dollars (None: unpriced), tokens, calls."""

    key: str
    fingerprint: str
    names: tuple[str, ...]  # `MeterKey.name` of each meter
    usd: int | None
    tokens: int
    calls: int
    owner: str
    lease_seconds: int
    context: CallContext


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRow:
    """`result`: ok, refused, missing (a meter has no row yet), exists, conflict."""

    result: str
    reservation_id: int | None = None
    state: str = ""
    lease_until: datetime | None = None
    lapsed: bool = False
    refusing: tuple[MeterReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How a reservation ends. `to`: settled, refunded, unknown, or released (an unknown charge, by a person)."""

    reservation_id: int
    to: str
    actor: str
    usd: int | None = None  # None: the price is unknown
    tokens: int | None = None  # None: the usage is unknown
    usage: Mapping[str, Any] | None = None
    usage_quality: str = ""
    rates: Mapping[str, Any] | None = None
    reason: str = ""
    released_by_id: UUID | None = None
    thresholds: tuple[int, ...] = THRESHOLDS_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRow:
    """`result`: ok, already (the same report again), late (corrects an unknown charge), conflict, missing."""

    result: str
    state: str = ""
    usd: int | None = None
    overrun: bool = False
    meters: tuple[int, ...] = ()
    crossed: tuple[int, ...] = ()  # meters that passed a soft threshold by this


# What its caller writes with a step: in the same transaction where the ledger is one, right after it elsewhere.
Beside = Callable[[], None]


def nothing() -> None:
    """Nothing is written beside."""


class Ledger(Protocol):
    """A module that keeps the books in one sort of database."""

    def hold(self, wanted: Wanted, beside: Beside) -> HoldRow: ...

    def close(self, closing: Closing, beside: Beside) -> CloseRow: ...

    def reap_one(self, now: datetime, *, actor: str) -> int | None: ...
