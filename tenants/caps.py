"""The caps of a run and of a Change that a project may set, each within its hard maximum: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenants.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Cap:
    """One cap: what holds when a project says nothing, and what it may say at most."""

    default: int
    maximum: int
    label: str


# Rows 16, 50, 54, 55, 56. The same defaults stand beside the code that keeps them; a test compares.
CAPS: Mapping[str, Cap] = {
    "calls_haiku": Cap(16, 200, "Model calls of a run at haiku"),
    "calls_sonnet": Cap(32, 200, "Model calls of a run at sonnet"),
    "calls_opus": Cap(32, 200, "Model calls of a run at opus"),
    "reads": Cap(12, 200, "Files a run may read"),
    "read_characters": Cap(40_000, 200_000, "Characters of one read"),
    "command_seconds": Cap(180, 1_800, "Seconds of one command"),
    "output_characters": Cap(12_000, 100_000, "Characters of a command's output"),
    "sandboxes": Cap(4, 16, "Open sandboxes of a change"),
    "agents": Cap(8, 32, "Agents at work on a change"),
}
assert all(1 <= cap.default <= cap.maximum for cap in CAPS.values())


def caps_of(overrides: Mapping[str, int]) -> dict[str, int]:
    """What holds for a project whose `caps` column has these overrides; a stale one is cut to its range."""
    return {
        name: min(cap.maximum, max(1, int(overrides.get(name, cap.default)))) for name, cap in CAPS.items()
    }


def checked_caps(field: str, value: object) -> dict[str, int]:
    """Overrides as a client sent them. Null takes one back; a default is stored like any other number."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, "is not an object", f"Send some of: {', '.join(CAPS)}.")
    return {
        str(name): _checked(f"{field}.{str(name)[:60]}", str(name), number)
        for name, number in value.items()
        if number is not None or str(name) not in CAPS
    }


def _checked(field: str, name: str, number: object) -> int:
    cap = CAPS.get(name)
    if cap is None:
        raise InvalidInput(field, "is no cap", f"Known are: {', '.join(CAPS)}.", code="unknown_cap")
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= cap.maximum:
        raise InvalidInput(
            field,
            "is out of range",
            f"Send a whole number from 1 to {cap.maximum:,}, or null for {cap.default:,}.",
        )
    return number
