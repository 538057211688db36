"""Pure: what a Context Packet is made of, its canonical JSON and its hash, and what two packets differ in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

PACKET_VERSION = 1


class Place(IntEnum):
    """Where an item comes from; the order of the packet, and from the end the order of dropping (rows 202, 203)."""

    DECLARED = 1
    NEIGHBOUR = 2
    OWNER = 3
    INTENT = 4
    FAILURE = 5
    SEMANTIC = 6

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Place.DECLARED: "declared file",
    Place.NEIGHBOUR: "neighbour of a declared file",
    Place.OWNER: "owner of a resource",
    Place.INTENT: "intent of related work",
    Place.FAILURE: "failure of related work",
    Place.SEMANTIC: "similar file",
}
assert _LABELS.keys() == set(Place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One retrieved thing. `captured_at` is the time of the source's version, never now: hashes must repeat (row 204).

    `score` is a cosine in ten-thousandths, for semantic items only: no float enters the hash.
    """

    item_id: str
    source: str
    source_version: str
    captured_at: str
    place: Place
    text: str
    score: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionFact:
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedFact:
    """A published ChangeSet on which this Task builds."""

    task: str
    title: str
    intent: str
    files: tuple[str, ...]
    integrate: bool = False  # build against its real routes, names and shapes (row 219)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFact:
    """An earlier attempt of this Task and what it left behind."""

    attempt: int
    tier: str
    end: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFacts:
    """Everything that may be told to an attempt. All but `items` is fixed and never dropped (row 201)."""

    change_title: str
    change_goal: str
    criteria: tuple[CriterionFact, ...]
    invariants: tuple[str, ...]
    task_key: str
    task_title: str
    objective: str
    kind: str
    size: str
    risk: str
    resources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # of the start tree; a long list is shown as an outline
    conventions: str = ""
    stacked: tuple[StackedFact, ...] = ()
    failures: tuple[FailureFact, ...] = ()
    tools: tuple[str, ...] = ()
    calls_max: int
    reads_max: int
    budget: str = ""  # as people read money; empty: no cap of its own
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPacket:
    """What one attempt is told. `dropped` names what did not fit, so that the same hash means the same inputs."""

    facts: ContextFacts  # its items are those that were kept, in order
    dropped: tuple[tuple[str, str], ...]  # item id, source version
    tokens: int
    version: int = PACKET_VERSION

    def as_json(self) -> bytes:
        """Canonical: keys sorted, no spaces, ASCII. Two equal packets are equal bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.as_json()).hexdigest()


def packet_from(content: bytes) -> ContextPacket:
    """A stored packet, opened again. Raises `ValueError` for another version."""
    data = json.loads(content)
    if data["version"] != PACKET_VERSION:
        raise ValueError(f"this is a packet of version {data['version']}, not {PACKET_VERSION}")
    facts = dict(data["facts"])
    facts["criteria"] = tuple(CriterionFact(**each) for each in facts["criteria"])
    facts["stacked"] = tuple(
        StackedFact(**{**each, "files": tuple(each["files"])}) for each in facts["stacked"]
    )
    facts["failures"] = tuple(FailureFact(**each) for each in facts["failures"])
    facts["items"] = tuple(Item(**{**each, "place": Place(each["place"])}) for each in facts["items"])
    for name in ("invariants", "resources", "notes", "files", "tools"):
        facts[name] = tuple(facts[name])
    dropped = tuple((item_id, version) for item_id, version in data["dropped"])
    return ContextPacket(facts=ContextFacts(**facts), dropped=dropped, tokens=data["tokens"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDifference:
    """One field of the fixed part: what only the later packet says, and what only the earlier one said."""

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketDifference:
    """What a later packet knows that an earlier one did not, and the other way round."""

    added: tuple[Item, ...]
    removed: tuple[Item, ...]
    changed: tuple[tuple[Item, Item], ...]  # earlier, later: same id, another version or text
    fixed: tuple[FixedDifference, ...]

    @property
    def nothing(self) -> bool:
        return not (self.added or self.removed or self.changed or self.fixed)


def compare(earlier: ContextPacket, later: ContextPacket) -> PacketDifference:
    """What was added and removed between two packets, item by item and field by field."""
    before = {item.item_id: item for item in earlier.facts.items}
    after = {item.item_id: item for item in later.facts.items}
    return PacketDifference(
        added=tuple(item for key, item in after.items() if key not in before),
        removed=tuple(item for key, item in before.items() if key not in after),
        changed=tuple(
            (before[key], item) for key, item in after.items() if key in before and before[key] != item
        ),
        fixed=tuple(_fixed_differences(asdict(earlier.facts), asdict(later.facts))),
    )


def _fixed_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FixedDifference]:
    found = []
    for name in after:
        if name == "items" or before[name] == after[name]:
            continue
        old, new = _lines(before[name]), _lines(after[name])
        found.append(
            FixedDifference(
                name=name,
                added=tuple(line for line in new if line not in set(old)),
                removed=tuple(line for line in old if line not in set(new)),
            )
        )
    return found


def _lines(value: Any) -> list[str]:
    if isinstance(value, tuple | list):
        return [each if isinstance(each, str) else _one_line(each) for each in value]
    return str(value).splitlines()


def _one_line(fact: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in fact.items() if value not in ("", (), None))
