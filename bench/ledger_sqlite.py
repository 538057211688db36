"""Hold-and-settle pairs per second through Django on SQLite, beside bare sqlite3 writing the same rows."""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles
from uuid import uuid4

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from bench.ledger import ROUNDS, SECONDS, World, database_swapped, make_world, our_pairs
from bench.measured import Measured

INSERT_ENTRY = (
    "INSERT INTO budgets_entry (reservation_id, kind, held_usd, held_tokens, held_calls, spent_usd, spent_tokens,"
    " spent_calls, actor, reason, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'w', '', ?)"
)
MOVE = (
    "UPDATE budgets_meter SET held_usd = held_usd + ?, held_tokens = held_tokens + ?, held_calls = held_calls + ?,"
    " spent_usd = spent_usd + ?, spent_tokens = spent_tokens + ?, spent_calls = spent_calls + ? WHERE id IN ({ids})"
)


def measure() -> Iterable[Measured]:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        path = Path(folder) / "ledger.sqlite3"
        with database_swapped({**settings.DATABASES["default"], **_sqlite(path)}):
            call_command("migrate", verbosity=0)
            world = make_world(spread=False)
            for clients in (1, 8):
                yield _cell(path, world, clients)


def _sqlite(path: Path) -> dict[str, object]:
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-20000"
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": pragmas}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options}


def _cell(path: Path, world: World, clients: int) -> Measured:
    raws, ours, slow = [], [], []
    for _ in range(ROUNDS):
        raws.append(_raw_pairs(path, world))
        pairs, latencies = our_pairs(world, clients=clients)
        ours.append(pairs)
        slow += latencies
    p99 = quantiles(slow, n=100)[98] * 1_000
    return Measured(
        what=f"hot, {clients} processes (bare: 1), p99 {p99:.1f} ms",
        ours=f"{median(ours):,.0f}/s",
        theirs=f"{median(raws):,.0f}/s",
        ratio=median(ours) / median(raws),
    )


def _raw_pairs(path: Path, world: World) -> float:
    chance, count = random.Random(), 0  # noqa: S311  # a load, not a secret
    connection.close()
    file = sqlite3.connect(path, timeout=20, isolation_level=None)
    file.execute("PRAGMA synchronous=FULL")
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        _raw_pair(file, [key.name for key in world.meters(chance)], world.organizations[0].hex)
        count += 1
    file.close()
    return count / SECONDS


def _raw_pair(file: sqlite3.Connection, names: list[str], organization: str) -> None:
    marks = ",".join("?" * len(names))
    file.execute("BEGIN IMMEDIATE")
    ids = [row[0] for row in file.execute(f"SELECT id FROM budgets_meter WHERE name IN ({marks})", names)]  # noqa: S608
    move = MOVE.replace("{ids}", marks)
    file.execute(move, [260_000, 56_000, 1, 0, 0, 0, *ids])
    held = file.execute(
        "INSERT INTO budgets_reservation (key, fingerprint, state, meters, priced, hold_usd, hold_tokens, hold_calls,"
        " overrun, usage_quality, organization_id, purpose, tier, model, connector, owner, lease_until, created_at)"
        " VALUES (?, ?, 'held', ?, 1, 260000, 56000, 1, 0, '', ?, 'agent', 'sonnet', 'm', 'main', 'w',"
        " '2027-01-01 00:00:00', '2027-01-01 00:00:00')",
        [uuid4().hex, "f" * 64, json.dumps(ids), organization],
    ).lastrowid
    file.execute(INSERT_ENTRY, [held, "hold", 260_000, 56_000, 1, 0, 0, 0, "2027-01-01 00:00:00"])
    file.execute("COMMIT")
    file.execute("BEGIN IMMEDIATE")
    file.execute(move, [-260_000, -56_000, -1, 35_000, 40_200, 1, *ids])
    file.execute(
        "UPDATE budgets_reservation SET state = 'settled', usd = 35000, tokens = 40200, calls = 1, cost = 35000,"
        " closed_at = '2027-01-01 00:00:00', usage = '{}', rates = '{}' WHERE id = ?",
        [held],
    )
    file.execute(
        INSERT_ENTRY, [held, "settle", -260_000, -56_000, -1, 35_000, 40_200, 1, "2027-01-01 00:00:00"]
    )
    file.execute("COMMIT")
