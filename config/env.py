"""Plane: everything that differs between deployments, read from the environment once."""

from __future__ import annotations

import difflib
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.fernet import Fernet

from budgets.money import Usd
from config.readers import (
    Reader,
    SettingError,
    amount,
    bucket,
    database_url,
    existing_file,
    flag,
    folder,
    hosts,
    listed,
    one_of,
    percents,
    redis_url,
    sender,
    service_url,
    web_origin,
    web_origins,
    whole_number,
)

# The most that a deployment may allow per UTC day of one counted thing; far above what workers can do.
CALLS_PER_DAY_MAX = 10_000_000
MONTHLY_LIMIT = Usd(10_000_000)  # row 141
SECRET_CHARACTERS_MIN = 32
WORKER_PROCESSES_MAX = 256
DATABASE_POOL_MAX = 100
IMPORT_MIB_MAX = 1_048_576  # a TiB: more than any disk should lose to one repository

# Each variable that is read, its default as the manual prints it, and what it is for. An unknown
# REMIT_ variable stops the start: a typing error must not silently leave a default in force.
VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("REMIT_PRODUCTION", "false", "`true` demands real secrets, named hosts and an https origin"),
    ("REMIT_DEBUG", "false", "`true` shows tracebacks in the browser; refused in production"),
    (
        "REMIT_DATA_DIR",
        "`var` beside `manage.py`",
        "repositories, objects, SQLite, broker folders and secrets",
    ),
    ("REMIT_SECRET_KEY", "made once, in the data folder", "signs sessions; 32 characters or more"),
    (
        "REMIT_CONNECTOR_KEYS",
        "made once, in the data folder",
        "Fernet keys that encrypt connector keys, newest first, with commas; the others still decrypt",
    ),
    ("REMIT_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]", "host names under which the site answers"),
    (
        "REMIT_ORIGIN",
        "none",
        "the address people use, such as https://remit.example.org; https makes cookies secure",
    ),
    ("REMIT_CSRF_ORIGINS", "the origin", "further origins whose forms are trusted, with commas"),
    ("REMIT_BEHIND_PROXY", "false", "`true` trusts X-Forwarded-Proto and -For of one proxy in front"),
    (
        "DATABASE_URL",
        "SQLite in the data folder",
        "`postgresql://user:password@host:5432/name`, perhaps with `?sslmode=require`",
    ),
    ("REMIT_DATABASE_POOL_MAX", "4", "connections of one web process"),
    (
        "REMIT_DATABASE_PREPARED",
        "true",
        "keep the ledger's two statements prepared; `false` behind a pooler that hands each statement another session",
    ),
    ("CELERY_DB_REUSE_MAX", "100", "jobs for which a worker keeps its database connection"),
    ("REDIS_URL", "a folder as broker", "`redis://host:6379/0`: broker, cache and rate limits"),
    ("REMIT_WORKER_PROCESSES", "4", "attempts that one worker runs at a time"),
    ("REMIT_S3_BUCKET", "a folder as store", "bucket for packets, logs, patches and evidence"),
    ("REMIT_S3_ENDPOINT", "Amazon's", "address of another S3-compatible store"),
    ("REMIT_S3_REGION", "us-east-1", "region of the bucket"),
    ("REMIT_S3_ACCESS_KEY", "the machine's role", "access key of the store"),
    ("REMIT_S3_SECRET_KEY", "the machine's role", "secret key of the store"),
    (
        "REMIT_PYTHON_INDEX",
        "pip's own",
        "index that prepared Python dependencies come from, such as https://index.example.org/simple",
    ),
    ("REMIT_NODE_REGISTRY", "npm's own", "registry that prepared Node dependencies come from"),
    (
        "REMIT_DEPENDENCIES_PROXY",
        "none",
        "http:// proxy for the step that prepares dependencies, and for nothing else",
    ),
    (
        "REMIT_DEPENDENCIES_CERTIFICATES",
        "the host's",
        "file of the authorities that this step trusts",
    ),
    ("REMIT_EMBEDDINGS", "hashing", "`hashing` (lexical, built in) or `http` (a service)"),
    ("REMIT_EMBEDDINGS_URL", "none", "address of the service, without /v1/embeddings"),
    ("REMIT_EMBEDDINGS_MODEL", "BAAI/bge-small-en-v1.5", "its model; 384 dimensions"),
    ("REMIT_EMBEDDINGS_KEY", "none", "its bearer key, where it wants one"),
    ("ALLOW_OPUS", "off", "exactly `true` lets the opus tier use the opus model (row 77)"),
    (
        "REMIT_MONTHLY_LIMIT_USD",
        "10",
        "an organization's limit a UTC month until an owner sets another (row 141)",
    ),
    (
        "REMIT_BUDGET_THRESHOLDS",
        "50,80,100",
        "percents of a limit at which people are warned, once each; `none`: never",
    ),
    ("REMIT_CALLS_PER_DAY_MAX", "1000", "an organization's agent calls a UTC day (row 141)"),
    ("REMIT_CLASSIFIER_CALLS_PER_DAY_MAX", "200", "its classifier calls a UTC day (row 70)"),
    ("REMIT_EMBEDDINGS_PER_DAY_MAX", "1000", "its query embeddings a UTC day (row 209)"),
    (
        "REMIT_PRIVATE_ADDRESSES",
        "true; false in production",
        "whether connectors and imports may point into private networks",
    ),
    ("REMIT_GIT_CA_FILE", "the machine's", "PEM file of the authorities that sign your https git servers"),
    (
        "REMIT_GIT_CREDENTIALS",
        "none",
        "file with lines `https://name:token@host`: what imports show to which git server",
    ),
    (
        "REMIT_GIT_SSH_KEY",
        "the user's own",
        "private key, without passphrase, with which imports ask over ssh",
    ),
    (
        "REMIT_GIT_KNOWN_HOSTS",
        "the user's and the machine's",
        "keys of ssh servers, as in known_hosts; an unknown server is refused",
    ),
    (
        "REMIT_GIT_ORGANIZATIONS",
        "none",
        "short names, with commas, of the organizations whose admins may import with the credentials and the key "
        "above in the browser and over REST; `*`: all",
    ),
    ("REMIT_IMPORT_MIB_MAX", "4096", "how large the packed history of an imported repository may be"),
    (
        "REMIT_EMAIL_URL",
        "files in the data folder",
        "`smtp://user:password@host:587` (or smtps://) for password resets",
    ),
    ("REMIT_EMAIL_FROM", "remit@localhost", "sender of these mails"),
    ("REMIT_LOG_LEVEL", "info", "debug, info, warning or error"),
    ("REMIT_LOG_FORMAT", "console; json in production", "how log lines look"),
)
# Set by `manage.py up` and the compose file, not by people: which process this is.
INTERNAL_VARIABLES = frozenset({"REMIT_PROCESS"})


