"""The ledger on PostgreSQL: one function, one round trip, one commit a step (see docs/budgets.md)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from budgets.decisions import MeterReading
from budgets.driver import run
from budgets.keys import MeterKey, MeterKind
from budgets.ledger.words import Beside, CloseRow, Closing, HoldRow, Wanted, nothing
from budgets.money import Usd

_RESERVE = """
SELECT result, reservation_id, state, lease_until, lapsed, refusing
  FROM budgets_reserve(%s, %s, string_to_array(%s, %s), %s::bigint, %s::bigint, %s::bigint, %s, %s::integer,
                       %s::uuid, %s::uuid, %s::uuid, %s::uuid, %s::uuid, %s::uuid, %s, %s, %s, %s)
"""
# Stands in no name of a meter. One text costs the driver a tenth of what an array does.
_BETWEEN = "\n"
_CLOSE = """
SELECT result, state, usd, overrun, meters, crossed
  FROM budgets_close(%s::bigint, %s, %s::bigint, %s::bigint, %s::jsonb, %s, %s::jsonb, %s, %s, %s::uuid, %s::integer[])
"""


def hold(wanted: Wanted, beside: Beside = nothing) -> HoldRow:
    """Hold on every meter or on none. What is written beside comes after it: no meter is locked for so long."""
    context = wanted.context
    row = _one(
        _RESERVE,
        [
            wanted.key,
            wanted.fingerprint,
            _BETWEEN.join(wanted.names),
            _BETWEEN,
            wanted.usd,
            wanted.tokens,
            wanted.calls,
            wanted.owner,
            wanted.lease_seconds,
            context.organization_id,
            context.project_id,
            context.user_id,
            context.change_id,
            context.task_id,
            context.run_id,
            context.purpose,
            context.tier,
            context.model,
            context.connector,
        ],
    )
    result, reservation_id, state, lease_until, lapsed, refusing = row
    if result == "ok":
        _write_beside(reservation_id, beside)
    return HoldRow(
        result=result,
        reservation_id=reservation_id,
        state=state or "",
        lease_until=lease_until,
        lapsed=bool(lapsed),
        refusing=tuple(_reading(meter) for meter in _json(refusing)),
    )


def close(closing: Closing, beside: Beside = nothing) -> CloseRow:
    """End a reservation, whichever way."""
    row = _one(
        _CLOSE,
        [
            closing.reservation_id,
            closing.to,
            closing.usd,
            closing.tokens,
            _text(closing.usage),
            closing.usage_quality,
            _text(closing.rates),
            closing.actor,
            closing.reason,
            closing.released_by_id,
            f"{{{','.join(map(str, sorted(closing.thresholds)))}}}",
        ],
    )
    result, state, usd, overrun, meters, crossed = row
    if result not in ("missing", "conflict"):
        beside()
    return CloseRow(
        result=result,
        state=state or "",
        usd=usd,
        overrun=bool(overrun),
        meters=tuple(_json(meters)),
        crossed=tuple(_json(crossed)),
    )


def reap_one(now: datetime, *, actor: str) -> int | None:
    """Turn one lapsed hold into an unknown charge; its id, or None when there is none left.

    The database's clock decides, since leases were given by it; `now` can only make the reaper more patient.
    """
    reaped: int | None = _one("SELECT budgets_reap_one(%s::timestamptz, %s)", [now, actor])[0]
    return reaped


def _write_beside(reservation_id: int, beside: Beside) -> None:
    """Without it the caller sends nothing, so nothing stays held."""
    try:
        beside()
    except BaseException:
        close(Closing(reservation_id=reservation_id, to="refunded", actor="refund", reason="not_sent"))
        raise


def _one(sql: str, params: list[Any]) -> tuple[Any, ...]:
    """The one row of a statement that is its own transaction."""
    row: tuple[Any, ...] | None = run(sql, params).fetchone()
    assert row is not None, "a function that answers nothing"
    return row


def _reading(meter: dict[str, Any]) -> MeterReading:
    organization = meter["organization_id"]
    limit_usd = meter["limit_usd"]
    return MeterReading(
        key=MeterKey(
            MeterKind(meter["kind"]),
            UUID(organization) if organization else None,
            meter["subject"],
            meter["period"],
        ),
        limit_usd=None if limit_usd is None else Usd(limit_usd),
        limit_tokens=meter["limit_tokens"],
        limit_calls=meter["limit_calls"],
        spent_usd=Usd(meter["spent_usd"]),
        spent_tokens=meter["spent_tokens"],
        spent_calls=meter["spent_calls"],
        held_usd=Usd(meter["held_usd"]),
        held_tokens=meter["held_tokens"],
        held_calls=meter["held_calls"],
    )


def _json(value: Any) -> list[Any]:
    """A jsonb column through a raw cursor: Django leaves it as text."""
    if value is None:
        return []
    found: list[Any] = json.loads(value) if isinstance(value, str) else value
    return found


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
