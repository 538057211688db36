"""The environment is read strictly: an odd value stops the start, with the variable's name and the remedy."""

from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from budgets.money import Usd
from config.checks import the_parts_fit_together
from config.env import VARIABLES, Plane
from config.readers import SettingError

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "REMIT_PRODUCTION": "true",
    "REMIT_ORIGIN": "https://remit.example.org",
    "REMIT_SECRET_KEY": "s" * 40,
    "REMIT_CONNECTOR_KEYS": Fernet.generate_key().decode(),
}


def plane(tmp_path: Path, **env: str) -> Plane:
    return Plane.from_env(env, base=tmp_path)


def refused(tmp_path: Path, **env: str) -> SettingError:
    with pytest.raises(SettingError) as caught:
        plane(tmp_path, **env)
    assert caught.value.remedy
    assert not (tmp_path / "var").exists(), "a start that is refused leaves nothing behind"
    return caught.value


def test_an_empty_environment_gives_the_limits_of_the_documents(tmp_path: Path) -> None:
    """Rows 70, 141, 209: $10 when the setting is absent, 1,000 agent calls, 200 classifier calls, 1,000 embeddings."""
    found = plane(tmp_path)
    assert found.monthly_limit == Usd(10_000_000)
    assert (
        found.calls_per_day_max,
        found.classifier_calls_per_day_max,
        found.embeddings_per_day_max,
    ) == (1_000, 200, 1_000)
    assert not found.debug
    assert not found.allow_opus


@pytest.mark.parametrize("value", ["TRUE", "True", "1", "yes", " true", "false", ""])
def test_opus_is_off_unless_the_word_is_exactly_true(tmp_path: Path, value: str) -> None:
    """Row 77."""
    assert not plane(tmp_path, ALLOW_OPUS=value).allow_opus
    assert plane(tmp_path, ALLOW_OPUS="true").allow_opus


@pytest.mark.parametrize(
    ("value", "told"), [("TRUE", True), ("1", True), ("true", False), ("false", False), ("", False)]
)
def test_whoever_writes_opus_in_another_way_is_told_that_it_is_off(
    settings: Any, tmp_path: Path, value: str, told: bool
) -> None:
    settings.PLANE = plane(tmp_path, ALLOW_OPUS=value)
    assert any("ALLOW_OPUS" in str(warning) for warning in the_parts_fit_together()) is told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REMIT_BUDGET_THRESHOLDS", "50,eighty"),
        ("REMIT_BUDGET_THRESHOLDS", "0"),
        ("REMIT_MONTHLY_LIMIT_USD", "-1"),
        ("REMIT_MONTHLY_LIMIT_USD", "1e3"),
        ("REMIT_MONTHLY_LIMIT_USD", "NaN"),
        ("REMIT_MONTHLY_LIMIT_USD", "5,00"),
        ("REMIT_MONTHLY_LIMIT_USD", "1000001"),
        ("REMIT_CALLS_PER_DAY_MAX", "-1"),
        ("REMIT_CALLS_PER_DAY_MAX", "1.5"),
        ("REMIT_CALLS_PER_DAY_MAX", "10000001"),
        ("REMIT_CALLS_PER_DAY_MAX", "٣"),
        ("REMIT_CLASSIFIER_CALLS_PER_DAY_MAX", "many"),
        ("REMIT_EMBEDDINGS_PER_DAY_MAX", "-0"),
        ("REMIT_DEBUG", "1"),
        ("REMIT_PRODUCTION", "TRUE"),
        ("DATABASE_URL", "mysql://u@h/d"),
        ("DATABASE_URL", "postgresql://u@h"),
        ("DATABASE_URL", "postgresql://u@h:port/d"),
        ("DATABASE_URL", "sqlite://relative/file"),
        ("DATABASE_URL", "sqlite:////srv/remit.db?mode=ro"),
        ("DATABASE_URL", "postgresql://u@h/d#x"),
        ("DATABASE_URL", "postgresql://u@h/d?sslmode=bogus"),
        ("DATABASE_URL", "postgresql://u@h/d?sslmod=require"),
        ("DATABASE_URL", "postgresql://u@h/d?sslmode=require&sslmode=disable"),
        ("DATABASE_URL", "postgresql://u@h/d?connect_timeout=soon"),
        ("DATABASE_URL", "postgresql://u@h/d?require"),
        ("REMIT_DATA_DIR", "/dev/null"),
        ("REMIT_DATA_DIR", "/dev/null/under"),
        ("REMIT_DATA_DIR", "~nobody-is-called-this/var"),
        ("REMIT_ALLOWED_HOSTS", ","),
        ("REMIT_ALLOWED_HOSTS", "https://remit.example.org"),
        ("REMIT_ALLOWED_HOSTS", "remit.example.org:8000"),
        ("REMIT_S3_BUCKET", "Bad Bucket"),
        ("REMIT_EMAIL_FROM", "a@b.example\nBcc: everybody@b.example"),
        ("REMIT_EMAIL_FROM", "remit"),
        ("REDIS_URL", "redis://localhost:6379/cache"),
        ("REDIS_URL", "localhost:6379"),
        ("REDIS_URL", "http://localhost:6379"),
        ("REMIT_ORIGIN", "remit.example.org"),
        ("REMIT_ORIGIN", "https://remit.example.org/path"),
        ("REMIT_CSRF_ORIGINS", "https://a.example, b.example"),
        ("REMIT_SECRET_KEY", "short"),
        ("REMIT_EMBEDDINGS", "openai"),
        ("REMIT_S3_ENDPOINT", "minio:9000"),
        ("REMIT_LOG_LEVEL", "INFO"),
        ("REMIT_WORKER_PROCESSES", "0"),
        ("REMIT_EMAIL_URL", "mail.example.org"),
        ("CELERY_DB_REUSE_MAX", "-1"),
    ],
)
def test_an_odd_value_stops_the_start_and_is_named(tmp_path: Path, name: str, value: str) -> None:
    """Row 141 (DEC): an invalid limit refuses to boot."""
    assert refused(tmp_path, **{name: value}).variable == name


