"""One Plane gives Django's dictionaries: where rows, objects, messages and mail live."""

from __future__ import annotations

from pathlib import Path

from config import stores
from config.env import Plane


def plane(tmp_path: Path, **env: str) -> Plane:
    return Plane.from_env(env, base=tmp_path)


def test_sqlite_writes_ahead_and_locks_at_once(tmp_path: Path) -> None:
    options = stores.database(plane(tmp_path))["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]


def test_only_the_web_process_pools_its_connections(tmp_path: Path) -> None:
    """Celery's fixup would close the whole pool around each job."""
    url = "postgresql://u:p%40ss@db:5432/remit"
    web = stores.database(plane(tmp_path, DATABASE_URL=url, REMIT_PROCESS="web"))
    worker = stores.database(plane(tmp_path, DATABASE_URL=url, REMIT_PROCESS="worker"))
    assert web["OPTIONS"]["pool"]["max_size"] == 4
    assert web["CONN_MAX_AGE"] == 0
    assert "pool" not in worker["OPTIONS"]
    assert worker["PASSWORD"] == "p@ss"
    assert worker["NAME"] == "remit"


def test_what_follows_the_address_reaches_the_driver(tmp_path: Path) -> None:
    """Managed databases hand out ?sslmode=require: dropped without a word, the connection would be open to read."""
    found = stores.database(
        plane(tmp_path, DATABASE_URL="postgresql://u@db/remit?sslmode=require&connect_timeout=5")
    )
    assert found["OPTIONS"] == {"sslmode": "require", "connect_timeout": "5", "prepare_threshold": 5}


def test_behind_a_pooler_nothing_is_prepared(tmp_path: Path) -> None:
    found = stores.database(
        plane(tmp_path, DATABASE_URL="postgresql://u@db/remit", REMIT_DATABASE_PREPARED="false")
    )
    assert found["OPTIONS"]["prepare_threshold"] is None


def test_a_sqlite_address_keeps_its_absolute_path(tmp_path: Path) -> None:
    assert stores.database(plane(tmp_path, DATABASE_URL="sqlite:////srv/remit.db"))["NAME"] == "/srv/remit.db"


def test_objects_go_to_the_bucket_that_is_named(tmp_path: Path) -> None:
    found = stores.storages(plane(tmp_path, REMIT_S3_BUCKET="remit", REMIT_S3_ENDPOINT="http://store:8333"))[
        "default"
    ]
    assert found["BACKEND"] == "storages.backends.s3.S3Storage"
    assert found["OPTIONS"]["endpoint_url"] == "http://store:8333"


def test_mail_goes_to_files_until_a_server_is_named(tmp_path: Path) -> None:
    assert "filebased" in stores.mail(plane(tmp_path))["EMAIL_BACKEND"]
    named = stores.mail(plane(tmp_path, REMIT_EMAIL_URL="smtps://me:x@mail.example.org"))
    assert (named["EMAIL_HOST"], named["EMAIL_PORT"], named["EMAIL_USE_SSL"]) == (
        "mail.example.org",
        465,
        True,
    )