@dataclass(frozen=True, kw_only=True)
class Plane:
    """One deployment. Limits of 0 allow no call; there is no "unlimited" here."""

    data_dir: Path
    secret_key: str
    production: bool = False
    debug: bool = False
    process: str = "command"  # web, worker or command: only web pools its connections
    connector_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    origin: str = ""
    csrf_origins: tuple[str, ...] = ()
    behind_proxy: bool = False
    database_url: str = ""
    database_pool_max: int = 4
    database_prepared: bool = True
    database_reuse_max: int = 100
    redis_url: str = ""
    worker_processes: int = 4
    s3_bucket: str = ""
    s3_endpoint: str = ""
    s3_region: str = "us-east-1"
    s3_access_key: str = ""
    s3_secret_key: str = ""
    python_index: str = ""
    node_registry: str = ""
    dependencies_proxy: str = ""
    dependencies_certificates: Path | None = None
    embeddings: str = "hashing"
    embeddings_url: str = ""
    embeddings_model: str = "BAAI/bge-small-en-v1.5"
    embeddings_key: str = ""
    allow_opus: bool = False
    allow_opus_is_odd: bool = False  # somebody wrote TRUE, 1 or yes, and may believe that it is on
    monthly_limit: Usd = MONTHLY_LIMIT
    calls_per_day_max: int = 1_000
    classifier_calls_per_day_max: int = 200
    embeddings_per_day_max: int = 1_000
    budget_thresholds: tuple[int, ...] = (50, 80, 100)
    private_addresses: bool = True
    git_ca_file: Path | None = None
    git_credentials: Path | None = None
    git_ssh_key: Path | None = None
    git_known_hosts: Path | None = None
    git_organizations: tuple[str, ...] = ()
    import_mib_max: int = 4_096
    email_url: str = ""
    email_from: str = "remit@localhost"
    log_level: str = "info"
    log_format: str = "console"

    @property
    def https(self) -> bool:
        return self.origin.startswith("https://")

    @classmethod
    def from_env(cls, env: Mapping[str, str], *, base: Path) -> Plane:
        """Reads everything, or raises `SettingError` for the first value that cannot work."""
        _refuse_unknown(env)
        read = Reader(env).read
        production = read("REMIT_PRODUCTION", flag, False)
        data_dir = read("REMIT_DATA_DIR", folder, base / "var")
        plane = cls(
            production=production,
            data_dir=data_dir,
            secret_key=read("REMIT_SECRET_KEY", _secret, ""),
            connector_keys=read("REMIT_CONNECTOR_KEYS", _fernet_keys, ()),
            debug=read("REMIT_DEBUG", flag, False),
            process=read("REMIT_PROCESS", one_of("web", "worker", "command"), "command"),
            allowed_hosts=read("REMIT_ALLOWED_HOSTS", hosts, cls.allowed_hosts),
            origin=read("REMIT_ORIGIN", web_origin, ""),
            csrf_origins=read("REMIT_CSRF_ORIGINS", web_origins, ()),
            behind_proxy=read("REMIT_BEHIND_PROXY", flag, False),
            database_url=read("DATABASE_URL", database_url, ""),
            database_pool_max=read("REMIT_DATABASE_POOL_MAX", whole_number(1, DATABASE_POOL_MAX), 4),
            database_prepared=read("REMIT_DATABASE_PREPARED", flag, True),
            database_reuse_max=read("CELERY_DB_REUSE_MAX", whole_number(0, 100_000), 100),
            redis_url=read("REDIS_URL", redis_url, ""),
            worker_processes=read("REMIT_WORKER_PROCESSES", whole_number(1, WORKER_PROCESSES_MAX), 4),
            s3_bucket=read("REMIT_S3_BUCKET", bucket, ""),
            s3_endpoint=read("REMIT_S3_ENDPOINT", service_url("http", "https"), ""),
            s3_region=read("REMIT_S3_REGION", str, cls.s3_region),
            s3_access_key=read("REMIT_S3_ACCESS_KEY", str, ""),
            s3_secret_key=read("REMIT_S3_SECRET_KEY", str, ""),
            python_index=read("REMIT_PYTHON_INDEX", service_url("http", "https"), ""),
            node_registry=read("REMIT_NODE_REGISTRY", service_url("http", "https"), ""),
            dependencies_proxy=read("REMIT_DEPENDENCIES_PROXY", service_url("http", "https"), ""),
            dependencies_certificates=read("REMIT_DEPENDENCIES_CERTIFICATES", existing_file, None),
            embeddings=read("REMIT_EMBEDDINGS", one_of("hashing", "http"), "hashing"),
            embeddings_url=read("REMIT_EMBEDDINGS_URL", service_url("http", "https"), ""),
            embeddings_model=read("REMIT_EMBEDDINGS_MODEL", str, cls.embeddings_model),
            embeddings_key=read("REMIT_EMBEDDINGS_KEY", str, ""),
            # Row 77: nothing but the exact word switches opus on; another value is off, and `check` says so.
            allow_opus=env.get("ALLOW_OPUS") == "true",
            allow_opus_is_odd=env.get("ALLOW_OPUS", "") not in ("", "true", "false"),
            monthly_limit=read("REMIT_MONTHLY_LIMIT_USD", amount, cls.monthly_limit),
            calls_per_day_max=read("REMIT_CALLS_PER_DAY_MAX", whole_number(0, CALLS_PER_DAY_MAX), 1_000),
            classifier_calls_per_day_max=read(
                "REMIT_CLASSIFIER_CALLS_PER_DAY_MAX", whole_number(0, CALLS_PER_DAY_MAX), 200
            ),
            embeddings_per_day_max=read(
                "REMIT_EMBEDDINGS_PER_DAY_MAX", whole_number(0, CALLS_PER_DAY_MAX), 1_000
            ),
            budget_thresholds=read("REMIT_BUDGET_THRESHOLDS", percents, cls.budget_thresholds),
            private_addresses=read("REMIT_PRIVATE_ADDRESSES", flag, not production),
            git_ca_file=read("REMIT_GIT_CA_FILE", existing_file, None),
            git_credentials=read("REMIT_GIT_CREDENTIALS", existing_file, None),
            git_ssh_key=read("REMIT_GIT_SSH_KEY", existing_file, None),
            git_known_hosts=read("REMIT_GIT_KNOWN_HOSTS", existing_file, None),
            git_organizations=read("REMIT_GIT_ORGANIZATIONS", listed, ()),
            import_mib_max=read("REMIT_IMPORT_MIB_MAX", whole_number(1, IMPORT_MIB_MAX), 4_096),
            email_url=read("REMIT_EMAIL_URL", service_url("smtp", "smtps"), ""),
            email_from=read("REMIT_EMAIL_FROM", sender, cls.email_from),
            log_level=read("REMIT_LOG_LEVEL", one_of("debug", "info", "warning", "error"), "info"),
            log_format=read(
                "REMIT_LOG_FORMAT", one_of("console", "json"), "json" if production else "console"
            ),
        )
        _refuse_contradictions(plane)
        return _with_secrets(plane)


