"""Hold-and-settle pairs per second through Django on PostgreSQL, beside pgbench writing the same rows in the same run.

Five meters a call. hot: one organization, so every call writes the same two rows; spread: a hundred organizations.
`BENCH_DATABASE_URL` names a server; a database of its own is made there and dropped.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from django.utils import timezone

from bench.measured import Measured, Skipped
from budgets.decisions import Amount, period_of
from budgets.keys import MeterKey, MeterKind
from budgets.meters import ensure_meters
from budgets.models import Meter
from budgets.money import Usd
from budgets.reservations import CallContext, Held, reserve, settle
from config import stores
from providers.messages import Usage
from tenants.models import Organization

SECONDS = 2.0
ROUNDS = 3
WARM_PAIRS = 10
CONNECTIONS = (1, 8, 32)
PROCESSES_MAX = 8
ORGANIZATIONS, SUBJECTS, CHANGES = 100, 100, 1_000
CHANGES_EACH = CHANGES // ORGANIZATIONS
CALL_SECONDS = 2.0  # a short model call, for the share that the ledger takes of it
USAGE = Usage(input_uncached=5_000, cache_read=30_000, cache_write_5m=4_000, output=1_200)

# Which five meters pay, chosen as `World.meters` does.
CHOICE = """
\\set place random(0, {places} - 1)
\\set project {project} + {project_place}
\\set person {person} + {person_place}
\\set change {change} + {change_place}
\\set month {month} + :place
\\set day {day} + :place
\\set serial random(1, 9000000000000000000)
"""

# The same rows as one call of ours, without a check, a lock order or a key that is looked up: two prepared statements.
RAW_SCRIPT = """
WITH u AS (UPDATE budgets_meter SET held_usd = held_usd + 260000, held_tokens = held_tokens + 56000,
                  held_calls = held_calls + 1 WHERE id IN (:change, :project, :person, :month, :day)),
     r AS (INSERT INTO budgets_reservation (key, fingerprint, state, meters, priced, hold_usd, hold_tokens, hold_calls,
             overrun, usage_quality, organization_id, purpose, tier, model, connector, owner, lease_until, created_at)
           VALUES ('raw' || :serial, repeat('f', 64), 'held',
             jsonb_build_array(:change::bigint, :project::bigint, :person::bigint, :month::bigint, :day::bigint), true,
             260000, 56000, 1, false, '', '{organization}', 'agent', 'sonnet', 'claude-sonnet-5-5', 'main', 'w',
             now() + interval '60 s', now()) RETURNING id)
INSERT INTO budgets_entry (reservation_id, kind, held_usd, held_tokens, held_calls, spent_usd, spent_tokens,
       spent_calls, actor, reason, at) SELECT id, 'hold', 260000, 56000, 1, 0, 0, 0, 'w', '', now() FROM r
RETURNING reservation_id AS held \\gset
WITH u AS (UPDATE budgets_meter SET held_usd = held_usd - 260000, held_tokens = held_tokens - 56000,
                  held_calls = held_calls - 1, spent_usd = spent_usd + 35000, spent_tokens = spent_tokens + 40200,
                  spent_calls = spent_calls + 1 WHERE id IN (:change, :project, :person, :month, :day)),
     r AS (UPDATE budgets_reservation SET state = 'settled', usd = 35000, tokens = 40200, calls = 1, cost = 35000,
                  closed_at = now(), usage = '{{"input_uncached": 5000, "cache_read": 30000, "cache_write_5m": 4000,
                  "cache_write_1h": 0, "output": 1200, "candidates": 1}}', usage_quality = 'reported',
                  rates = '{{"input": "2"}}' WHERE id = :held)
INSERT INTO budgets_entry (reservation_id, kind, held_usd, held_tokens, held_calls, spent_usd, spent_tokens,
       spent_calls, actor, reason, at)
       VALUES (:held, 'settle', -260000, -56000, -1, 35000, 40200, 1, 'settle', '', now());
