"""The smallest valid things of the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agents.context.packet import ContextFacts, CriterionFact, Item, Place


def make_item(**over: Any) -> Item:
    item = Item(
        item_id="file:a.py",
        source="a.py",
        source_version="v1",
        captured_at="2026-11-01T00:00:00Z",
        place=Place.DECLARED,
        text="print('a')\n",
    )
    return replace(item, **over)


def make_facts(**over: Any) -> ContextFacts:
    facts = ContextFacts(
        change_title="Greet people",
        change_goal="The program greets people by name.",
        criteria=(CriterionFact(text="the tests pass", command="pytest"),),
        invariants=(),
        task_key="T1",
        task_title="Add a greeting",
        objective="Write greet().",
        kind="implement",
        size="small",
        risk="low",
        resources=("greet.py",),
        calls_max=16,
        reads_max=12,
    )
    return replace(facts, **over)