def _refuse_unknown(env: Mapping[str, str]) -> None:
    known = {name for name, _, _ in VARIABLES} | INTERNAL_VARIABLES
    for name in sorted(env):
        if name.startswith("REMIT_") and name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            meant = f"Did you mean {near[0]}?" if near else "See the table of settings in docs/operations.md"
            raise SettingError(name, "there is no such setting", meant)


def _refuse_contradictions(plane: Plane) -> None:
    """Values that are each in order but cannot work together."""
    if plane.embeddings == "http" and not plane.embeddings_url:
        raise SettingError(
            "REMIT_EMBEDDINGS_URL",
            "REMIT_EMBEDDINGS=http needs the address of the service",
            "Write such as http://embeddings:80, or set REMIT_EMBEDDINGS=hashing",
        )
    if bool(plane.s3_access_key) != bool(plane.s3_secret_key):
        missing = "REMIT_S3_SECRET_KEY" if plane.s3_access_key else "REMIT_S3_ACCESS_KEY"
        raise SettingError(missing, "one half of the store's key is missing", "Set both halves, or neither")
    if not plane.production:
        return
    if plane.debug:
        raise SettingError("REMIT_DEBUG", "tracebacks show secrets", "Leave it out in production")
    if not plane.https:
        raise SettingError(
            "REMIT_ORIGIN", "production needs an https origin", "Write such as https://remit.example.org"
        )


