"""Strict readers of the environment's text: an odd value is refused by name, with what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from budgets.money import NotAnAmount, Usd, parse_usd

Parsed = TypeVar("Parsed")

# What may stand behind the ? of a PostgreSQL address. Anything else would be dropped without a word.
POSTGRES_OPTIONS = frozenset(
    {"application_name", "channel_binding", "connect_timeout", "gssencmode", "options", "sslcert", "sslkey"}
    | {"sslmode", "sslrootcert", "target_session_attrs"}
)
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_HOST = re.compile(r"\*|\.?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SENDER = re.compile(r"[^@<>\s]+@[^@<>\s]+|[^<>@\r\n]+<[^@<>\s]+@[^@<>\s]+>")


class SettingError(Exception):
    """A setting that cannot work. It stops the start, before anything is opened or written.

    Deliberately not Django's ImproperlyConfigured, which its command line holds back for some commands.
    """

    def __init__(self, variable: str, problem: str, remedy: str) -> None:
        super().__init__(f"{variable}: {problem}. {remedy}")
        self.variable = variable
        self.problem = problem
        self.remedy = remedy


class Reader:
    """One environment. An empty variable counts as not set."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def read(self, name: str, parse: Callable[[str], Parsed], default: Parsed) -> Parsed:
        """The variable's value through `parse`, which raises ValueError(problem, remedy)."""
        text = self._env.get(name, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            problem, remedy = error.args
            raise SettingError(name, problem, remedy) from None


def flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false", "Write true or false, in small letters")
    return text == "true"


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A reader of plain digits between `least` and `most`, both allowed."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
            raise ValueError(
                f"{text[:40]!r} is not a whole number from {least} to {most}", "Write digits only"
            )
        number = int(text)
        if not least <= number <= most:
            raise ValueError(f"{number} is out of bounds", f"Write a whole number from {least} to {most}")
        return number

    return parse


def amount(text: str) -> Usd:
    """US dollars; 0 means that no call is made (row 141)."""
    try:
        return parse_usd(text)
    except NotAnAmount as error:
        raise ValueError(f"{text[:40]!r} is no amount", f"Here {error}; 0 allows no call at all") from None


def percents(text: str) -> tuple[int, ...]:
    """Whole percents of a limit, such as `50,80,100`; none at all: no warnings."""
    read = whole_number(1, 100)
    return tuple(sorted({read(part.strip()) for part in text.split(",")})) if text != "none" else ()


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text[:40]!r} is not known", f"Write one of: {', '.join(words)}")
        return text

    return parse


def listed(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def existing_file(text: str) -> Path:
    """A file that this process can read, by its absolute path."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(f"{text[:200]!r} is no absolute path", "Write one that begins with /")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ValueError(
            f"{text[:200]} cannot be read: {error.strerror}", "Name a file that this user may read"
        ) from None
    return path


def folder(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{text[:80]!r} begins with the home of nobody", "Write an absolute path") from None


def hosts(text: str) -> tuple[str, ...]:
    """Names under which the site answers; none at all would answer nobody."""
    found = listed(text)
    strange = [name for name in found if not _HOST.fullmatch(name)]
    if strange or not found:
        raise ValueError(
            f"{strange[0][:80]!r} is no host name" if strange else "this names no host",
            "Write names with commas between them, without https:// and without a port",
        )
    return found


def bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no name of a bucket", "Use 3 to 63 of a-z, 0-9, - and .")
    return text


def sender(text: str) -> str:
    if not _SENDER.fullmatch(text):
        raise ValueError("this is no address that mail can come from", "Write such as remit@example.org")
    return text


def redis_url(text: str) -> str:
    """redis://host:port/number: a database that is no number would be taken for number 0 without a word."""
    parts = _split(text, "redis", "rediss")
    number = parts.path.strip("/")
    if number and not (number.isascii() and number.isdigit()):
        raise ValueError(f"{number[:40]!r} is no number of a database", "Write such as redis://host:6379/0")
    return text


def web_origin(text: str) -> str:
    """An origin such as https://remit.example.org, without a path."""
    parts = _split(text, "http", "https")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise ValueError("an origin has no path, query or user", "Write such as https://remit.example.org")
    return f"{parts.scheme}://{parts.netloc}"


def web_origins(text: str) -> tuple[str, ...]:
    return tuple(web_origin(word) for word in listed(text))


def service_url(*schemes: str) -> Callable[[str], str]:
    """A reader of an address with one of `schemes` and a host."""

    def parse(text: str) -> str:
        _split(text, *schemes)
        return text

    return parse


def database_url(text: str) -> str:
    """postgresql://user:password@host:port/name, or sqlite:////absolute/path."""
    scheme = text.partition("://")[0]
    remedy = "Write postgresql://user:password@host:5432/name or sqlite:////absolute/path/to/file"
    if scheme not in ("postgresql", "postgres", "sqlite"):
        raise ValueError(f"databases of the kind {scheme[:40]!r} are not supported", remedy)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError("this is not an address", remedy) from None
    if len(parts.path) < 2:
        raise ValueError("the name of the database is missing", remedy)
    if scheme == "sqlite" and not parts.path.startswith("//"):
        raise ValueError("the path of a SQLite file must be absolute", remedy)
    if "#" in text or (scheme == "sqlite" and "?" in text):
        raise ValueError("nothing may follow the name of the database", f"{remedy}; write # as %23, ? as %3F")
    postgres_options(parts.query)
    return text


def postgres_options(query: str) -> dict[str, str]:
    """What stands behind the ? of an address, as the driver takes it. Raises ValueError(problem, remedy)."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ValueError("what follows the ? is no name=value", "Write such as ?sslmode=require") from None
    options = dict(pairs)
    strange = sorted(options.keys() - POSTGRES_OPTIONS)
    if strange:
        known = ", ".join(sorted(POSTGRES_OPTIONS))
        raise ValueError(f"{strange[0][:40]!r} is not known behind the ?", f"Known are {known}")
    if len(options) < len(pairs):
        raise ValueError("an option stands there twice", "Write each once")
    if options.get("sslmode", "prefer") not in SSL_MODES:
        raise ValueError("sslmode is not known", f"Write one of: {', '.join(SSL_MODES)}")
    if not options.get("connect_timeout", "0").isdecimal():
        raise ValueError("connect_timeout is no whole number of seconds", "Write such as 10")
    return options


def _split(text: str, *schemes: str) -> SplitResult:
    """No complaint repeats the address: it may carry a password."""
    remedy = f"Write an address that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError("this is not an address", remedy) from None
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError("this is not an address that works here", remedy)
    return parts
