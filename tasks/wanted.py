"""What a person or client asks for, checked field by field before a row exists."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from budgets.money import NotAnAmount, Usd, parse_usd
from tenants import text
from tenants.errors import InvalidInput

TITLE_CHARACTERS_MAX = 200
GOAL_CHARACTERS_MAX = 100_000
CRITERIA_MAX = 50
CRITERION_CHARACTERS_MAX = 2_000
COMMAND_CHARACTERS_MAX = 1_000
INVARIANTS_MAX = 50
INVARIANT_CHARACTERS_MAX = 2_000
# No shell ever sees a command, so what only a shell understands would be a mistake.
SHELL_ONLY = frozenset(";&|<>`$\n\r\0")

FIELDS = frozenset({"title", "goal", "criteria", "invariants", "budget", "draft"})


@dataclass(frozen=True, slots=True)
class WantedCriterion:
    text: str
    command: str = ""  # empty: the acceptance check is asked


@dataclass(frozen=True, slots=True)
class WantedChange:
    """A Change as asked for. `budget` None: no limit of its own; 0: it may call nothing."""

    title: str
    goal: str
    criteria: tuple[WantedCriterion, ...]
    invariants: tuple[str, ...] = ()
    budget: Usd | None = None
    draft: bool = False


def read_wanted(data: Mapping[str, Any]) -> WantedChange:
    """A client's or a form's fields as a WantedChange. Raises InvalidInput with the field's dotted name."""
    strange = sorted(str(name) for name in data if name not in FIELDS)
    if strange:
        raise InvalidInput(strange[0][:60], "is an unknown field", f"Known are {', '.join(sorted(FIELDS))}.")
    draft = data.get("draft", False)
    if not isinstance(draft, bool):
        raise InvalidInput("draft", "is neither true nor false", "Send a JSON boolean.")
    return checked(
        WantedChange(
            title=data.get("title", ""),
            goal=data.get("goal", ""),
            criteria=tuple(_criterion(index, each) for index, each in enumerate(_list("criteria", data))),
            invariants=tuple(_list("invariants", data)),
            budget=read_budget(data.get("budget")),
            draft=draft,
        )
    )


def checked(wanted: WantedChange) -> WantedChange:
    """The same, trimmed; raises InvalidInput for what cannot be a Change. Every door passes here."""
    if not isinstance(wanted.budget, Usd | None):
        raise InvalidInput("budget", "is no amount of money", 'Give US dollars as text, such as "12.50".')
    if wanted.budget is not None and wanted.budget < Usd(0):
        raise InvalidInput("budget", "is negative", "Give 0 or more, or leave it out for no limit.")
    _counted("criteria", len(wanted.criteria), 1, CRITERIA_MAX)
    _counted("invariants", len(wanted.invariants), 0, INVARIANTS_MAX)
    return WantedChange(
        title=text.one_line("title", wanted.title, characters_max=TITLE_CHARACTERS_MAX),
        goal=text.free_text("goal", wanted.goal, characters_max=GOAL_CHARACTERS_MAX, required=True),
        criteria=tuple(_checked_criterion(index, each) for index, each in enumerate(wanted.criteria)),
        invariants=tuple(
            text.free_text(
                f"invariants[{index}]", each, characters_max=INVARIANT_CHARACTERS_MAX, required=True
            )
            for index, each in enumerate(wanted.invariants)
        ),
        budget=wanted.budget,
        draft=wanted.draft,
    )


def read_budget(value: object) -> Usd | None:
    """Nothing and an empty text mean no limit."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        return parse_usd(value)
    except NotAnAmount as error:
        raise InvalidInput("budget", "is no amount of money", f"{str(error).capitalize()}.") from None


def why_no_command(command: str) -> str:
    """Why this text is no command that can be run without a shell; empty when it is one."""
    if any(character in SHELL_ONLY for character in command):
        return "has shell syntax; a command is one program with plain arguments"
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"cannot be split into arguments ({str(error).lower()})"
    if not words or not words[0].strip():
        return "names no program"
    if "=" in words[0] or words[0].startswith("-"):
        return "starts with something that is no program"
    return ""


def _checked_criterion(index: int, wanted: WantedCriterion) -> WantedCriterion:
    where = f"criteria[{index}]"
    command = text.one_line(
        f"{where}.command", wanted.command, characters_max=COMMAND_CHARACTERS_MAX, required=False
    )
    problem = why_no_command(command) if command else ""
    if problem:
        raise InvalidInput(
            f"{where}.command",
            problem,
            'Write it like "python3 -m unittest", or put the steps into a script.',
        )
    said = text.free_text(
        f"{where}.text", wanted.text, characters_max=CRITERION_CHARACTERS_MAX, required=True
    )
    return WantedCriterion(said, command)


def _criterion(index: int, value: object) -> WantedCriterion:
    """A criterion as text alone, or as an object with `text` and perhaps `command`."""
    if isinstance(value, str):
        return WantedCriterion(value)
    where = f"criteria[{index}]"
    if not isinstance(value, Mapping):
        raise InvalidInput(where, "is neither text nor an object", 'Send {"text": ..., "command": ...}.')
    strange = sorted(str(name) for name in value if name not in {"text", "command"})
    if strange:
        raise InvalidInput(f"{where}.{strange[0][:40]}", "is an unknown field", "Known are text and command.")
    return WantedCriterion(value.get("text", ""), value.get("command") or "")


def _list(field: str, data: Mapping[str, Any]) -> list[Any] | tuple[Any, ...]:
    value = data.get(field, [])
    if not isinstance(value, list | tuple):
        raise InvalidInput(field, "is not a list", "Send a JSON list.", code="not_a_list")
    return value


def _counted(field: str, count: int, count_min: int, count_max: int) -> None:
    if count < count_min:
        raise InvalidInput(field, "is empty", "Give at least one.", code="required")
    if count > count_max:
        raise InvalidInput(field, f"has {count} entries", f"Give at most {count_max}.", code="too_many")
