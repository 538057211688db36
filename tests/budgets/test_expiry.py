"""Issue 3, "optional expiry that returns to the old limit": at the very end, not at the sweep after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from budgets.jobs import return_limits
from budgets.keys import MeterKey, MeterKind
from budgets.limits import limit_of, return_expired, set_clocks
from budgets.models import LimitChange
from budgets.money import Usd
from budgets.wake import AHEAD_SECONDS_MAX, RETURN_JOB
from config.celery import HOLDS_SWEEP_SECONDS, UPKEEP_QUEUE
from tests.factories.budgets import NOON, limit, make_payers

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60
# What a job needs to be taken and done on a loaded machine; the sweep would need up to 30.
LATE_SECONDS = 5
Sent = list[tuple[str, datetime]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What reaches the broker: name of the job and the moment at which it is to run."""
    messages: Sent = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **more: messages.append((name, more["eta"])))
    return messages


def organization_key() -> MeterKey:
    return next(key for key in make_payers() if key.kind is MeterKind.ORGANIZATION)


def in_force(key: MeterKey, now: datetime) -> object:
    return limit_of(organization_id=key.organization_id, kind=key.kind, subject=key.subject, now=now)


def rings_at(sent: Sent, ends_at: datetime) -> bool:
    """One message, not before the end and within a few milliseconds of it."""
    ((name, at),) = sent
    return name == RETURN_JOB and ends_at < at < ends_at + timedelta(milliseconds=100)


def test_two_sweeps_may_fail_before_an_end_is_missed() -> None:
    assert AHEAD_SECONDS_MAX > 2 * HOLDS_SWEEP_SECONDS


@pytest.mark.django_db(transaction=True)
def test_a_raise_that_ends_before_the_next_sweep_sets_its_clock_itself(sent: Sent) -> None:
    ends_at = NOON + timedelta(seconds=20)
    with transaction.atomic():
        limit(organization_key(), Usd(20_000_000), expires_at=ends_at)
        assert sent == [], "only once it is committed"
    assert rings_at(sent, ends_at)


@pytest.mark.django_db(transaction=True)
def test_the_last_sweeps_before_an_end_set_the_clock_and_no_message_waits_for_days(sent: Sent) -> None:
    ends_at = NOON + timedelta(days=3)
    key = organization_key()
    limit(key, Usd(20_000_000), expires_at=ends_at)
    assert set_clocks(ends_at - timedelta(seconds=AHEAD_SECONDS_MAX + 1)) == 0
    assert sent == []
    assert set_clocks(ends_at - timedelta(seconds=AHEAD_SECONDS_MAX)) == 1
    assert rings_at(sent, ends_at)
    return_expired(ends_at)
    assert set_clocks(ends_at - timedelta(seconds=1)) == 0, "it has returned"


@pytest.mark.django_db(transaction=True)
def test_the_job_returns_what_has_ended_and_nothing_else() -> None:
    now = timezone.now()
    over, runs = organization_key(), organization_key()
    limit(over, Usd(20_000_000), now=now - timedelta(hours=1), expires_at=now - timedelta(milliseconds=1))
    limit(runs, Usd(30_000_000), now=now - timedelta(hours=1), expires_at=now + timedelta(hours=1))
    for _ in range(2):  # a message may come twice
        return_limits()
    assert (in_force(over, now), in_force(runs, now)) == (Usd(10_000_000), Usd(30_000_000))
    assert LimitChange.objects.filter(returns__isnull=False).count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_away_costs_the_time_to_the_next_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(current_app, "send_task", away)
    key, ends_at = organization_key(), NOON + timedelta(seconds=20)
    limit(key, Usd(20_000_000), expires_at=ends_at)
    assert in_force(key, NOON) == Usd(20_000_000)
    assert return_expired(ends_at) == 1
    assert in_force(key, ends_at) == Usd(10_000_000)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_without_any_sweep_returns_the_limit_on_time(tmp_path: Path, with_plane: Any) -> None:
    """A real worker and a real broker, in a folder; no clock runs in it, so only the message can have done it."""
    with _worker(tmp_path) as process:
        _until(lambda: _answers(tmp_path) or process.poll() is not None)
        key = organization_key()
        _set_for_a_second(tmp_path, key)
        raised = LimitChange.objects.get(returns__isnull=True)
        _until(lambda: LimitChange.objects.filter(returns=raised).exists())
    back, ends_at = LimitChange.objects.get(returns=raised), raised.expires_at
    assert raised.after == 20_000_000
    assert ends_at is not None
    assert ends_at <= back.at < ends_at + timedelta(seconds=LATE_SECONDS)
    assert in_force(key, back.at) == Usd(10_000_000)


def _database() -> str:
    if connection.vendor == "sqlite":
        return f"sqlite:///{connection.settings_dict['NAME']}"
    address, _, _ = settings.PLANE.database_url.rpartition("/")
    return f"{address}/{connection.settings_dict['NAME']}"


def _environment(folder: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REMIT_", "REDIS_"))}
    return env | {
        "REMIT_DATA_DIR": str(folder),
        "REMIT_SECRET_KEY": settings.PLANE.secret_key,
        "REMIT_CONNECTOR_KEYS": ",".join(settings.PLANE.connector_keys),
        "REMIT_MONTHLY_LIMIT_USD": "10",
        "REMIT_PROCESS": "worker",
        "DATABASE_URL": _database(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }


@contextmanager
def _worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "celery", "-A", "config.celery", "--quiet", "worker", "-n", "upkeep@%h"]
    argv += ["-Q", UPKEEP_QUEUE, "-P", "threads", "-c", "1", "--without-gossip", "--without-mingle"]
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env=_environment(folder),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _answers(folder: Path) -> bool:
    """The worker has bound its queue."""
    return any((folder / "broker" / "control").glob("*"))


def _set_for_a_second(folder: Path, key: MeterKey) -> None:
    """Another process sets the limit, as the web would: its messages go to that broker."""
    script = (
        "import sys, django; django.setup()\n"
        "import config.celery\n"
        "from datetime import timedelta\n"
        "from uuid import UUID, uuid4\n"
        "from django.utils import timezone\n"
        "from budgets.keys import MeterKind\n"
        "from budgets.limits import set_limit\n"
        "from budgets.money import Usd\n"
        "set_limit(organization_id=UUID(sys.argv[1]), kind=MeterKind.ORGANIZATION, subject=sys.argv[1],\n"
        "          to=Usd(20_000_000), by=None, reason='for a moment', key=uuid4().hex,\n"
        "          now=timezone.now(), expires_at=timezone.now() + timedelta(seconds=1))\n"
    )
    argv = [sys.executable, "-c", script, str(key.organization_id)]
    subprocess.run(argv, cwd=ROOT, env=_environment(folder), check=True, timeout=PATIENCE_SECONDS)


def _until(true: Callable[[], bool]) -> None:
    over = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < over, "it did not happen"
        time.sleep(0.05)
