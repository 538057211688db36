"""Pure: a packet as the prompt that an attempt begins with."""

from __future__ import annotations

from collections.abc import Iterable

from agents.context.fence import fence
from agents.context.outline import outline
from agents.context.packet import ContextFacts, ContextPacket, FailureFact, Item, StackedFact

INTEGRATE_NOTE = (
    "Build against the real routes, field names and data shapes of this work; do not invent your own."
)


def render(packet: ContextPacket) -> str:
    """The whole prompt. Its length is what the packet's tokens were counted from."""
    return render_fixed(packet.facts) + "".join(render_item(item) for item in packet.facts.items)


def render_fixed(facts: ContextFacts) -> str:
    """The part that is never dropped (row 201)."""
    return "".join(_section(title, lines) for title, lines in _sections(facts))


def render_item(item: Item) -> str:
    """One retrieved item, fenced: a repository's text gives no orders."""
    score = "" if item.score is None else f", similarity {item.score / 10_000:.2f}"
    head = f"### {item.place.label}: {item.source}{score}\n"
    note = f"(version {item.source_version}, of {item.captured_at})\n"
    return f"{head}{note}{fence(item.item_id, item.text)}\n\n"


def _sections(facts: ContextFacts) -> Iterable[tuple[str, Iterable[str]]]:
    yield f"Change: {facts.change_title}", [facts.change_goal]
    yield (
        "Acceptance criteria",
        [
            f"- {each.text}" + (f" (checked by: {each.command})" if each.command else "")
            for each in facts.criteria
        ],
    )
    yield "What must stay true", _listed(facts.invariants)
    yield f"Your Task: {facts.task_key} {facts.task_title}", [facts.objective]
    yield (
        "About the Task",
        [
            f"kind {facts.kind}, size {facts.size}, risk {facts.risk}",
            *_labelled("resources", facts.resources),
        ],
    )
    yield "Notes of people and reviews", _listed(facts.notes)
    yield (
        "Conventions of this repository",
        [fence("conventions", facts.conventions)] if facts.conventions else [],
    )
    yield "Work that yours is stacked on", [_stacked(each) for each in facts.stacked]
    yield "Earlier attempts at this Task", [_failure(each) for each in facts.failures]
    yield "Files", [fence("files", "\n".join(outline(facts.files)))] if facts.files else []
    yield "Your limits", _limits(facts)


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"## {title}\n{body}\n\n" if body else ""


def _listed(texts: Iterable[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _labelled(label: str, texts: tuple[str, ...]) -> list[str]:
    return [f"{label}: {', '.join(texts)}"] if texts else []


def _stacked(each: StackedFact) -> str:
    note = f"\n  {INTEGRATE_NOTE}" if each.integrate else ""
    files = "\n".join(f"  {line}" for line in outline(each.files, characters_max=1_000))
    return f"- {each.task} {each.title}{note}\n{fence('intent', each.intent)}\n{files}"


def _failure(each: FailureFact) -> str:
    head = f"- attempt {each.attempt} at {each.tier} ended: {each.end}"
    return f"{head}\n{fence(f'attempt {each.attempt}', each.log)}" if each.log else head


def _limits(facts: ContextFacts) -> list[str]:
    lines = [
        f"- model calls: {facts.calls_max}; the last one may only finish",
        f"- file reads: {facts.reads_max}",
    ]
    if facts.budget:
        lines.append(f"- money: {facts.budget}")
    if facts.tools:
        lines.append(f"- tools: {', '.join(facts.tools)}")
    return lines