def test_zero_means_no_calls_and_not_unlimited(tmp_path: Path) -> None:
    """Row 141: "0" = no calls."""
    found = plane(tmp_path, REMIT_MONTHLY_LIMIT_USD="0", REMIT_CALLS_PER_DAY_MAX="0")
    assert found.monthly_limit == Usd(0)
    assert found.calls_per_day_max == 0


def test_a_typing_error_in_a_name_is_found(tmp_path: Path) -> None:
    error = refused(tmp_path, REMIT_CALL_PER_DAY_MAX="5")
    assert error.variable == "REMIT_CALL_PER_DAY_MAX"
    assert "REMIT_CALLS_PER_DAY_MAX" in error.remedy


def test_a_key_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    error = refused(tmp_path, REMIT_CONNECTOR_KEYS=f"{Fernet.generate_key().decode()},not-a-key-but-secret")
    assert "key 2 of 2" in str(error)
    assert "secret" not in error.problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "redis://:a-secret@h:port/0"),
        ("REDIS_URL", "rediss:a-secret@h/0"),
        ("REMIT_EMAIL_URL", "imap://me:a-secret@h"),
        ("DATABASE_URL", "postgresql://u:a-secret@h:port/d"),
    ],
)
def test_an_address_that_is_refused_is_not_repeated(tmp_path: Path, name: str, value: str) -> None:
    assert "a-secret" not in str(refused(tmp_path, **{name: value}))


def test_usual_hosts_and_senders_are_taken(tmp_path: Path) -> None:
    hosts = "remit.example.org, .example.org,localhost,127.0.0.1,[::1],*,web_1"
    found = plane(tmp_path, REMIT_ALLOWED_HOSTS=hosts, REMIT_EMAIL_FROM="Remit <remit@example.org>")
    assert len(found.allowed_hosts) == 7


def test_half_a_store_key_and_a_service_without_address_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, REMIT_S3_ACCESS_KEY="a").variable == "REMIT_S3_SECRET_KEY"
    assert refused(tmp_path, REMIT_EMBEDDINGS="http").variable == "REMIT_EMBEDDINGS_URL"


@pytest.mark.parametrize("missing", ["REMIT_SECRET_KEY", "REMIT_CONNECTOR_KEYS", "REMIT_ORIGIN"])
def test_production_makes_no_secret_of_its_own(tmp_path: Path, missing: str) -> None:
    assert plane(tmp_path / "sound", **PRODUCTION).https
    env = {name: value for name, value in PRODUCTION.items() if name != missing}
    assert refused(tmp_path, **env).variable == missing


def test_production_shows_no_tracebacks_and_takes_no_plain_http(tmp_path: Path) -> None:
    assert refused(tmp_path, **PRODUCTION | {"REMIT_DEBUG": "true"}).variable == "REMIT_DEBUG"
    assert refused(tmp_path, **PRODUCTION | {"REMIT_ORIGIN": "http://r.example"}).variable == "REMIT_ORIGIN"
    assert not plane(tmp_path, **PRODUCTION).private_addresses


def test_secrets_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    first, second = plane(tmp_path), plane(tmp_path)
    assert first.secret_key == second.secret_key
    assert first.connector_keys == second.connector_keys
    assert first.secret_key not in ("", first.connector_keys[0])
    for name in ("secret-key", "connector-key"):
        assert (tmp_path / "var" / name).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "var").iterdir()) == ["connector-key", "secret-key"]


def _key_of(folder: str) -> str:
    return Plane.from_env({}, base=Path(folder)).secret_key


def test_processes_that_start_together_agree_on_the_secret(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert len(set(pool.map(_key_of, [str(tmp_path)] * 16))) == 1


def test_an_emptied_secret_file_stops_the_start(tmp_path: Path) -> None:
    plane(tmp_path)
    (tmp_path / "var" / "secret-key").write_text("")
    with pytest.raises(SettingError, match="REMIT_SECRET_KEY"):
        plane(tmp_path)


def test_the_manual_lists_every_setting_with_its_default() -> None:
    manual = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z_0-9]+)` \| (.*?) \| (.*?) \|$", manual, re.MULTILINE)
    assert rows == list(VARIABLES)


def test_every_listed_setting_is_read() -> None:
    code = (ROOT / "config" / "env.py").read_text(encoding="utf-8")
    reading = code.split("def from_env", 1)[1]
    assert [name for name, _, _ in VARIABLES if f'"{name}"' not in reading] == []
