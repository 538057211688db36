"""Pure: pytest, ruff, mypy, python and uv."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from agents.workspace.grammar import (
    INTEGER,
    NODE,
    PATH,
    TEXT,
    WORD,
    Allowed,
    CommandContext,
    CommandRefused,
    Shape,
    switches,
    take,
)

FORMS = {
    "pytest": "pytest [-q|-v|-x|-s|-l|-ra] [-k EXPR] [-m EXPR] [--maxfail N] [--tb STYLE] [-n 0..4] [paths, node ids]",
    "ruff": "ruff check [--fix] [paths] or ruff format [--check] [paths]",
    "mypy": "mypy [--strict] [-p PACKAGE] [paths]",
    "python": "python -m pytest|unittest|mypy|ruff …, or python manage.py test|check|makemigrations --check --dry-run",
    "uv": "uv run pytest|ruff|mypy|python …, or uv sync",
    "pip": "pip install [-r FILE] [requirements]",
}
# The cache of a test run is no part of the work.
_PYTEST_ALWAYS = ("-p", "no:cacheprovider")
_PYTEST = Shape(
    flags={
        **switches(
            "-q", "-v", "-x", "-s", "-l", "-rA", "-ra", "-rf", "-rs", "-rx", "--no-header", "--co",
            "--collect-only", "--exitfirst", "--lf", "--ff", "--quiet", "--verbose", "--showlocals",
            "--disable-warnings", "--no-cov", "--no-summary", "--strict-markers",
        ),
        "-k": TEXT, "-m": TEXT, "--maxfail": INTEGER, "--durations": INTEGER,
        "-n": re.compile(r"auto|[0-4]"), "--tb": ("short", "long", "line", "no", "native", "auto"),
    },
    positional=NODE,
)  # fmt: skip
_RUFF_CHECK = Shape(
    flags={
        **switches("--fix", "--diff", "--statistics", "--show-fixes", "-q"),
        "--output-format": ("concise", "full", "grouped", "json"),
        "--select": re.compile(r"[A-Z0-9,]{1,80}"),
    },
    positional=PATH,
)
_RUFF_FORMAT = Shape(flags=switches("--check", "--diff", "-q"), positional=PATH)
_MYPY = Shape(
    flags={
        **switches(
            "--strict", "--no-error-summary", "--pretty", "--show-error-codes", "--ignore-missing-imports"
        ),
        "-p": WORD,
        "-m": WORD,
    },
    positional=PATH,
)
_UNITTEST = Shape(
    flags=switches("-v", "-q", "-f", "-b", "--locals", "--failfast", "--buffer"), positional=NODE
)
_DISCOVER = Shape(
    flags={
        **switches("-v", "-q", "-f", "-b", "--locals"),
        "-s": PATH, "-t": PATH, "-p": re.compile(r"[A-Za-z0-9_*?.\[\]-]{1,80}"),
    },
)  # fmt: skip
_MANAGE_TEST = Shape(
    flags={
        **switches("--keepdb", "--failfast", "--noinput", "--no-input"),
        "-v": ("0", "1", "2", "3"),
        "--parallel": INTEGER,
    },
    positional=WORD,
)
_MANAGE_FIXED = (
    ["manage.py", "check"],
    ["manage.py", "makemigrations", "--check", "--dry-run"],
    ["manage.py", "makemigrations", "--check"],
)
_PIP = Shape(
    flags={
        **switches("-U", "-q", "--upgrade", "--quiet", "--no-input"),
        "-r": PATH,
        "-c": PATH,
        "-e": re.compile(r"\.(\[[A-Za-z0-9_,-]+\])?"),
    },
    positional=re.compile(r"(\.|[A-Za-z0-9])[A-Za-z0-9_.\[\],<>=!~-]{0,120}"),
)


def pytest_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    return Allowed(argv=("pytest", *_PYTEST_ALWAYS, *take(arguments, _PYTEST)))


def ruff_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    match list(arguments):
        case ["check", *rest]:
            return Allowed(argv=("ruff", "check", "--no-cache", *take(rest, _RUFF_CHECK)))
        case ["format", *rest]:
            return Allowed(argv=("ruff", "format", "--no-cache", *take(rest, _RUFF_FORMAT)))
    raise CommandRefused("only ruff check and ruff format")


def mypy_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    return Allowed(argv=("mypy", "--cache-dir=/tmp/mypy", *take(arguments, _MYPY)))


_MODULES: dict[str, Callable[[Sequence[str], CommandContext], Allowed]] = {
    "pytest": pytest_command,
    "ruff": ruff_command,
    "mypy": mypy_command,
}


def python_command(arguments: Sequence[str], context: CommandContext) -> Allowed:
    """Exact places: the second token is `-m`, the third a module (faults C38, C39)."""
    match list(arguments):
        case ["-m", "unittest", "discover", *rest]:
            return Allowed(argv=("python3", "-m", "unittest", "discover", *take(rest, _DISCOVER)))
        case ["-m", "unittest", *rest]:
            return Allowed(argv=("python3", "-m", "unittest", *map(_plain, take(rest, _UNITTEST))))
        case ["-m", "pip", *rest]:
            return pip_command(rest, context)
        case ["-m", module, *rest] if module in _MODULES:
            return Allowed(argv=("python3", "-m", *_MODULES[module](rest, context).argv))
        case ["manage.py", "test", *rest]:
            return Allowed(argv=("python3", "manage.py", "test", *take(rest, _MANAGE_TEST)))
        case fixed if fixed in _MANAGE_FIXED:
            return Allowed(argv=("python3", *fixed))
    raise CommandRefused("python runs only test runners and checks here")


def uv_command(arguments: Sequence[str], context: CommandContext) -> Allowed:
    """What `uv run` would run is checked, and run from the prepared environment without uv."""
    match list(arguments):
        case ["sync", *rest]:
            take(rest, Shape(flags=switches("--frozen", "--locked", "--all-extras", "--dev", "--offline")))
            return Allowed(argv=("uv", "sync"), prepares="python")
        case ["pip", *rest]:
            return pip_command(rest, context)
        case ["run", *rest]:
            while rest and rest[0] in ("--offline", "--frozen", "--no-sync", "--locked"):
                rest = rest[1:]
            inner = {"python": python_command, "python3": python_command, **_MODULES}
            if rest and rest[0] in inner:
                return inner[rest[0]](rest[1:], context)
            raise CommandRefused("uv run runs only pytest, ruff, mypy and python here")
    raise CommandRefused("only uv run and uv sync")


def pip_command(arguments: Sequence[str], _context: CommandContext) -> Allowed:
    match list(arguments):
        case ["install", *rest] if rest:
            return Allowed(argv=("pip", "install", *take(rest, _PIP)), prepares="python")
    raise CommandRefused("only pip install")


def _plain(argument: str) -> str:
    """unittest takes dotted names; a rewritten path loses its ./ again where it can be no flag."""
    plain = argument.removeprefix("./")
    return argument if plain.startswith("-") else plain
