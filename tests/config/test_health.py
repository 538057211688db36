"""/healthz and /readyz."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import signals
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from agents.hosts import NOTE_DAYS_MAX, forget_host, note_host
from agents.models import WorkerHost
from agents.workspace.sandbox import probe
from config.env import Plane

PATIENCE_SECONDS = 30


def test_alive_needs_nothing(client: Client) -> None:
    assert client.get("/healthz").content == b"ok\n"


@pytest.mark.django_db
def test_ready_names_each_part(client: Client) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200, response.json()
    assert response.json()["ready"] is True
    assert {"database", "migrations", "broker", "storage"} <= set(response.json()["parts"])


@pytest.mark.django_db
def test_a_migration_that_is_not_applied_is_not_ready(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'sessions'")
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"]["migrations"]["state"] == "down"
    assert "manage.py migrate" in response.json()["parts"]["migrations"]["detail"]


@pytest.mark.django_db
def test_a_folder_that_is_gone_is_not_ready(
    client: Client, with_plane: Callable[..., Plane], tmp_path: Path
) -> None:
    with_plane(data_dir=tmp_path / "gone", redis_url="")
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"]["broker"]["state"] == "down"


@pytest.mark.django_db
def test_a_store_that_does_not_answer_is_not_ready_and_tells_no_secret(
    client: Client, with_plane: Callable[..., Plane]
) -> None:
    with_plane(redis_url="")
    response = client.get("/readyz")
    assert "secret" not in response.content.decode()


@pytest.mark.django_db
def test_each_worker_says_what_sandbox_its_host_has(client: Client, admin_client: Client) -> None:
    """The worst of them counts; a worker that stops takes its note back, one that was killed is forgotten later."""
    now = timezone.now()
    mine = note_host("worker@here", now=now)
    assert mine.tier == probe().value
    WorkerHost.objects.create(
        worker="worker@there", host="there", tier="C", reasons=["A: no namespaces"], probed_at=now
    )
    long_ago = now - timedelta(days=NOTE_DAYS_MAX + 1)
    WorkerHost.objects.create(worker="worker@gone", host="gone", tier="D", probed_at=long_ago)
    part = client.get("/readyz").json()["parts"]["sandbox"]
    assert part["state"] == "warning"
    assert part["detail"].startswith("tier C: ")
    assert "the worst of 2 workers" in part["detail"]
    shown = admin_client.get("/admin/agents/workerhost/").content.decode()
    assert "worker@there" in shown
    assert "Landlock" in shown
    note_host("worker@here", now=now)
    assert not WorkerHost.objects.filter(worker="worker@gone").exists()
    forget_host("worker@there")
    assert "tier C" not in client.get("/readyz").json()["parts"]["sandbox"]["detail"]


class Worker:
    hostname = "one@here"


@pytest.mark.django_db
def test_a_worker_notes_its_host_at_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Celery sends it: the worker itself; at its end only its name."""
    monkeypatch.setattr("config.tiers.connections", SimpleNamespace(close_all=lambda: None))  # the test's own
    signals.worker_ready.send(sender=Worker())
    assert WorkerHost.objects.get().worker == "one@here"


@pytest.mark.django_db(transaction=True)
def test_a_word_of_the_end_takes_the_note_back() -> None:
    note_host("one@here", now=timezone.now())
    signals.worker_shutting_down.send(sender="one@here", sig="SIGTERM", how="Warm", exitcode=0)
    assert not WorkerHost.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_word_of_the_end_in_the_middle_of_a_job_leaves_its_transaction_alone() -> None:
    """The signal's handler runs in the job's own thread: it closed the connection under the job."""
    now = timezone.now()
    note_host("one@here", now=now)
    with transaction.atomic():
        note_host("two@here", now=now)
        signals.worker_shutting_down.send(sender="one@here", sig="SIGTERM", how="Warm", exitcode=0)
        note_host("three@here", now=now)
    until = time.monotonic() + PATIENCE_SECONDS
    while WorkerHost.objects.filter(worker="one@here").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert set(WorkerHost.objects.values_list("worker", flat=True)) == {"two@here", "three@here"}
