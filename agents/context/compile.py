"""Pure: orders the items, drops what does not fit, and gives the packet (rows 200 to 207)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents.context.packet import ContextFacts, ContextPacket, Item, Place
from agents.context.render import render_fixed, render_item

PACKET_TOKENS_MAX = 12_000
CHARACTERS_PER_TOKEN = 4
# What one caller may bring; retrieval has its own smaller limits.
ITEMS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class PacketTooLarge:
    """The fixed part alone does not fit: the Task fails with `packet_too_large` (row 25)."""

    tokens: int
    tokens_max: int


def compile_packet(
    facts: ContextFacts, *, tokens_max: int = PACKET_TOKENS_MAX
) -> ContextPacket | PacketTooLarge:
    """The packet for these facts: the same facts give the same bytes, at any time and on any machine."""
    assert len(facts.items) <= ITEMS_MAX, f"{len(facts.items)} items for one packet"
    fixed = tokens_in(render_fixed(facts))
    if fixed > tokens_max:
        return PacketTooLarge(fixed, tokens_max)
    ordered = _ordered(facts.items)
    sizes = [tokens_in(render_item(item)) for item in ordered]
    kept = _kept(sizes, room=tokens_max - fixed)
    return ContextPacket(
        facts=replace(facts, items=tuple(ordered[:kept])),
        dropped=tuple((item.item_id, item.source_version) for item in ordered[kept:]),
        tokens=fixed + sum(sizes[:kept]),
    )


def tokens_in(text: str) -> int:
    """The house's estimate of a text's tokens: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _ordered(items: Sequence[Item]) -> list[Item]:
    """By place, as given within a place, semantic matches best first; the first of two with one id stays."""
    first = {item.item_id: item for item in reversed(items)}
    once = [item for item in items if first[item.item_id] is item]
    return sorted(
        once, key=lambda item: (item.place, -(item.score or 0) if item.place is Place.SEMANTIC else 0)
    )


def _kept(sizes: Sequence[int], *, room: int) -> int:
    """How many from the front stay when the last is dropped until all fit. An exact fit stays."""
    kept, total = len(sizes), sum(sizes)
    while total > room:
        kept -= 1
        total -= sizes[kept]
    return kept
