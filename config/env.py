"""Plane: everything that differs between deployments, read from the environment once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgets.money import Usd


@dataclass(frozen=True, kw_only=True)
class Plane:
    data_dir: Path
    secret_key: str
    debug: bool = False
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    database_url: str = ""
    redis_url: str = ""
    allow_opus: bool = False
    monthly_limit: Usd = Usd(10_000_000)
    calls_per_day_max: int = 1_000
    classifier_calls_per_day_max: int = 200
    embeddings_per_day_max: int = 1_000
    # Fernet keys that seal connector keys, newest first; none: one derived from the secret key.
    connector_keys: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str], *, base: Path) -> Plane:
        return cls(
            data_dir=Path(env.get("REMIT_DATA_DIR", base / "var")),
            secret_key=env.get("REMIT_SECRET_KEY", "development only"),
            debug=True,
            database_url=env.get("DATABASE_URL", ""),
            redis_url=env.get("REDIS_URL", ""),
            allow_opus=env.get("ALLOW_OPUS") == "true",
            connector_keys=tuple(key for key in env.get("REMIT_CONNECTOR_KEYS", "").split(",") if key),
        )

    def database(self) -> dict[str, Any]:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": self.data_dir / "remit.sqlite3",
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-20000",
            },
        }

    def storages(self) -> dict[str, Any]:
        return {
            "default": {
                "BACKEND": "django.core.files.storage.FileSystemStorage",
                "OPTIONS": {"location": self.data_dir / "objects"},
            },
            "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
        }
