"""Where rows, objects, messages and cached answers live: Django's dictionaries for one Plane."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from config.env import Plane
from config.readers import postgres_options

SQLITE_LOCK_SECONDS_MAX = 20
POOL_WAIT_SECONDS_MAX = 5
# A statement is prepared when it has run so often in one session (the driver's own default).
PREPARED_AFTER_RUNS = 5


def database(plane: Plane) -> dict[str, Any]:
    """SQLite in the data folder, or what DATABASE_URL says."""
    parts = urlsplit(plane.database_url)
    if parts.scheme in ("postgresql", "postgres"):
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path[1:]),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "",
            "PORT": str(parts.port or ""),
            "CONN_MAX_AGE": 0,  # a pool and kept connections exclude each other
            "OPTIONS": {**postgres_options(parts.query), **_prepared(plane), **_pool(plane)},
        }
    return {
        "ENGINE": "django.db.backends.sqlite3",
        # Four slashes of a sqlite URL leave a path that begins with two.
        "NAME": unquote(parts.path[1:]) if plane.database_url else str(plane.data_dir / "remit.sqlite3"),
        "OPTIONS": {
            # A transaction that writes takes its lock at once: no upgrade in the middle, no deadlock.
            "transaction_mode": "IMMEDIATE",
            "timeout": SQLITE_LOCK_SECONDS_MAX,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-20000",
        },
    }


def storages(plane: Plane) -> dict[str, Any]:
    """The object store and the static files."""
    static = "whitenoise.storage.CompressedManifestStaticFilesStorage"
    if not plane.production:
        static = "django.contrib.staticfiles.storage.StaticFilesStorage"
    return {"default": _objects(plane), "staticfiles": {"BACKEND": static}}


def cache(plane: Plane) -> dict[str, Any]:
    """Rate limits count here. Without Redis each process counts for itself, which one machine can bear."""
    if plane.redis_url:
        return {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": plane.redis_url}
    return {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def mail(plane: Plane) -> dict[str, Any]:
    """Django's EMAIL_ settings."""
    if not plane.email_url:
        return {
            "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "EMAIL_FILE_PATH": str(plane.data_dir / "mail"),
        }
    parts = urlsplit(plane.email_url)
    whole = parts.scheme == "smtps"
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": parts.port or (465 if whole else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": whole,
        "EMAIL_USE_TLS": not whole,
        "EMAIL_TIMEOUT": 10,
    }


def _prepared(plane: Plane) -> dict[str, Any]:
    """Only cursors that bind on the server prepare anything: those of the ledger."""
    return {"prepare_threshold": PREPARED_AFTER_RUNS if plane.database_prepared else None}


def _pool(plane: Plane) -> dict[str, Any]:
    """Only the web process pools: Celery would close the whole pool around every job."""
    if plane.process != "web":
        return {}
    return {"pool": {"min_size": 1, "max_size": plane.database_pool_max, "timeout": POOL_WAIT_SECONDS_MAX}}


def _objects(plane: Plane) -> dict[str, Any]:
    if not plane.s3_bucket:
        return {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(plane.data_dir / "objects")},
        }
    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": plane.s3_bucket,
            "endpoint_url": plane.s3_endpoint or None,
            "region_name": plane.s3_region,
            "access_key": plane.s3_access_key or None,
            "secret_key": plane.s3_secret_key or None,
            "file_overwrite": True,  # names are content hashes: the same name is the same content
            "default_acl": None,
            "querystring_auth": True,
        },
    }