"""

# The two functions of the ledger, as Django calls them, from pgbench: what is left of the ratio without Python.
FUNCTIONS_SCRIPT = """
SELECT reservation_id AS held
  FROM budgets_reserve(
    'fn' || :serial, repeat('f', 64),
    ARRAY(SELECT name FROM budgets_meter WHERE id IN (:change, :project, :person, :month, :day))::text[],
    260000, 56000, 1, 'w', 60, '{organization}'::uuid, NULL, NULL, NULL, NULL, NULL,
    'agent', 'sonnet', 'claude-sonnet-5-5', 'main') \\gset
SELECT result FROM budgets_close(
  :held, 'settled', 35000, 40200,
  '{{"input_uncached": 5000, "cache_read": 30000, "cache_write_5m": 4000, "cache_write_1h": 0, "output": 1200,
     "candidates": 1}}', 'reported', '{{"input": "2"}}', 'settle', '', NULL, ARRAY[50, 80, 100]);
"""


@dataclass(frozen=True, slots=True)
class World:
    """Organizations with their meters, and the ids at which each kind of meter begins."""

    spread: bool
    organizations: tuple[UUID, ...]
    now: datetime
    begins: dict[MeterKind, int]

    def meters(self, chance: random.Random) -> tuple[MeterKey, ...]:
        """The five that pay for one call."""
        place = chance.randrange(len(self.organizations))
        organization = self.organizations[place]
        project, person = (
            (place, place) if self.spread else (chance.randrange(SUBJECTS), chance.randrange(SUBJECTS))
        )
        change = (
            place * CHANGES_EACH + chance.randrange(CHANGES_EACH)
            if self.spread
            else chance.randrange(CHANGES)
        )
        return (
            _key(MeterKind.CHANGE, organization, change, self.now),
            _key(MeterKind.PROJECT, organization, project, self.now),
            _key(MeterKind.USER, organization, person, self.now),
            _key(MeterKind.ORGANIZATION, organization, organization, self.now),
            _key(MeterKind.DAILY_CALLS, organization, organization, self.now),
        )

    def script(self, statements: str) -> str:
        """The same choice for pgbench, and what it does with it."""
        places = {
            "project_place": ":place" if self.spread else f"random(0, {SUBJECTS - 1})",
            "person_place": ":place" if self.spread else f"random(0, {SUBJECTS - 1})",
            "change_place": f":place * {CHANGES_EACH} + random(0, {CHANGES_EACH - 1})"
            if self.spread
            else f"random(0, {CHANGES - 1})",
        }
        return (CHOICE + statements).format(
            change=self.begins[MeterKind.CHANGE],
            project=self.begins[MeterKind.PROJECT],
            person=self.begins[MeterKind.USER],
            month=self.begins[MeterKind.ORGANIZATION],
            day=self.begins[MeterKind.DAILY_CALLS],
            organization=self.organizations[0],
            places=len(self.organizations),
            **places,
        )


def measure() -> Iterable[Measured]:
    with postgres() as url:
        for spread in (False, True):
            world = make_world(spread=spread)
            for clients in CONNECTIONS:
                yield cell(url, world, clients=clients, aim="" if clients == 32 else aim_of(spread))
            yield functions_alone(url, world, clients=8)
        yield share_of_a_call(make_world(spread=False))


def aim_of(spread: bool) -> str:
    return "at least 0.4" if spread else "at least 0.5"


def cell(url: str, world: World, *, clients: int, aim: str, note: str = "") -> Measured:
    """One cell: raw and ours in turns, medians of each."""
    raws, ours, slow = [], [], []
    for _ in range(ROUNDS):
        raws.append(raw_pairs(url, world, clients=clients))
        pairs, latencies = our_pairs(world, clients=clients)
        ours.append(pairs)
        slow += latencies
    p99 = quantiles(slow, n=100)[98] * 1_000
    name = f"{'spread' if world.spread else 'hot'}, {clients} connections{note}, p99 {p99:.1f} ms"
    return Measured(
        what=name,
        ours=f"{median(ours):,.0f}/s",
        theirs=f"{median(raws):,.0f}/s",
        ratio=median(ours) / median(raws),
        aim=aim,
    )


def functions_alone(url: str, world: World, *, clients: int) -> Measured:
    """What the design costs by itself; the rest of a cell's ratio is Python's share of the same cores."""
    raws, ours = [], []
    for _ in range(ROUNDS):
        raws.append(raw_pairs(url, world, clients=clients))
        ours.append(raw_pairs(url, world, clients=clients, statements=FUNCTIONS_SCRIPT))
    return Measured(
        what=f"{'spread' if world.spread else 'hot'}, {clients} connections, the functions alone, by pgbench",
        ours=f"{median(ours):,.0f}/s",
        theirs=f"{median(raws):,.0f}/s",
        ratio=median(ours) / median(raws),
    )


def share_of_a_call(world: World) -> Measured:
    _, latencies = our_pairs(world, clients=1)
    typical = median(latencies)
    return Measured(
        what="hold and settle, beside a model call of 2 s",
        ours=f"{typical * 1_000:.2f} ms",
        theirs=f"{CALL_SECONDS * 1_000:.0f} ms",
        ratio=typical / CALL_SECONDS,
        aim="at most 0.01",
    )


def our_pairs(world: World, *, clients: int) -> tuple[float, list[float]]:
    """Pairs a second over all clients, and the seconds of each pair."""
    connections.close_all()
    context = multiprocessing.get_context("fork")
    processes = min(clients, PROCESSES_MAX)
    answers = context.SimpleQueue()
    start = context.Barrier(clients)
    children = [
        context.Process(target=_client, args=(world, clients // processes, start, answers))
        for _ in range(processes)
    ]
    for child in children:
        child.start()
    found = [answers.get() for _ in children]
    for child in children:
        child.join()
    latencies = [seconds for part in found for seconds in part]
    return len(latencies) / SECONDS, latencies


def raw_pairs(url: str, world: World, *, clients: int, statements: str = RAW_SCRIPT) -> float:
    """What pgbench reaches with the same rows: transactions a second, each a pair."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(world.script(statements))
        file.flush()
        threads = str(min(clients, 2))
        command = [
            "pgbench",
            "-n",
            "-M",
            "prepared",
            "-c",
            str(clients),
            "-j",
            threads,
            "-T",
            f"{SECONDS:.0f}",
        ]
        # By index, rows are taken in ascending id; by a scan of this small table the raw writes would deadlock.
        options = {**os.environ, "PGOPTIONS": "-c enable_seqscan=off -c enable_bitmapscan=off"}
        done = subprocess.run(
            [*command, "-f", file.name, url], capture_output=True, text=True, check=False, env=options
        )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    if found is None:
        raise Skipped(f"pgbench failed: {done.stderr[-300:]}")
    return float(found.group(1))


