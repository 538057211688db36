"""A real worker is killed with -9 while its request is on its way: the message comes again, under the same id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests.factories.webhooks import SECRET, make_delivery, make_endpoint
from tests.webhooks.receiver import Got, Receiver
from tests.webhooks.test_delivering import fresh, time_passes
from webhooks.lanes import LEASE_SECONDS
from webhooks.models import DeliveryState, Endpoint

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60


def _database() -> str:
    """The address of the tests' own database, for another process."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{connection.settings_dict['NAME']}"
    address, _, _ = settings.PLANE.database_url.rpartition("/")
    return f"{address}/{connection.settings_dict['NAME']}"


@contextmanager
def worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """As `manage.py up` starts it, with the clock in it: threads, and a broker of its own in a folder."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REMIT_", "REDIS_"))}
    env |= {
        "REMIT_DATA_DIR": str(folder),
        "REMIT_SECRET_KEY": settings.PLANE.secret_key,
        "REMIT_CONNECTOR_KEYS": ",".join(settings.PLANE.connector_keys),
        "REMIT_PROCESS": "worker",
        "REMAP_SIGTERM": "SIGQUIT",
        "DATABASE_URL": _database(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    argv = [sys.executable, "-m", "celery", "-A", "config.celery", "--quiet", "worker", "-n", "hooks@%h"]
    argv += ["-Q", "webhooks", "-P", "threads", "-c", "2", "-B", "--without-gossip", "--without-mingle"]
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env=env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        _kill(process)


def test_a_killed_worker_costs_time_and_the_message_keeps_its_id(tmp_path: Path) -> None:
    with Receiver() as receiver:
        delivery = make_delivery(make_endpoint(url=receiver.url))
        with worker(tmp_path) as first:
            receiver.act = lambda _: _kill(first)
            _until(lambda: bool(receiver.got) and first.poll() is not None)
        receiver.act = None
        assert fresh(delivery).state == DeliveryState.PENDING
        assert Endpoint.objects.get().lease_key, "its lane is still leased to the dead"
        time_passes(LEASE_SECONDS + 1)
        with worker(tmp_path):
            _until(lambda: fresh(delivery).state == DeliveryState.DELIVERED)
    assert [got.id for got in receiver.got] == [delivery.message_id] * 2
    assert _same(receiver.got)
    lost, second = delivery.attempts.all()
    assert "nobody knows" in lost.problem
    assert second.status == 204


def _same(got: list[Got]) -> bool:
    return len({each.body for each in got}) == 1 and all(each.is_signed_with(SECRET) for each in got)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _until(true: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < ends_at, "it did not happen"
        time.sleep(0.05)
