"""The context compiler and the exact search, beside the least that such work can be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

import numpy as np

from agents.context.compile import compile_packet
from agents.context.packet import ContextFacts, Item, Place
from agents.index import Match, cosines, nearest
from bench.measured import Measured, compared
from providers.embeddings import DIMENSIONS

CANDIDATES = 10_000
VECTORS = 10_000


def measure() -> Iterable[Measured]:
    facts = _facts()
    yield compared(
        f"compile a packet from {CANDIDATES:,} candidates, against hashing them as JSON",
        lambda: compile_packet(facts),
        lambda: hashlib.sha256(json.dumps([asdict(item) for item in facts.items]).encode()).hexdigest(),
        aim="at most 2",
    )
    vectors, question = _vectors(), np.ones(DIMENSIONS, dtype=np.float32)
    paths = [f"file_{number}.py" for number in range(VECTORS)]
    yield compared(
        f"nearest of {VECTORS:,} vectors, against one product of the matrix",
        lambda: nearest([Match(*pair) for pair in zip(paths, cosines(vectors, question), strict=True)]),
        lambda: vectors.astype(np.float64) @ question.astype(np.float64),
        aim="at most 10",
    )


def _facts() -> ContextFacts:
    items = tuple(
        Item(
            item_id=f"file:{number}",
            source=f"src/module_{number}.py",
            source_version=f"{number:040x}",
            captured_at="2026-11-01T00:00:00Z",
            place=Place(number % len(Place) + 1),
            text="def something():\n    return 1\n" * 4,
            score=number % 10_000 if number % len(Place) + 1 == Place.SEMANTIC else None,
        )
        for number in range(CANDIDATES)
    )
    return ContextFacts(
        change_title="A change",
        change_goal="Something better.",
        criteria=(),
        invariants=(),
        task_key="T1",
        task_title="A task",
        objective="Do it.",
        kind="implement",
        size="small",
        risk="low",
        resources=(),
        calls_max=16,
        reads_max=12,
        items=items,
    )


def _vectors() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    random = np.random.default_rng(7)
    rows = random.normal(size=(VECTORS, DIMENSIONS)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
