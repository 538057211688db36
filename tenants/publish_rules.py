"""What a project lets agents publish, within hard maxima: pure. Looked at by `agents.workspace.publishing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter
from pydantic_core import SchemaError

from tenants import text
from tenants.errors import InvalidInput

FILE_KIB_DEFAULT, FILE_KIB_MAX = 5 * 1024, 100 * 1024
FILES_DEFAULT, FILES_MAX = 5_000, 50_000
PATTERNS_MAX = 20
PATTERN_CHARACTERS_MAX = 200
PATTERN_NAME_CHARACTERS_MAX = 60
EXCEPTIONS_MAX = 50
EXCEPTION_CHARACTERS_MAX = 300

Finds = Callable[[str], bool]


def finder(pattern: str) -> Finds:
    """Whether a text holds the pattern. Raises ValueError for one that cannot be read.

    The engine is one whose time grows with the text alone: an owner's pattern and an agent's file together
    can hang no worker. So it knows no look-around and no back-references.
    """
    try:
        adapter = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError as error:
        raise ValueError(str(error).splitlines()[-1].strip()) from None

    def finds(said: str) -> bool:
        try:
            adapter.validate_python(said)
        except ValueError:
            return False
        return True

    return finds


def checked_publish_rules(field: str, value: object) -> dict[str, Any]:
    """Overrides as a client sent them; null takes one back. Raises InvalidInput naming the field."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, "is not an object", f"Send some of: {', '.join(_CHECKS)}.")
    found = {}
    for name, given in value.items():
        check = _CHECKS.get(str(name))
        if check is None:
            raise InvalidInput(
                f"{field}.{str(name)[:60]}",
                "is no rule",
                f"Known are: {', '.join(_CHECKS)}.",
                code="unknown_field",
            )
        if given is not None and given != []:
            found[str(name)] = check(f"{field}.{name}", given)
    return found


def _number(maximum: int, default: int) -> Callable[[str, object], int]:
    def check(field: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
            raise InvalidInput(
                field,
                "is out of range",
                f"Send a whole number from 1 to {maximum:,}, or null for {default:,}.",
            )
        return value

    return check


def _patterns(field: str, value: object) -> list[dict[str, str]]:
    if not isinstance(value, list) or len(value) > PATTERNS_MAX:
        raise InvalidInput(field, "is no short list", f"Send at most {PATTERNS_MAX} objects.")
    return [_pattern(f"{field}.{at}", each) for at, each in enumerate(value)]


def _pattern(field: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or set(value) != {"name", "pattern"}:
        raise InvalidInput(field, "is no pattern", 'Send {"name": ..., "pattern": ...}.')
    name = text.one_line(f"{field}.name", value["name"], characters_max=PATTERN_NAME_CHARACTERS_MAX)
    pattern = text.one_line(f"{field}.pattern", value["pattern"], characters_max=PATTERN_CHARACTERS_MAX)
    try:
        finds = finder(pattern)
    except ValueError as error:
        raise InvalidInput(
            f"{field}.pattern", f"cannot be read ({error})", "Write a regular expression without look-around."
        ) from None
    if finds(""):
        raise InvalidInput(
            f"{field}.pattern", "is found in every file", "Write one that needs at least one character."
        )
    return {"name": name, "pattern": pattern}


def _exceptions(field: str, value: object) -> list[str]:
    if not isinstance(value, list) or len(value) > EXCEPTIONS_MAX:
        raise InvalidInput(field, "is no short list", f"Send at most {EXCEPTIONS_MAX} paths.")
    return [
        text.one_line(f"{field}.{at}", each, characters_max=EXCEPTION_CHARACTERS_MAX)
        for at, each in enumerate(value)
    ]


_CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "file_kib_max": _number(FILE_KIB_MAX, FILE_KIB_DEFAULT),
    "files_max": _number(FILES_MAX, FILES_DEFAULT),
    "secret_patterns": _patterns,
    "secret_exceptions": _exceptions,
}
RULES = tuple(_CHECKS)
