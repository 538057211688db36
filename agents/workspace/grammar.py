"""Pure: the parts that command grammars are made of. What is not named is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.workspace.names import PathRefused, path_parts

POSITIONALS_MAX = 40

INTEGER = re.compile(r"[0-9]{1,4}")
WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,80}")
TEXT = re.compile(r"[\x20-\x7e]{1,300}")


class CommandRefused(Exception):
    """Inside the grammars only: `read_command` turns it into a `Refusal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """What the repository and its owner say about commands. Texts of the repository are data, never run here."""

    scripts: frozenset[str] = frozenset()  # of package.json
    targets: frozenset[str] = frozenset()  # of the Makefile
    makefile: str = ""
    extra: tuple[tuple[str, ...], ...] = ()  # an owner's exact argv patterns


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """`prepares`: answered by the prepared dependencies, never run. `builds`: what it writes is discarded."""

    argv: tuple[str, ...]
    prepares: str = ""  # "", python or node
    builds: bool = False


@dataclass(frozen=True, slots=True)
class _Path:
    """A path beneath the workspace, rewritten so that it can never look like a flag."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A path that may name tests inside: `tests/test_a.py::TestA::test_b[1-2]`."""


PATH = _Path()
NODE = _Node()
Rule = re.Pattern[str] | tuple[str, ...] | _Path | _Node | Callable[[str], str]
Flags = Mapping[str, Rule | None]


def switches(*names: str) -> dict[str, Rule | None]:
    """Flags that take no value."""
    return dict.fromkeys(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which flags and which other arguments a command takes."""

    flags: Flags = field(default_factory=dict)
    positional: Rule | None = None
    positionals_max: int = POSITIONALS_MAX
    after_dashes: Rule | None = None


def take(arguments: Sequence[str], shape: Shape) -> list[str]:
    """The arguments, each checked and rewritten. Raises `CommandRefused`."""
    out: list[str] = []
    count, left = 0, list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            if shape.after_dashes is None:
                raise CommandRefused("'--' is not allowed here")
            return [*out, "--", *(_value(each, shape.after_dashes, "argument") for each in left)]
        if argument.startswith("-"):
            out += _flag(argument, left, shape.flags)
            continue
        count += 1
        if shape.positional is None or count > shape.positionals_max:
            raise CommandRefused(f"the argument {argument!r} is not allowed")
        out.append(_value(argument, shape.positional, "argument"))
    return out


def path(argument: str) -> str:
    """`./a/b`, or `.` for the workspace itself."""
    if argument.startswith(("-", ":")):  # a flag, or git's pathspec magic
        raise CommandRefused(f"{argument!r}: a path does not start with {argument[0]!r}")
    try:
        parts = path_parts(argument)
    except PathRefused as error:
        raise CommandRefused(f"{argument!r}: {error}") from None
    if not parts:
        return "."
    return "./" + b"/".join(parts).decode("utf-8", "surrogateescape")


def node(argument: str) -> str:
    place, mark, inside = argument.partition("::")
    if mark and not TEXT.fullmatch(inside):
        raise CommandRefused(f"{argument!r} is no test name")
    return path(place) + mark + inside


def one_of(words: Iterable[str]) -> Callable[[str], str]:
    """A rule for literal arguments, such as `--nocapture` after `--`."""
    known = frozenset(words)

    def rule(argument: str) -> str:
        if argument not in known:
            raise CommandRefused(f"{argument!r} is not allowed here")
        return argument

    return rule


def _flag(argument: str, left: list[str], flags: Flags) -> list[str]:
    name, equals, value = argument.partition("=")
    if name not in flags:
        return _short(argument, flags)
    rule = flags[name]
    if rule is None:
        if equals:
            raise CommandRefused(f"{name} takes no value")
        return [argument]
    if not equals:
        if not left:
            raise CommandRefused(f"{name} needs a value")
        value = left.pop(0)
    return _joined(name, _value(value, rule, name))


def _short(argument: str, flags: Flags) -> list[str]:
    """`-n4` for `-n 4`, and `-qx` for `-q -x`."""
    if not argument.startswith("--") and len(argument) > 2:
        name, value = argument[:2], argument[2:]
        rule = flags.get(name)
        if rule is not None and "=" not in argument:
            return _joined(name, _value(value, rule, name))
        if all(f"-{letter}" in flags and flags[f"-{letter}"] is None for letter in argument[1:]):
            return [argument]
    raise CommandRefused(f"the flag {argument.partition('=')[0]!r} is not allowed")


def _joined(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def _value(value: str, rule: Rule, what: str) -> str:
    if isinstance(rule, _Path):
        return path(value)
    if isinstance(rule, _Node):
        return node(value)
    if isinstance(rule, tuple):
        if value not in rule:
            raise CommandRefused(f"{what}: {value!r} is not one of {', '.join(rule)}")
        return value
    if isinstance(rule, re.Pattern):
        if value.startswith("-") or not rule.fullmatch(value):
            raise CommandRefused(f"{what}: {value!r} is not allowed")
        return value
    return rule(value)