def _with_secrets(plane: Plane) -> Plane:
    """Made only when every other value is in order: a start that is refused leaves nothing behind."""
    if plane.production:
        for variable, value in (
            ("REMIT_SECRET_KEY", plane.secret_key),
            ("REMIT_CONNECTOR_KEYS", plane.connector_keys),
        ):
            if not value:
                raise SettingError(
                    variable, "production needs a value of its own", "Set it in the environment"
                )
    _make_folder(plane.data_dir)
    return replace(
        plane,
        secret_key=plane.secret_key
        or _kept(plane, "secret-key", "REMIT_SECRET_KEY", lambda: secrets.token_urlsafe(48)),
        connector_keys=plane.connector_keys
        or (_kept(plane, "connector-key", "REMIT_CONNECTOR_KEYS", lambda: Fernet.generate_key().decode()),),
    )


def _make_folder(data_dir: Path) -> None:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            "REMIT_DATA_DIR",
            f"{data_dir} cannot be a folder: {error.strerror}",
            "Name one that this user may make",
        ) from None


def _secret(text: str) -> str:
    if len(text) < SECRET_CHARACTERS_MIN:
        raise ValueError(
            f"{len(text)} characters are too few", f"Use {SECRET_CHARACTERS_MIN} random characters or more"
        )
    return text


def _fernet_keys(text: str) -> tuple[str, ...]:
    keys = listed(text)
    for place, key in enumerate(keys, start=1):
        try:
            Fernet(key)
        except ValueError:
            # The value is a secret: name its place, never the text.
            raise ValueError(
                f"key {place} of {len(keys)} is not a Fernet key",
                "Write 32 random bytes in URL-safe base64: openssl rand -base64 32 | tr +/ -_",
            ) from None
    return keys


def _kept(plane: Plane, name: str, variable: str, make: Callable[[], str]) -> str:
    """A secret that is made at the first start and kept in the data folder, readable by its owner alone."""
    path = plane.data_dir / name
    try:
        kept = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return _made_once(path, make())
    if not kept:
        raise SettingError(variable, f"{path} is empty", f"Restore the file or set {variable}")
    return kept


def _made_once(path: Path, value: str) -> str:
    """Several processes may start at once: the first to link its file wins, and all use that one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    finally:
        draft.unlink()
    return value
