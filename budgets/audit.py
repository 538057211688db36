"""The audit: every invariant of the books, added up a second way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import connection, transaction

from budgets.decisions import period_of
from budgets.keys import COUNTS_CALLS, MeterKind
from budgets.meters import LIMIT_FOLLOWED
from budgets.models import LedgerVerdict, LimitChange, LimitRule, Meter

PROBLEMS_KEPT_MAX = 100
# A lapsed hold older than this means that no sweep runs.
LAPSED_MINUTES_MAX = 10
VERDICT_HOURS_MAX = 26  # a nightly audit, and two hours of patience
HAVE_DEFAULTS = frozenset({MeterKind.ORGANIZATION, *COUNTS_CALLS})
_UNITS = ("usd", "tokens", "calls")

# Each row found is one problem: its first column says where.
_UNEQUAL = """
WITH x AS ({sums})
SELECT m.name FROM budgets_meter m LEFT JOIN x ON x.id = m.id
 WHERE (m.held_usd, m.held_tokens, m.held_calls, m.spent_usd, m.spent_tokens, m.spent_calls)
    <> (coalesce(hu, 0), coalesce(hk, 0), coalesce(hc, 0), coalesce(su, 0), coalesce(sk, 0), coalesce(sc, 0))
"""
_SUMS_OF_RESERVATIONS = """
SELECT {id} AS id,
       sum(CASE WHEN state = 'held' THEN hold_usd ELSE 0 END) AS hu,
       sum(CASE WHEN state = 'held' THEN hold_tokens ELSE 0 END) AS hk,
       sum(CASE WHEN state = 'held' THEN hold_calls ELSE 0 END) AS hc,
       sum(coalesce(usd, 0)) AS su, sum(coalesce(tokens, 0)) AS sk, sum(coalesce(calls, 0)) AS sc
  FROM budgets_reservation r, {each} GROUP BY {id}
"""
_SUMS_OF_ENTRIES = """
SELECT {id} AS id, sum(e.held_usd) AS hu, sum(e.held_tokens) AS hk, sum(e.held_calls) AS hc,
       sum(e.spent_usd) AS su, sum(e.spent_tokens) AS sk, sum(e.spent_calls) AS sc
  FROM budgets_entry e JOIN budgets_reservation r ON r.id = e.reservation_id, {each} GROUP BY {id}
"""
_STRANGE_METERS = """
SELECT r.key FROM budgets_reservation r, {each}
  LEFT JOIN budgets_meter m ON m.id = {id}
 WHERE m.id IS NULL OR (m.organization_id IS NOT NULL AND m.organization_id <> r.organization_id)
"""
# A meter may stand above its limit only after an overrun, a bill that came after a release, or when a limit
# that reached so far was in force since the meter began: one that somebody set, or the deployment's before it changed.
_OVER_THE_LIMIT = """
SELECT m.name FROM budgets_meter m
 WHERE m.spent_{unit} + m.held_{unit} > m.limit_{unit}
   AND NOT EXISTS (SELECT 1 FROM budgets_reservation r, {each}
                    WHERE {id} = m.id AND (r.overrun OR (r.released_by_id IS NOT NULL AND r.state = 'settled')))
   AND NOT EXISTS (SELECT 1 FROM budgets_limitchange c
                    WHERE c.kind = m.kind AND c.subject = m.subject AND c.unit = '{unit}'
                      AND (c.organization_id = m.organization_id OR m.organization_id IS NULL)
                      AND (c.before >= m.spent_{unit} + m.held_{unit} OR c.after >= m.spent_{unit} + m.held_{unit}
                           OR (c.at > m.created_at AND (c.before IS NULL OR c.after IS NULL))))
   AND NOT EXISTS (SELECT 1 FROM tenants_auditentry a
                    WHERE a.action = '{followed}' AND a.organization_id = m.organization_id
                      AND a.subject = m.kind || ' ' || m.subject AND a.at > m.created_at)
"""
_BROKEN_CHAINS = """
WITH e AS (
  SELECT reservation_id,
         sum(CASE WHEN kind = 'hold' THEN 1 ELSE 0 END) AS holds,
         sum(CASE WHEN kind IN ('settle', 'unknown', 'refund') THEN 1 ELSE 0 END) AS ends,
         sum(CASE WHEN kind = 'unknown' THEN 1 ELSE 0 END) AS unknowns,
         sum(CASE WHEN kind = 'late' THEN 1 ELSE 0 END) AS lates,
         sum(CASE WHEN kind = 'release' THEN 1 ELSE 0 END) AS releases
    FROM budgets_entry GROUP BY reservation_id)
