"""Workers killed with -9 at any moment: the books equal what the provider billed, or more; never less."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.utils import timezone

from budgets.audit import find_problems
from budgets.decisions import Amount
from budgets.keys import MeterKey
from budgets.meters import read_meters
from budgets.models import Reservation
from budgets.money import Usd
from budgets.reservations import Held, reap, reserve, settle
from providers.messages import Usage
from tests.budgets.processes import books_on_disk, spawn
from tests.factories.budgets import limit, make_context, make_payers

pytestmark = pytest.mark.django_db(transaction=True)

HOLD, COST = Usd(1_000), Usd(370)
USAGE = Usage(input_uncached=10, output=10)
AT_ONCE = 4
SECONDS_MAX = 240


def worker(meters: tuple[MeterKey, ...], diary: Path) -> None:
    """Hold, let the provider bill, settle, for ever. The diary outlives the kill: each line is one write."""
    log = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        key = uuid4().hex
        answer = reserve(
            key=key, meters=meters, amount=Amount(HOLD, 20), context=make_context(meters), owner=str(os.getpid()),
            lease_seconds=600,
        )  # fmt: skip
        assert isinstance(answer, Held)
        os.write(log, f"held {key}\n".encode())
        os.write(log, f"billed {key}\n".encode())
        settle(answer.reservation_id, cost=COST, usage=USAGE, rates=None)
        os.write(log, f"settled {key}\n".encode())


def storm(meters: tuple[MeterKey, ...], diary: Path, kills: int) -> int:
    """Keep some workers alive, and kill one after another at a random moment; how many died by it."""
    chance = random.Random(4711)
    connections.close_all()
    alive: list[Any] = []
    killed, until = 0, time.monotonic() + SECONDS_MAX
    while killed < kills and time.monotonic() < until:
        while len(alive) < AT_ONCE:
            alive.append(spawn(partial(worker, meters, diary)))
        time.sleep(chance.uniform(0, 0.03))
        victim = alive.pop(chance.randrange(len(alive)))
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        killed += victim.exitcode == -signal.SIGKILL
    for child in alive:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    return killed


def let_the_dead_finish() -> None:
    """A server process may still commit what its killed client had sent: the sweep comes after the last of them."""
    if connection.vendor != "postgresql":
        return
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    until = time.monotonic() + SECONDS_MAX
    with connection.cursor() as cursor:
        while time.monotonic() < until:
            cursor.execute(others)
            if cursor.fetchone() == (0,):
                return
            time.sleep(0.05)
    raise AssertionError("server processes of killed workers are still there")


def check_books(meters: tuple[MeterKey, ...], diary: Path) -> int:
    """After the sweep: nothing held, nothing acknowledged lost, never less than billed. Returns the orphans."""
    Reservation.objects.filter(state="held").update(lease_until=timezone.now() - timedelta(seconds=1))
    orphans = reap(timezone.now())
    words: dict[str, set[str]] = {"held": set(), "billed": set(), "settled": set()}
    for line in diary.read_text().splitlines():
        word, key = line.split()
        words[word].add(key)
    rows = {row.key: row for row in Reservation.objects.all()}
    assert not Reservation.objects.filter(state="held").exists()
    assert words["held"] | words["billed"] <= rows.keys(), "an acknowledged hold is lost"
    assert all(rows[key].state == "settled" and rows[key].usd == COST for key in words["settled"])
    for reading in read_meters(meters):
        assert reading.held_usd == Usd(0)
        assert reading.spent_usd.micro >= len(words["billed"]) * COST.micro
        unknown = sum(row.state == "unknown" for row in rows.values())
        settled = sum(row.state == "settled" for row in rows.values())
        assert reading.spent_usd.micro == settled * COST.micro + unknown * HOLD.micro
    assert list(find_problems(timezone.now())) == []
    return orphans


def run_storm(tmp_path: Path, kills: int) -> None:
    diary = tmp_path / "diary"
    with books_on_disk(tmp_path):
        meters = make_payers()
        limit(next(key for key in meters if key.kind == "organization"), None)
        limit(next(key for key in meters if key.kind == "daily_calls"), None)
        killed = storm(meters, diary, kills)
        let_the_dead_finish()
        assert killed >= kills, f"only {killed} kills in {SECONDS_MAX} s"
        assert check_books(meters, diary) > 0, "no kill hit the window between hold and settle"


def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    """Row 145, faults #27639, #38157: there is no buffer that a crash could empty."""
    run_storm(tmp_path, 40)


@pytest.mark.slow
@pytest.mark.postgres
def test_five_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    run_storm(tmp_path, 500)


def test_a_connection_cut_after_the_answer_was_sent_is_asked_again_by_key() -> None:
    """A commit acknowledged to nobody: the same key finds it."""
    meters = make_payers()
    key = uuid4().hex
    given = {
        "key": key, "meters": meters, "amount": Amount(HOLD, 20), "context": make_context(meters), "owner": "w",
        "lease_seconds": 600,
    }  # fmt: skip
    first = reserve(**given)  # type: ignore[arg-type]
    if connection.vendor == "postgresql":
        connection.close()
    again = reserve(**given)  # type: ignore[arg-type]
    assert isinstance(first, Held)
    assert again.reservation_id == first.reservation_id  # type: ignore[union-attr]
