"""The ledger on SQLite: the same outcomes as the PostgreSQL functions, in one short IMMEDIATE transaction.

`BEGIN IMMEDIATE` (settings: transaction_mode) is the one lock, so no order of rows matters here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from budgets.decisions import Amount, MeterReading, thresholds_passed, why_refused
from budgets.ledger.words import CloseRow, Closing, HoldRow, Wanted
from budgets.models import Entry, Meter, Reservation
from budgets.money import Usd

_MOVE = (
    "UPDATE budgets_meter SET"
    " held_usd = held_usd + %s, held_tokens = held_tokens + %s, held_calls = held_calls + %s,"
    " spent_usd = spent_usd + %s, spent_tokens = spent_tokens + %s, spent_calls = spent_calls + %s WHERE id IN "
)


def hold(wanted: Wanted) -> HoldRow:
    """Hold on every meter or on none."""
    with transaction.atomic():
        now = timezone.now()
        found = Reservation.objects.filter(key=wanted.key).first()
        if found is not None:
            return HoldRow(
                result="exists" if found.fingerprint == wanted.fingerprint else "conflict",
                reservation_id=found.pk,
                state=found.state,
                lease_until=found.lease_until,
                lapsed=found.lease_until < now,
            )
        meters = list(Meter.objects.filter(name__in=wanted.names).order_by("pk"))
        if len(meters) != len(wanted.names):
            return HoldRow(result="missing")
        amount = Amount(None if wanted.usd is None else Usd(wanted.usd), wanted.tokens, wanted.calls)
        refusing = [meter.reading() for meter in meters if why_refused([meter.reading()], amount)]
        if refusing:
            return HoldRow(result="refused", refusing=tuple(refusing))
        return _write_hold(wanted, [meter.pk for meter in meters], now)


def close(closing: Closing) -> CloseRow:
    """End a reservation, whichever way."""
    with transaction.atomic():
        return _close(closing)


def reap_one(now: datetime, *, actor: str) -> int | None:
    """Turn one lapsed hold into an unknown charge; its id, or None when there is none left."""
    with transaction.atomic():
        before = min(now, timezone.now())
        lapsed = Reservation.objects.filter(state="held", lease_until__lt=before).order_by("lease_until")
        found: int | None = lapsed.values_list("pk", flat=True).first()
        if found is not None:
            _close(
                Closing(
                    reservation_id=found, to="unknown", actor=actor, reason="the lease ended", thresholds=()
                )
            )
        return found


def _write_hold(wanted: Wanted, ids: list[int], now: datetime) -> HoldRow:
    usd = wanted.usd or 0
    _move(ids, held=(usd, wanted.tokens, wanted.calls), spent=(0, 0, 0))
    context = wanted.context
    row = Reservation.objects.create(
        key=wanted.key,
        fingerprint=wanted.fingerprint,
        meters=ids,
        priced=wanted.usd is not None,
        hold_usd=Usd(usd),
        hold_tokens=wanted.tokens,
        hold_calls=wanted.calls,
        organization_id=context.organization_id,
        project_id=context.project_id,
        user_id=context.user_id,
        change_id=context.change_id,
        task_id=context.task_id,
        run_id=context.run_id,
        purpose=context.purpose,
        tier=context.tier,
        model=context.model,
        connector=context.connector,
        owner=wanted.owner,
        lease_until=now + timedelta(seconds=wanted.lease_seconds),
        created_at=now,
    )
    _enter(
        row.pk, "hold", held=(usd, wanted.tokens, wanted.calls), spent=(0, 0, 0), actor=wanted.owner, at=now
    )
    return HoldRow(result="ok", reservation_id=row.pk, state="held", lease_until=row.lease_until)


def _close(closing: Closing) -> CloseRow:
    row = Reservation.objects.filter(pk=closing.reservation_id).first()
    if row is None:
        return CloseRow(result="missing")
    to, charge, known = _charge(row, closing)
    step = _step(row, to, charge, known)
    if step in ("already", "conflict"):
        return CloseRow(result=step, state=row.state, usd=_micro(row.usd), overrun=row.overrun)
    held, spent = (0, 0, 0), charge
    if row.state == "held":
        held = (-row.hold_usd.micro, -row.hold_tokens, -row.hold_calls)
    else:
        spent = (charge[0] - row.usd.micro, charge[1] - row.tokens, charge[2] - row.calls)
    now = timezone.now()
    _move(row.meters, held=held, spent=spent)
    overrun = charge[0] > row.hold_usd.micro or charge[1] > row.hold_tokens or charge[2] > row.hold_calls
    state = "refunded" if to == "released" else to
    _write_close(row, closing, state=state, charge=charge, known=known, overrun=overrun, now=now)
    _enter(row.pk, step, held=held, spent=spent, actor=closing.actor, at=now, reason=closing.reason)
    return CloseRow(
        result="late" if step == "late" else "ok",
        state=state,
        usd=charge[0],
        overrun=overrun,
        meters=tuple(row.meters),
        crossed=tuple(_crossed(row.meters, spent, closing.thresholds)),
    )


def _charge(row: Reservation, closing: Closing) -> tuple[str, tuple[int, int, int], int | None]:
    """Where it really ends, what is charged, and the known cost (None: unknown)."""
    to = closing.to
    # A report that nobody could read or price keeps the worst case.
    if to == "settled" and (closing.tokens is None or (closing.usd is None and row.priced)):
        to = "unknown"
    if to == "settled":
        assert closing.tokens is not None, "an unreadable report became unknown above"
        charge, known = (closing.usd or 0, closing.tokens, row.hold_calls), closing.usd
    elif to == "unknown":
        charge, known = (row.hold_usd.micro, row.hold_tokens, row.hold_calls), None
    elif to == "refunded":
        charge, known = (0, 0, 0), 0
    elif to == "released":
        charge, known = (0, 0, row.hold_calls), 0
    else:
        raise ValueError(f"close to {to}")
    if min(charge) < 0:
        raise ValueError(f"bad amounts {charge}")
    return to, charge, known


def _step(row: Reservation, to: str, charge: tuple[int, int, int], known: int | None) -> str:
    """The kind of entry that this report makes; or `already`, or `conflict`."""
    if row.state == "held" and to != "released":
        return {"settled": "settle", "refunded": "refund"}.get(to, "unknown")
    same_end = row.state == ("refunded" if to == "released" else to)
    if same_end and (_micro(row.usd), row.tokens, row.calls, _micro(row.cost)) == (*charge, known):
        return "already"
    if row.state == "settled" and to == "unknown":
        return "already"  # the reaper lost the race, or a second report says less: the first one stands
    if row.state == "unknown" and to == "released":
        return "release"
    if row.state == "unknown" and to in ("settled", "refunded"):
        return "late"
    if row.state == "refunded" and row.released_by_id is not None and to == "settled":
        return "late"
    return "conflict"


def _write_close(
    row: Reservation,
    closing: Closing,
    *,
    state: str,
    charge: tuple[int, int, int],
    known: int | None,
    overrun: bool,
    now: datetime,
) -> None:
    row.state = state
    row.usd, row.tokens, row.calls = Usd(charge[0]), charge[1], charge[2]
    row.cost = None if known is None else Usd(known)
    row.overrun = overrun
    row.closed_at = now
    row.usage = row.usage if closing.usage is None else dict(closing.usage)
    row.rates = row.rates if closing.rates is None else dict(closing.rates)
    row.usage_quality = closing.usage_quality or row.usage_quality
    row.released_by_id = closing.released_by_id or row.released_by_id
    row.save()


def _move(ids: Sequence[int], *, held: tuple[int, int, int], spent: tuple[int, int, int]) -> None:
    """The only statement that changes a meter's counters: all of them in one.

    Written out, since it runs twice a call under the one lock, and composing it took a quarter of a pair's time.
    """
    with connection.cursor() as cursor:
        cursor.execute(_MOVE + f"({', '.join(['%s'] * len(ids))})", [*held, *spent, *ids])
        assert cursor.rowcount == len(ids), f"{cursor.rowcount} meters of {ids} moved"


def _enter(
    reservation_id: int,
    kind: str,
    *,
    held: tuple[int, int, int],
    spent: tuple[int, int, int],
    actor: str,
    at: datetime,
    reason: str = "",
) -> None:
    Entry.objects.create(
        reservation_id=reservation_id,
        kind=kind,
        held_usd=Usd(held[0]),
        held_tokens=held[1],
        held_calls=held[2],
        spent_usd=Usd(spent[0]),
        spent_tokens=spent[1],
        spent_calls=spent[2],
        actor=actor,
        reason=reason,
        at=at,
    )


def _crossed(ids: Sequence[int], spent: tuple[int, int, int], thresholds: tuple[int, ...]) -> list[int]:
    """The meters that passed a soft threshold by this charge."""
    if not thresholds or not any(spent):
        return []
    limited = Meter.objects.filter(pk__in=ids).exclude(
        limit_usd__isnull=True, limit_tokens__isnull=True, limit_calls__isnull=True
    )
    return [meter.pk for meter in limited if _passed_one(meter.reading(), spent, thresholds)]


def _passed_one(reading: MeterReading, spent: tuple[int, int, int], thresholds: tuple[int, ...]) -> bool:
    now_and_limit = (
        (reading.spent_usd.micro, _micro(reading.limit_usd)),
        (reading.spent_tokens, reading.limit_tokens),
        (reading.spent_calls, reading.limit_calls),
    )
    return any(
        thresholds_passed(limit=limit, spent=now, percents=thresholds)
        > thresholds_passed(limit=limit, spent=now - moved, percents=thresholds)
        for (now, limit), moved in zip(now_and_limit, spent, strict=True)
    )


def _micro(value: Usd | None) -> int | None:
    return None if value is None else value.micro