SELECT r.key FROM budgets_reservation r LEFT JOIN e ON e.reservation_id = r.id
 WHERE coalesce(holds, 0) <> 1
    OR coalesce(ends, 0) <> CASE WHEN r.state = 'held' THEN 0 ELSE 1 END
    OR (lates > 0 AND (unknowns = 0 OR r.state NOT IN ('settled', 'refunded')))
    OR (releases > 0 AND (unknowns = 0 OR r.released_by_id IS NULL))
    OR (unknowns > 0 AND lates = 0 AND releases = 0 AND r.state <> 'unknown')
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last audit, for a readiness probe: no problem and not stale, or a warning. None: there was none yet."""

    problems: tuple[str, ...]
    problem_count: int
    at: datetime
    stale: bool


def audit_ledger(now: datetime) -> tuple[str, ...]:
    """Check every invariant on one snapshot, keep the verdict, and return what is wrong (I1 to I6)."""
    with _snapshot():
        problems = tuple(find_problems(now))
    LedgerVerdict.objects.update_or_create(
        pk=1,
        defaults={"problems": list(problems[:PROBLEMS_KEPT_MAX]), "problem_count": len(problems), "at": now},
    )
    return problems


def ledger_problems(now: datetime) -> Verdict | None:
    """What the last audit found: one read, whatever the size of the books."""
    row = LedgerVerdict.objects.filter(pk=1).first()
    if row is None:
        return None
    stale = now - row.at > timedelta(hours=VERDICT_HOURS_MAX)
    return Verdict(tuple(row.problems), row.problem_count, row.at, stale)


def find_problems(now: datetime) -> Iterator[str]:
    """Each broken invariant, in words."""
    for name in _names(_UNEQUAL.replace("{sums}", _SUMS_OF_RESERVATIONS)):
        yield f"I1: meter {name} differs from the sum of its reservations"
    for name in _names(_UNEQUAL.replace("{sums}", _SUMS_OF_ENTRIES)):
        yield f"I2: meter {name} differs from the sum of its entries"
    for key in _names(_STRANGE_METERS):
        yield f"I2: reservation {key} names a meter that is missing or another organization's"
    for unit in _UNITS:
        for name in _names(_OVER_THE_LIMIT.replace("{unit}", unit).replace("{followed}", LIMIT_FOLLOWED)):
            yield f"I3: meter {name} is over its limit in {unit}, and no overrun or lowered limit explains it"
    for key in _names(_BROKEN_CHAINS):
        yield f"I4: reservation {key} has entries that do not fit its state"
    long_ago = now - timedelta(minutes=LAPSED_MINUTES_MAX)
    for key in _names(
        "SELECT key FROM budgets_reservation WHERE state = 'held' AND lease_until < %s", [long_ago]
    ):
        yield f"I5: reservation {key} has lapsed more than {LAPSED_MINUTES_MAX} minutes ago: no sweep runs"
    yield from _limit_problems(now)


def _limit_problems(now: datetime) -> Iterator[str]:
    """I6: each change of a limit starts where the last one ended; the last one is the rule, the rule the open meter."""
    rules = {(rule.kind, rule.organization_id, rule.subject): rule for rule in LimitRule.objects.all()}
    changes = LimitChange.objects.order_by(
        "kind", "organization_id", "subject", "unit", "at", "id"
    ).iterator()
    for place, chain in groupby(
        changes, key=lambda one: (one.kind, one.organization_id, one.subject, one.unit)
    ):
        before: Any = None
        for number, change in enumerate(chain):
            if number and change.before != before:
                yield f"I6: limit change {change.pk} starts at {change.before}, the one before it ended at {before}"
            before = change.after
        rule = rules.get(place[:3])
        if rule is None or _plain(rule, place[3]) != before:
            yield f"I6: the rule of {place[0]} {place[2]} is not what its last change set"
    periods = {kind: period_of(kind, now) for kind in MeterKind}
    for meter in Meter.objects.filter(period__in=set(periods.values())).iterator():
        rule = rules.get((meter.kind, meter.organization_id, meter.subject))
        wanted = [_plain(rule, unit) for unit in _UNITS] if rule else [None] * len(_UNITS)
        # Without a rule these have the default of their first day, which a deployment may change.
        known = rule is not None or meter.kind not in HAVE_DEFAULTS
        differs = known and wanted != [_plain(meter, unit) for unit in _UNITS]
        if differs and meter.period == periods[MeterKind(meter.kind)]:
            yield f"I6: meter {meter.name} does not have the limit of its rule"


def _plain(row: LimitRule | Meter, unit: str) -> int | None:
    value = getattr(row, f"limit_{unit}")
    return value if value is None or isinstance(value, int) else value.micro


def _names(sql: str, params: list[Any] | None = None) -> list[str]:
    each, ident = (
        ("jsonb_array_elements_text(r.meters) AS one(id)", "one.id::bigint")
        if connection.vendor == "postgresql"
        else ("json_each(r.meters) AS one", "one.value")
    )
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("{each}", each).replace("{id}", ident), params)
        return [str(row[0]) for row in cursor.fetchall()]


@contextmanager
def _snapshot() -> Iterator[None]:
    """All queries see one moment, and no writer waits. Inside a test's transaction: as it is."""
    if connection.in_atomic_block:
        yield
        return
    if connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
        return
    # Not `atomic`, which is IMMEDIATE here and would stop every hold for as long.
    with connection.cursor() as cursor:
        cursor.execute("BEGIN DEFERRED")
        try:
            yield
        finally:
            cursor.execute("ROLLBACK")
