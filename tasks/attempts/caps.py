"""The caps of one run: by tier, and as a project's owner set them within hard maxima."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.spec import RunCaps
from routing.tiers import CALLS_HARD_MAX, CALLS_MAX
from routing.words import Tier

# name: (default, hard maximum). A project's `caps` may name each; calls are named by tier, as calls_haiku.
READS = ("reads", 12, 100)
READ_CHARACTERS = ("read_characters", 40_000, 200_000)
COMMAND_SECONDS = ("command_seconds", 180, 600)
OUTPUT_CHARACTERS = ("output_characters", 12_000, 100_000)
SANDBOXES = ("sandboxes", 4, 16)


def caps_of(tier: Tier, overrides: Mapping[str, Any]) -> RunCaps:
    """Rows 50, 54 to 56. An override that is no whole number from 1 on is not followed."""
    return RunCaps(
        calls_max=_cap((f"calls_{tier.word}", CALLS_MAX[tier], CALLS_HARD_MAX), overrides),
        reads_max=_cap(READS, overrides),
        read_characters_max=_cap(READ_CHARACTERS, overrides),
        command_seconds_max=_cap(COMMAND_SECONDS, overrides),
        output_characters_max=_cap(OUTPUT_CHARACTERS, overrides),
        sandboxes_max=_cap(SANDBOXES, overrides),
    )


def _cap(cap: tuple[str, int, int], overrides: Mapping[str, Any]) -> int:
    name, default, hard_max = cap
    wanted = overrides.get(name)
    if type(wanted) is not int or wanted < 1:
        return default
    return min(wanted, hard_max)
