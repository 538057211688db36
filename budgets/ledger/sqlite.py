"""The ledger on SQLite: the same outcomes as the PostgreSQL functions, in one short IMMEDIATE transaction.

`BEGIN IMMEDIATE` (settings: transaction_mode) is the one lock of the whole database, so no order of rows matters
here, and every statement inside keeps everybody else waiting. That is why they are written out: composing them
through the ORM took four fifths of a pair's time (see docs/budgets.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from budgets.decisions import refuses, thresholds_passed
from budgets.driver import run
from budgets.ledger.words import Beside, CloseRow, Closing, HoldRow, Wanted, nothing
from budgets.models import Meter

_KNOWN = "SELECT id, state, fingerprint, lease_until FROM budgets_reservation WHERE key = ?"

_METERS = """
SELECT id, limit_usd, spent_usd, held_usd, limit_tokens, spent_tokens, held_tokens,
       limit_calls, spent_calls, held_calls
  FROM budgets_meter WHERE name IN ({marks}) ORDER BY id
"""

# The only statement that changes a meter's counters: all of them in one.
_MOVE = """
UPDATE budgets_meter
   SET held_usd = held_usd + ?, held_tokens = held_tokens + ?, held_calls = held_calls + ?,
       spent_usd = spent_usd + ?, spent_tokens = spent_tokens + ?, spent_calls = spent_calls + ?
 WHERE id IN ({marks})
"""

_HOLD = """
INSERT INTO budgets_reservation (
  key, fingerprint, state, meters, priced, hold_usd, hold_tokens, hold_calls, overrun, usage_quality,
  organization_id, project_id, user_id, change_id, task_id, run_id, purpose, tier, model, connector,
  owner, lease_until, created_at)