def make_world(*, spread: bool) -> World:
    """A thousand Changes, a hundred projects and people: of one organization, or of a hundred."""
    now = timezone.now()
    count = ORGANIZATIONS if spread else 1
    rows = [Organization.objects.create(slug=f"bench-{uuid4().hex[:12]}", name="bench") for _ in range(count)]
    own = tuple(row.pk for row in rows)

    def keys(kind: MeterKind, number: int) -> list[MeterKey]:
        return [_key(kind, own[one * count // number], one, now) for one in range(number)]

    kinds = {
        MeterKind.CHANGE: keys(MeterKind.CHANGE, CHANGES),
        MeterKind.PROJECT: keys(MeterKind.PROJECT, SUBJECTS),
        MeterKind.USER: keys(MeterKind.USER, SUBJECTS),
        MeterKind.ORGANIZATION: [_key(MeterKind.ORGANIZATION, one, one, now) for one in own],
        MeterKind.DAILY_CALLS: [_key(MeterKind.DAILY_CALLS, one, one, now) for one in own],
    }
    begins = {kind: _make_meters(made) for kind, made in kinds.items()}
    Meter.objects.update(limit_usd=Usd(10**15), limit_calls=10**12)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE budgets_meter")
    return World(spread, own, now, begins)


def _make_meters(keys: list[MeterKey]) -> int:
    """One after the other, so that their ids follow each other as the script counts on; the first id."""
    for key in keys:
        ensure_meters([key])
    ids = dict(Meter.objects.filter(name__in=[key.name for key in keys]).values_list("name", "pk"))
    first: int = ids[keys[0].name]
    assert ids[keys[-1].name] - first == len(keys) - 1, "ids with holes"
    return first


@contextmanager
def postgres() -> Iterator[str]:
    """A database of its own, migrated, as Django's default for this while."""
    server = os.environ.get("BENCH_DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres")
    name = f"remit_bench_{os.getpid()}"
    url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    try:
        admin = psycopg.connect(server, autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as error:
        raise Skipped(f"no PostgreSQL at BENCH_DATABASE_URL: {str(error).strip().splitlines()[0]}") from None
    admin.execute(f'CREATE DATABASE "{name}"')
    try:
        with database_swapped(stores.database(replace(settings.PLANE, database_url=url))):
            call_command("migrate", verbosity=0)
            yield url
    finally:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        admin.close()


@contextmanager
def database_swapped(database: dict[str, Any]) -> Iterator[None]:
    """Django's default is this database, for this while."""
    before = connections.settings["default"]
    try:
        _swap(connections.configure_settings({"default": database})["default"])
        yield
    finally:
        _swap(before)


def use_database(url: str) -> None:
    """Point Django's default connection there, inside of `postgres()`."""
    wanted = stores.database(replace(settings.PLANE, database_url=url))
    _swap(connections.configure_settings({"default": wanted})["default"])


def _swap(database: dict[str, Any]) -> None:
    connections.close_all()
    connections.settings["default"] = database
    with contextlib.suppress(AttributeError):  # not opened since the last swap
        del connections["default"]


def _key(kind: MeterKind, organization_id: UUID, subject: object, now: Any) -> MeterKey:
    return MeterKey(kind, organization_id, str(subject), period_of(kind, now))


def _client(world: World, threads: int, start: Any, answers: Any) -> None:
    found: list[list[float]] = [[] for _ in range(threads)]
    workers = [threading.Thread(target=_pairs, args=(world, start, found[one])) for one in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    answers.put([seconds for part in found for seconds in part])
    os._exit(0)


def _pairs(world: World, start: Any, latencies: list[float]) -> None:
    """From a warm connection, as pgbench counts: its rate leaves out the time of connecting."""
    chance = random.Random()  # noqa: S311  # a load, not a secret
    for _ in range(WARM_PAIRS):
        _pair(world, chance)
    start.wait(timeout=60)
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        started = time.perf_counter()
        _pair(world, chance)
        latencies.append(time.perf_counter() - started)
    connection.close()


def _pair(world: World, chance: random.Random) -> None:
    meters = world.meters(chance)
    organization_id = meters[0].organization_id
    assert organization_id is not None, "no platform meter here"
    held = reserve(
        key=uuid4().hex,
        meters=meters,
        amount=Amount(Usd(260_000), 56_000),
        context=CallContext(
            organization_id=organization_id,
            purpose="agent",
            tier="sonnet",
            model="claude-sonnet-5-5",
            connector="main",
        ),
        owner="w",
        lease_seconds=60,
    )
    assert isinstance(held, Held), held
    settle(held.reservation_id, cost=Usd(35_000), usage=USAGE, rates={"input": "2"})
