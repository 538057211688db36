"""Reservations: hold money on every meter before a call, and close the books after it.

held ──settle──▶ settled          the exact cost
  │                 ▲
  ├──refund─▶ refunded            never left, or surely not billed
  │                 ▲ ▲
  └──keep, reap─▶ unknown         may have been billed: charged at the worst case
                      └─ late report, or release_unknown by a person
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connections

from budgets.decisions import Amount, Refusal, why_refused
from budgets.errors import ClosedDifferently, KeyReused, NoSuchReservation
from budgets.keys import MeterKey
from budgets.ledger import postgres, sqlite
from budgets.ledger.guard import outside_transactions
from budgets.ledger.words import (
    THRESHOLDS_PERCENT,
    Beside,
    CallContext,
    CloseRow,
    Closing,
    HoldRow,
    Ledger,
    Wanted,
    nothing,
)
from budgets.meters import ensure_meters
from budgets.models import Entry, Reservation
from budgets.money import Usd
from budgets.prices import usage_data, why_unusable
from budgets.thresholds import note_crossings
from providers.messages import Usage
from tenants.audit import note
from tenants.errors import InvalidInput
from tenants.models import User

__all__ = [
    "AlreadyHeld",
    "Amount",
    "CallContext",
    "Closed",
    "Held",
    "Refused",
    "keep",
    "late",
    "reap",
    "refund",
    "release_unknown",
    "reserve",
    "settle",
]

METERS_PER_RESERVATION_MAX = 16
LEASE_SECONDS_MAX = 3_600
REAPED_PER_SWEEP_MAX = 1_000
KEY_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Held:
    """The money is held on every meter. Send only while the lease lives; then settle, refund or keep."""

    reservation_id: int
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class Refused:
    """At least one meter said no, and none holds anything. `refusals` names every one, in the settled order."""

    refusals: tuple[Refusal, ...]

    @property
    def stop(self) -> str:
        """The name of the stop: the first refusal that does not merely wait, else the first."""
        return next((one for one in self.refusals if not one.waits), self.refusals[0]).stop

    @property
    def waits(self) -> bool:
        """Only held money stands in the way: wait for holds to end, and ask again."""
        return all(refusal.waits for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class AlreadyHeld:
    """This key was used before for the same request: a redelivery. Never call again under it.

    `held` and not `lapsed`: another worker owns it. Otherwise: a new attempt with a new key, or the
    stored answer when it is settled.
    """

    reservation_id: int
    state: str
    lapsed: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """What became of a reservation. `result`: ok, already (the same report again), late (a correction).

    `cost` None means unknown: `charged` then is the worst case. `meters` are the ids on which a hold
    ended, for whoever wakes what waits for them; empty for `already`.
    """

    result: str
    state: str
    charged: Usd
    cost: Usd | None
    overrun: bool
    meters: tuple[int, ...]


def reserve(
    *,
    key: str,
    meters: Sequence[MeterKey],
    amount: Amount,
    context: CallContext,
    owner: str,
    lease_seconds: int,
    beside: Beside = nothing,
) -> Held | Refused | AlreadyHeld:
    """Hold `amount` on all meters or on none; committed when this returns (rows 143, 146).

    `key` names one physical call for ever. The lease must outlive the call's own timeout. Raises
    `KeyReused` for a key of another request. Must not run inside a transaction: the hold has to be
    committed before the call leaves. `beside` writes the caller's own row with the hold.
    """
    outside_transactions()
    names = _checked_names(meters, context)
    assert 0 < len(key) <= KEY_CHARACTERS_MAX, f"a key has 1 to {KEY_CHARACTERS_MAX} characters: {key!r}"
    assert 0 < lease_seconds <= LEASE_SECONDS_MAX, f"odd lease: {lease_seconds} s"
    wanted = Wanted(
        key=key,
        fingerprint=_fingerprint(meters, amount, context),
        names=names,
        usd=None if amount.usd is None else amount.usd.micro,
        tokens=amount.tokens,
        calls=amount.calls,
        owner=owner,
        lease_seconds=lease_seconds,
        context=context,
    )
    row = _hold(wanted, meters, beside)
    if row.result == "refused":
        refusals = why_refused(row.refusing, amount)
        assert refusals, "the database and the rule disagree about room"
        return Refused(refusals)
    if row.result == "conflict":
        raise KeyReused(key)
    assert row.reservation_id is not None, row
    if row.result == "exists":
        return AlreadyHeld(row.reservation_id, row.state, row.lapsed)
    assert row.lease_until is not None, row
    return Held(row.reservation_id, row.lease_until)


def settle(
    reservation_id: int,
    *,
    cost: Usd | None,
    usage: Usage | None,
    rates: Mapping[str, Any] | None,
    actor: str = "settle",
    beside: Beside = nothing,
) -> Closed:
    """Charge every meter the exact cost (row 144). The call's slot on the daily counters is never given back.

    A usage nobody could read (None, all zero, inconsistent) or a cost that is None keeps the worst case
    as unknown, with the usage stored. The same report twice changes nothing; a late one corrects an
    unknown charge; another one raises `ClosedDifferently`.
    """
    problem = "missing" if usage is None else why_unusable(usage)
    return _close(
        Closing(
            reservation_id=reservation_id,
            to="settled",
            actor=actor,
            usd=None if cost is None or problem else cost.micro,
            tokens=None if usage is None or problem else usage.input + usage.output,
            usage=None if usage is None else usage_data(usage),
            usage_quality=problem or (usage.quality if usage else ""),
            rates=rates,
            reason=problem,
            thresholds=thresholds(),
        ),
        beside,
    )


def late(
    reservation_id: int, *, cost: Usd | None, usage: Usage | None, rates: Mapping[str, Any] | None
) -> Closed:
    """A report that came after the hold was given up: corrects the unknown charge, on the meters of then."""
    return settle(reservation_id, cost=cost, usage=usage, rates=rates, actor="late")


def refund(reservation_id: int, *, reason: str, actor: str = "refund", beside: Beside = nothing) -> Closed:
    """Give everything back: only when no byte left, or the answer says for sure that nothing was billed (row 123)."""
    return _close(Closing(reservation_id=reservation_id, to="refunded", actor=actor, reason=reason), beside)


def keep(reservation_id: int, *, reason: str, actor: str = "keep", beside: Beside = nothing) -> Closed:
    """The call may have been billed and nobody knows: charge the worst case, as unknown."""
    return _close(
        Closing(
            reservation_id=reservation_id, to="unknown", actor=actor, reason=reason, thresholds=thresholds()
        ),
        beside,
    )


def release_unknown(reservation_id: int, *, by: User, reason: str) -> Closed:
    """A person takes an unknown charge off the meters, saying why. The door has checked who may.

    The call's slot stays used. A report that comes later all the same is charged.
    """
    if not reason.strip():
        raise InvalidInput(
            "reason", "a reason is needed", "Say why this call was not billed.", code="reason_needed"
        )
    reason = reason.strip()[:REASON_CHARACTERS_MAX]
    closed = _close(
        Closing(
            reservation_id=reservation_id,
            to="released",
            actor=f"user {by.pk}",
            reason=reason,
            released_by_id=by.pk,
        )
    )
    if closed.result != "already":
        row = Reservation.objects.select_related("organization").get(pk=reservation_id)
        note(
            row.organization,
            by,
            "charge.released",
            f"call {row.key}",
            before={"charged_usd_micro": row.hold_usd.micro},
            after={"charged_usd_micro": 0},
            reason=reason,
        )
    return closed


def runs_corrected_since(since: datetime) -> frozenset[UUID]:
    """Runs of which a call that had ended as unknown was billed late, or released by a person, since then."""
    corrections = Entry.objects.filter(kind__in=("late", "release"), at__gte=since)
    found = corrections.exclude(reservation__run_id=None).values_list("reservation__run_id", flat=True)
    return frozenset(found)


def reap(now: datetime, *, actor: str = "reaper") -> int:
    """Turn lapsed holds into unknown charges, each in its own transaction; how many. Never a refund (row 145)."""
    outside_transactions()
    ledger = _ledger()
    for count in range(REAPED_PER_SWEEP_MAX):
        if ledger.reap_one(now, actor=actor) is None:
            return count
    return REAPED_PER_SWEEP_MAX


def thresholds() -> tuple[int, ...]:
    """The soft thresholds of this deployment, in percent."""
    return tuple(getattr(settings, "BUDGET_THRESHOLDS", THRESHOLDS_PERCENT))


def _checked_names(meters: Sequence[MeterKey], context: CallContext) -> tuple[str, ...]:
    names = tuple(meter.name for meter in meters)
    assert 1 <= len(names) == len(set(names)) <= METERS_PER_RESERVATION_MAX, f"odd meters: {names}"
    strangers = [meter for meter in meters if meter.organization_id not in (None, context.organization_id)]
    assert not strangers, f"another organization's meters: {strangers}"
    assert not any("\n" in name for name in names), f"a name of two lines: {names}"
    return names


def _fingerprint(meters: Sequence[MeterKey], amount: Amount, context: CallContext) -> str:
    """What the request is, without its period: a redelivery after midnight is still the same one."""
    facts = [
        sorted(meter.rule_name for meter in meters),
        None if amount.usd is None else amount.usd.micro,
        amount.tokens,
        amount.calls,
        str(context.organization_id),
        context.purpose,
        context.model,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _hold(wanted: Wanted, meters: Sequence[MeterKey], beside: Beside) -> HoldRow:
    ledger = _ledger()
    row = _hold_once(ledger, wanted, beside)
    if row.result == "missing":
        ensure_meters(meters)  # in its own transaction: a hold that made rows would deadlock with another
        row = ledger.hold(wanted, beside)
    assert row.result != "missing", f"no rows for {wanted.names}"
    return row


def _hold_once(ledger: Ledger, wanted: Wanted, beside: Beside) -> HoldRow:
    try:
        return ledger.hold(wanted, beside)
    except IntegrityError:
        # The same key at the same moment over other meters: now its row can be seen.
        return ledger.hold(wanted, beside)


def _close(closing: Closing, beside: Beside = nothing) -> Closed:
    outside_transactions()
    row = _ledger().close(closing, beside)
    if row.result == "missing":
        raise NoSuchReservation(closing.reservation_id)
    if row.result == "conflict":
        raise ClosedDifferently(closing.reservation_id, row.state, closing.to)
    if row.crossed:
        note_crossings(row.crossed, closing.thresholds)
    return _closed(row, closing)


def _closed(row: CloseRow, closing: Closing) -> Closed:
    return Closed(
        result=row.result,
        state=row.state,
        charged=Usd(row.usd or 0),
        cost=_known_cost(row, closing),
        overrun=row.overrun,
        meters=row.meters,
    )


def _known_cost(row: CloseRow, closing: Closing) -> Usd | None:
    """What the call is known to have cost. A second report that says less takes nothing from the first one."""
    if row.result == "already" and row.state == "settled":
        return Reservation.objects.values_list("cost", flat=True).get(pk=closing.reservation_id)
    known = row.state == "refunded" or (row.state == "settled" and closing.usd is not None)
    return Usd(row.usd or 0) if known else None


def _ledger() -> Ledger:
    return postgres if connections[DEFAULT_DB_ALIAS].vendor == "postgresql" else sqlite