VALUES (?, ?, 'held', ?, ?, ?, ?, ?, 0, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_ENTER = """
INSERT INTO budgets_entry (
  reservation_id, kind, held_usd, held_tokens, held_calls, spent_usd, spent_tokens, spent_calls, actor, reason, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_OPEN = """
SELECT state, meters, priced, hold_usd, hold_tokens, hold_calls, usd, tokens, calls, cost, overrun, released_by_id
  FROM budgets_reservation WHERE id = ?
"""

_CLOSE = """
UPDATE budgets_reservation
   SET state = ?, usd = ?, tokens = ?, calls = ?, cost = ?, closed_at = ?, overrun = ?,
       usage = coalesce(?, usage), rates = coalesce(?, rates),
       usage_quality = CASE WHEN ? <> '' THEN ? ELSE usage_quality END,
       released_by_id = coalesce(?, released_by_id)
 WHERE id = ?
"""

_LIMITED = """
SELECT id, limit_usd, spent_usd, limit_tokens, spent_tokens, limit_calls, spent_calls FROM budgets_meter
 WHERE id IN ({marks}) AND (limit_usd IS NOT NULL OR limit_tokens IS NOT NULL OR limit_calls IS NOT NULL)
 ORDER BY id
"""

_LAPSED = """
SELECT id FROM budgets_reservation WHERE state = 'held' AND lease_until < ? ORDER BY lease_until LIMIT 1
"""

# Micro-dollars, tokens, calls.
_Amounts = tuple[int, int, int]
_NOTHING: _Amounts = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Open:
    """A reservation as it stands before a report, in the order of `_OPEN`."""

    state: str
    meters: str  # JSON: ascending ids
    priced: bool
    hold_usd: int
    hold_tokens: int
    hold_calls: int
    usd: int | None
    tokens: int | None
    calls: int | None
    cost: int | None
    overrun: bool
    released_by: str | None

    @property
    def held(self) -> _Amounts:
        return self.hold_usd, self.hold_tokens, self.hold_calls

    @property
    def charged(self) -> _Amounts:
        """Nothing while it is held."""
        return self.usd or 0, self.tokens or 0, self.calls or 0


def hold(wanted: Wanted, beside: Beside = nothing) -> HoldRow:
    """Hold on every meter or on none. What is written beside is there when the hold is, after one commit."""
    with transaction.atomic():
        now = timezone.now()
        known = run(_KNOWN, [wanted.key]).fetchone()
        if known is not None:
            return _exists(known, wanted, now)
        meters = run(_marked(_METERS, wanted.names), wanted.names).fetchall()
        if len(meters) != len(wanted.names):
            return HoldRow(result="missing")
        refusing = [meter_id for meter_id, *columns in meters if _refuses(columns, wanted)]
        if refusing:
            rows = Meter.objects.filter(pk__in=refusing).order_by("pk")
            return HoldRow(result="refused", refusing=tuple(meter.reading() for meter in rows))
        held = _write_hold(wanted, [row[0] for row in meters], now)
        beside()
        return held


def close(closing: Closing, beside: Beside = nothing) -> CloseRow:
    """End a reservation, whichever way."""
    with transaction.atomic():
        closed = _close(closing)
        if closed.result not in ("missing", "conflict"):
            beside()
        return closed


def reap_one(now: datetime, *, actor: str) -> int | None:
    """Turn one lapsed hold into an unknown charge; its id, or None when there is none left."""
    with transaction.atomic():
        lapsed = run(_LAPSED, [_moment(min(now, timezone.now()))]).fetchone()
        if lapsed is None:
            return None
        found: int = lapsed[0]
        _close(
            Closing(reservation_id=found, to="unknown", actor=actor, reason="the lease ended", thresholds=()),
        )
        return found


def _refuses(columns: Sequence[int | None], wanted: Wanted) -> bool:
    """Limit, spent and held of money, tokens and calls, against what each of them is to hold."""
    parts = zip(
        columns[::3], columns[1::3], columns[2::3], (wanted.usd, wanted.tokens, wanted.calls), strict=True
    )
    return any(
        refuses(limit=limit, spent=spent or 0, held=held or 0, wanted=amount)
        for limit, spent, held, amount in parts
    )


def _exists(known: tuple[Any, ...], wanted: Wanted, now: datetime) -> HoldRow:
    reservation_id, state, fingerprint, lease = known
    lease_until = lease.replace(tzinfo=UTC)
    return HoldRow(
        result="exists" if fingerprint == wanted.fingerprint else "conflict",
        reservation_id=reservation_id,
        state=state,
        lease_until=lease_until,
        lapsed=lease_until < now,
    )


def _write_hold(wanted: Wanted, ids: list[int], now: datetime) -> HoldRow:
    held = (wanted.usd or 0, wanted.tokens, wanted.calls)
    _move(ids, held=held, spent=_NOTHING)
    context = wanted.context
    lease_until = now + timedelta(seconds=wanted.lease_seconds)
    owned_by = (
        context.organization_id,
        context.project_id,
        context.user_id,
        context.change_id,
        context.task_id,
        context.run_id,
    )
    written = run(
        _HOLD,
        [
            wanted.key,
            wanted.fingerprint,
            json.dumps(ids),
            wanted.usd is not None,
            *held,
            *map(_hex, owned_by),
            context.purpose,
            context.tier,
            context.model,
            context.connector,
            wanted.owner,
            _moment(lease_until),
            _moment(now),
        ],
    )
    reservation_id: int = written.lastrowid
    run(_ENTER, [reservation_id, "hold", *held, *_NOTHING, wanted.owner, "", _moment(now)])
    return HoldRow(result="ok", reservation_id=reservation_id, state="held", lease_until=lease_until)


def _close(closing: Closing) -> CloseRow:
    found = run(_OPEN, [closing.reservation_id]).fetchone()
    if found is None:
        return CloseRow(result="missing")
    row = _Open(*found)
    to, charge, known = _charge(row, closing)
    step = _step(row, to, charge, known)
    if step in ("already", "conflict"):
        return CloseRow(result=step, state=row.state, usd=row.usd, overrun=bool(row.overrun))
    was_held = row.state == "held"
    held = (-row.hold_usd, -row.hold_tokens, -row.hold_calls) if was_held else _NOTHING
    before = row.charged
    spent = (charge[0] - before[0], charge[1] - before[1], charge[2] - before[2])
    now = _moment(timezone.now())
    ids: list[int] = json.loads(row.meters)
    _move(ids, held=held, spent=spent)
    overrun = any(charged > most for charged, most in zip(charge, row.held, strict=True))
    state = "refunded" if to == "released" else to
    quality, released_by = closing.usage_quality, _hex(closing.released_by_id)
    usage, rates = _text(closing.usage), _text(closing.rates)
    run(
        _CLOSE,
        [
            state,
            *charge,
            known,
            now,
            overrun,
            usage,
            rates,
            quality,
            quality,
            released_by,
            closing.reservation_id,
        ],
    )
    run(_ENTER, [closing.reservation_id, step, *held, *spent, closing.actor, closing.reason, now])
    return CloseRow(
        result="late" if step == "late" else "ok",
        state=state,
        usd=charge[0],
        overrun=overrun,
        meters=tuple(ids),
        crossed=_crossed(ids, spent, closing.thresholds),
    )


def _charge(row: _Open, closing: Closing) -> tuple[str, _Amounts, int | None]:
    """Where it really ends, what is charged, and the known cost (None: unknown)."""
    to = closing.to
    # A report that nobody could read or price keeps the worst case.
    if to == "settled" and (closing.tokens is None or (closing.usd is None and row.priced)):
        to = "unknown"
    charge: _Amounts
    if to == "settled":
        assert closing.tokens is not None, "an unreadable report became unknown above"
        charge, known = (closing.usd or 0, closing.tokens, row.hold_calls), closing.usd
    elif to == "unknown":
        charge, known = row.held, None
    elif to == "refunded":
        charge, known = _NOTHING, 0
    elif to == "released":
        charge, known = (0, 0, row.hold_calls), 0
    else:
        raise ValueError(f"close to {to}")
    if min(charge) < 0:
        raise ValueError(f"bad amounts {charge}")
    return to, charge, known


def _step(row: _Open, to: str, charge: _Amounts, known: int | None) -> str:
    """The kind of entry that this report makes; or `already`, or `conflict`."""
    if row.state == "held" and to != "released":
        return {"settled": "settle", "refunded": "refund"}.get(to, "unknown")
    same_end = row.state == ("refunded" if to == "released" else to)
    if same_end and (row.usd, row.tokens, row.calls, row.cost) == (*charge, known):
        return "already"
    if row.state == "settled" and to == "unknown":
        return "already"  # the reaper lost the race, or a second report says less: the first one stands
    if row.state == "unknown" and to == "released":
        return "release"
    if row.state == "unknown" and to in ("settled", "refunded"):
        return "late"
    if row.state == "refunded" and row.released_by is not None and to == "settled":
        return "late"
    return "conflict"


def _move(ids: Sequence[int], *, held: _Amounts, spent: _Amounts) -> None:
    moved = run(_marked(_MOVE, ids), [*held, *spent, *ids]).rowcount
    assert moved == len(ids), f"{moved} meters of {ids} moved"


def _crossed(ids: Sequence[int], spent: _Amounts, thresholds: tuple[int, ...]) -> tuple[int, ...]:
    """The meters that passed a soft threshold by this charge."""
    if not thresholds or not any(spent):
        return ()
    limited = run(_marked(_LIMITED, ids), ids).fetchall()
    return tuple(
        meter_id
        for meter_id, *columns in limited
        if any(
            thresholds_passed(limit=limit, spent=now, percents=thresholds)
            > thresholds_passed(limit=limit, spent=now - moved, percents=thresholds)
            for limit, now, moved in zip(columns[::2], columns[1::2], spent, strict=True)
            if limit is not None
        )
    )


def _marked(sql: str, values: Sequence[object]) -> str:
    return sql.format(marks=", ".join("?" * len(values)))


def _moment(value: datetime) -> str | None:
    return connection.ops.adapt_datetimefield_value(value)


def _hex(value: UUID | None) -> str | None:
    return None if value is None else value.hex


def _text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)
