"""The graph of a Change's Tasks: where each box and each arrow stands. Pure.

Layers by longest path from the left, so every arrow points right; inside a layer
the boxes follow the middle of what they depend on, which keeps crossings few.
Sizes are pixels of the SVG's own coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")

BOX_WIDTH = 214
BOX_HEIGHT = 64
GAP_X = 56
GAP_Y = 20
MARGIN = 6
NARROW_WIDTH = 350
NARROW_GAP = 14
NARROW_INDENT = 24
NARROW_INDENTS_WIDTH = 120
NARROW_STEM = 10


@dataclass(frozen=True, slots=True)
class Box(Generic[Key]):
    key: Key
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Arrow(Generic[Key]):
    """From the right edge of `source` to the left edge of `target`, as SVG path data."""

    source: Key
    target: Key
    path: str


@dataclass(frozen=True, slots=True)
class Graph(Generic[Key]):
    width: int
    height: int
    boxes: tuple[Box[Key], ...]
    arrows: tuple[Arrow[Key], ...]


def lay_out(depends_on: Mapping[Key, Sequence[Key]]) -> Graph[Key]:
    """Boxes in the order of the mapping, each with what it depends on. The plan has no cycle (faults C84)."""
    layers = _layers(depends_on)
    rows: dict[Key, int] = {}
    columns: list[list[Key]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for key, layer in layers.items():
        columns[layer].append(key)
    for column in columns:
        column.sort(key=lambda key: _middle([rows[on] for on in depends_on[key]]))
        rows.update({key: row for row, key in enumerate(column)})
    boxes = {
        key: Box(key, MARGIN + layers[key] * (BOX_WIDTH + GAP_X), MARGIN + rows[key] * (BOX_HEIGHT + GAP_Y))
        for key in depends_on
    }
    arrows = [Arrow(on, key, _curve(boxes[on], boxes[key])) for key, ons in depends_on.items() for on in ons]
    tallest = max((len(column) for column in columns), default=0)
    return Graph(
        width=2 * MARGIN + max(len(columns) * (BOX_WIDTH + GAP_X) - GAP_X, 0),
        height=2 * MARGIN + max(tallest * (BOX_HEIGHT + GAP_Y) - GAP_Y, 0),
        boxes=tuple(boxes.values()),
        arrows=tuple(arrows),
    )


def lay_out_narrow(depends_on: Mapping[Key, Sequence[Key]]) -> Graph[Key]:
    """The same graph for a narrow screen: a box a row, indented by its layer, arrows down the left side."""
    layers = _layers(depends_on)
    order = sorted(layers, key=lambda key: layers[key])
    indent = min(NARROW_INDENT, NARROW_INDENTS_WIDTH // max(*layers.values(), 1)) if layers else 0
    boxes = {
        key: Box(key, MARGIN + layers[key] * indent, MARGIN + row * (BOX_HEIGHT + NARROW_GAP))
        for row, key in enumerate(order)
    }
    arrows = [Arrow(on, key, _elbow(boxes[on], boxes[key])) for key, ons in depends_on.items() for on in ons]
    return Graph(
        width=NARROW_WIDTH,
        height=2 * MARGIN + max(len(order) * (BOX_HEIGHT + NARROW_GAP) - NARROW_GAP, 0),
        boxes=tuple(boxes.values()),
        arrows=tuple(arrows),
    )


def _elbow(source: Box[Key], target: Box[Key]) -> str:
    x, y = source.x + NARROW_STEM, source.y + BOX_HEIGHT
    return f"M{x},{y} V{target.y + BOX_HEIGHT // 2} H{target.x}"


def _layers(depends_on: Mapping[Key, Sequence[Key]]) -> dict[Key, int]:
    found: dict[Key, int] = {}
    waiting = list(depends_on)
    while waiting:
        placed = [key for key in waiting if all(on in found for on in depends_on[key])]
        assert placed, f"a cycle among {waiting}"
        for key in placed:
            found[key] = max((found[on] + 1 for on in depends_on[key]), default=0)
        waiting = [key for key in waiting if key not in found]
    return {key: found[key] for key in depends_on}


def _middle(rows: Sequence[int]) -> int:
    """Doubled, so that a half stays whole; a box that depends on nothing keeps its place at the top."""
    return 2 * sum(rows) // len(rows) if rows else 0


def _curve(source: Box[Key], target: Box[Key]) -> str:
    x1, y1 = source.x + BOX_WIDTH, source.y + BOX_HEIGHT // 2
    x2, y2 = target.x, target.y + BOX_HEIGHT // 2
    bend = max(GAP_X // 2, (x2 - x1) // 2)
    return f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
