"""Many callers at once, in real processes: exactly as many pass as fit."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from budgets.audit import find_problems
from budgets.decisions import Amount
from budgets.keys import MeterKey, MeterKind
from budgets.meters import at_period, daily_meter, platform_key, read_meters
from budgets.model_tasks import Admitted, CallPlan, TaskLimits, admit, open_task
from budgets.models import Meter, Reservation
from budgets.money import Usd
from budgets.reservations import Held, Refused, reserve, settle
from providers.messages import Usage
from tests.budgets.processes import books_on_disk, in_processes, in_threads
from tests.factories.budgets import NOON, limit, make_context, make_payers
from tests.factories.tenants import make_organization

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS = 100
# Twenty are asked for and were run; three keep the suite quick. `LEDGER_REPETITIONS=20` runs them all.
REPETITIONS = int(os.environ.get("LEDGER_REPETITIONS", "3"))
USAGE = Usage(input_uncached=10, output=10)


def payers_of_every_kind(kind: MeterKind) -> tuple[MeterKey, ...]:
    """Payers whose meter of that kind has room for ten calls of $0.10, and all others for more."""
    organization = make_organization()
    meters = make_payers(organization)
    extra = {
        MeterKind.CLASSIFIER_CALLS: daily_meter(MeterKind.CLASSIFIER_CALLS, organization.pk, now=NOON),
        MeterKind.EMBEDDINGS: daily_meter(MeterKind.EMBEDDINGS, organization.pk, now=NOON),
        MeterKind.PLATFORM: platform_key(NOON),
    }
    if kind in extra and extra[kind] not in meters:
        meters = (*meters, extra[kind])
    binding = next(key for key in meters if key.kind is kind)
    (before,) = read_meters([binding])
    ten = (
        10
        if "calls" in kind or kind is MeterKind.EMBEDDINGS
        else before.spent_usd + before.held_usd + Usd(1_000_000)
    )
    limit(binding, ten)
    return meters


def call(meters: tuple[MeterKey, ...], key: str, usd: int = 100_000) -> bool:
    answer = reserve(
        key=key,
        meters=meters,
        amount=Amount(Usd(usd), 10),
        context=make_context(meters),
        owner=key,
        lease_seconds=600,
    )
    assert isinstance(answer, Held | Refused), answer
    return isinstance(answer, Held)


def callers(meters: tuple[MeterKey, ...], processes: int, threads: int, number: int) -> int:
    """One process's part of the hundred callers; how many passed."""
    jobs = [
        partial(call, meters, f"{meters[0].subject}-{number}-{one}") for one in range(CALLERS // processes)
    ]
    return sum(in_threads(threads, jobs))


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("kind", list(MeterKind))
def test_exactly_ten_of_a_hundred_callers_pass_whatever_meter_binds(kind: MeterKind) -> None:
    """Row 146; faults C52, #34732, #30661: $1.00, $0.10 a call, 4 processes, no Redis."""
    payers = [
        payers_of_every_kind(kind) if kind is not MeterKind.PLATFORM else None for _ in range(REPETITIONS)
    ]
    for one in payers:
        meters = one or payers_of_every_kind(kind)
        passed = in_processes(4, partial(callers, meters, 4, 5))
        assert sum(passed) == 10, passed
    assert list(find_problems(timezone.now())) == []


@pytest.mark.parametrize("kind", [MeterKind.CHANGE, MeterKind.ORGANIZATION, MeterKind.DAILY_CALLS])
def test_exactly_ten_pass_in_two_processes_on_any_database(kind: MeterKind, tmp_path: Path) -> None:
    with books_on_disk(tmp_path):
        meters = payers_of_every_kind(kind)
        passed = in_processes(2, partial(callers, meters, 2, 5))
        assert sum(passed) == 10, passed
        assert Reservation.objects.filter(state="held").count() == 10
        assert list(find_problems(timezone.now())) == []


def first_calls(meters: tuple[MeterKey, ...], number: int) -> int:
    shuffled = meters if number % 2 else tuple(reversed(meters))
    jobs = [partial(call, shuffled, f"{meters[0].subject}-{number}-{one}", 1) for one in range(25)]
    return sum(in_threads(5, jobs))


def test_fifty_first_calls_of_a_new_month_make_its_rows_once(tmp_path: Path) -> None:
    """No race and no deadlock on first use; the rows start with the rule's limit."""
    with books_on_disk(tmp_path):
        organization = make_organization()
        meters = at_period(make_payers(organization), now=datetime(2027, 2, 1, tzinfo=UTC))
        assert not Meter.objects.exists()
        assert sum(in_processes(2, partial(first_calls, meters))) == 50
        assert Meter.objects.count() == len(meters)
        assert {reading.held_calls for reading in read_meters(meters)} == {50}


def there_and_back(meters: tuple[MeterKey, ...], number: int) -> int:
    ordered = meters if number % 2 else tuple(reversed(meters))
    for one in range(60):
        held = reserve(
            key=f"{uuid4().hex}-{one}",
            meters=ordered,
            amount=Amount(Usd(1), 1),
            context=make_context(meters),
            owner="w",
            lease_seconds=600,
        )
        assert isinstance(held, Held)
        settle(held.reservation_id, cost=Usd(1), usage=USAGE, rates=None)
    return 60


def test_two_meters_taken_in_opposite_order_never_deadlock(tmp_path: Path) -> None:
    """Also in a small table, where a plan may read rows in any order, and updated rows move."""
    with books_on_disk(tmp_path):
        organization = make_organization()
        meters = make_payers(organization)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE budgets_meter")
        processes = 4 if connection.vendor == "postgresql" else 2
        assert sum(in_processes(processes, partial(there_and_back, meters))) == 60 * processes
        for reading in read_meters(meters):
            assert (reading.held_calls, reading.spent_calls) == (0, 60 * processes)
        assert list(find_problems(timezone.now())) == []


def same_keys(meters: tuple[MeterKey, ...], prefix: str, number: int) -> list[Any]:
    return [
        type(
            reserve(
                key=f"{prefix}-{one}",
                meters=meters,
                amount=Amount(Usd(10), 1),
                context=make_context(meters),
                owner=str(number),
                lease_seconds=600,
            )
        ).__name__
        for one in range(40)
    ]


def test_a_storm_of_redeliveries_holds_each_key_once_and_is_never_refused(tmp_path: Path) -> None:
    """The limit has room for exactly the forty keys: a duplicate must not be refused because its twin fills it."""
    with books_on_disk(tmp_path):
        meters = make_payers()
        limit(meters[0], Usd(400))
        processes = 4 if connection.vendor == "postgresql" else 2
        answers = in_processes(processes, partial(same_keys, meters, uuid4().hex))
        flat = [answer for part in answers for answer in part]
        assert flat.count("Held") == 40
        assert flat.count("AlreadyHeld") == 40 * (processes - 1)
        assert read_meters(meters[:1])[0].held_usd == Usd(400)


def admissions(task_id: UUID, number: int) -> int:
    """How many attempts of one worker an allowance of four calls admits."""
    plan = CallPlan(model="gpt-4o-mini", input_capacity=128_000, output_tokens_max=256)
    jobs = [
        partial(admit, task_id, plan, key=f"{number}-{one}", purpose="t", phase="generation", now=NOON)
        for one in range(10)
    ]
    return sum(isinstance(answer, Admitted) for answer in in_threads(3, jobs))


def test_workers_share_the_calls_of_one_model_task(tmp_path: Path) -> None:
    """Row 149: a row lock, so across workers."""
    with books_on_disk(tmp_path):
        task_id = open_task(make_organization().pk, TaskLimits(calls_max=4), now=NOON)
        assert task_id is not None
        assert sum(in_processes(2, partial(admissions, task_id))) == 4


@pytest.mark.postgres
def test_a_hold_that_cannot_be_written_is_no_hold() -> None:
    """Faults C54 and #33923: the database is stuck, so nothing is held, and the caller hears of it."""
    meters = make_payers()
    assert call(meters, uuid4().hex)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")

    def hold_a_lock(entered: threading.Event, leave: threading.Event) -> None:
        with transaction.atomic():
            list(Meter.objects.select_for_update().filter(name=meters[0].name))
            entered.set()
            leave.wait(timeout=30)
        connection.close()

    entered, leave = threading.Event(), threading.Event()
    other = threading.Thread(target=hold_a_lock, args=(entered, leave))
    other.start()
    try:
        assert entered.wait(timeout=30)
        with pytest.raises(OperationalError):
            call(meters, uuid4().hex)
    finally:
        leave.set()
        other.join()
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = 0")
    assert {reading.held_calls for reading in read_meters(meters)} == {1}
    assert Reservation.objects.count() == 1


def test_two_machines_on_both_sides_of_a_month_each_keep_their_own(tmp_path: Path) -> None:
    """Clocks 5 s apart at the end of a leap year's February: two rows, and each call settles on its own."""
    with books_on_disk(tmp_path):
        slow, fast = datetime(2028, 2, 29, 23, 59, 58, tzinfo=UTC), datetime(2028, 3, 1, 0, 0, 3, tzinfo=UTC)
        base = make_payers()
        sides = [at_period(base, now=slow), at_period(base, now=fast)]
        in_processes(2, lambda number: there_and_back(sides[number], number))
        months = [next(key for key in side if key.kind is MeterKind.ORGANIZATION) for side in sides]
        assert [key.period for key in months] == ["2028-02", "2028-03"]
        assert [reading.spent_calls for reading in read_meters(months)] == [60, 60]
        assert read_meters(sides[0][:1])[0].spent_calls == 120, "the Change is metered for life"
