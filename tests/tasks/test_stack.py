"""The order in which dependencies are merged (rows 213, 214, example 20a)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.stack import CircularDependency, Layer, stack_of

START = datetime(2026, 11, 30, tzinfo=UTC)


def task(number: int) -> UUID:
    return UUID(int=number)


def layer(number: int, *, minute: int) -> Layer:
    return Layer(task(number), UUID(int=1000 + number), f"{number:040x}", START + timedelta(minutes=minute))


def names(layers: tuple[Layer, ...]) -> list[int]:
    return [found.task_id.int for found in layers]


def needs(edges: dict[int, list[int]]) -> dict[UUID, frozenset[UUID]]:
    return {task(on): frozenset(map(task, others)) for on, others in edges.items()}


def test_the_older_of_two_equal_dependencies_comes_first() -> None:
    """Example 20a: T3 stands on T1 and T2, of which T1 is older."""
    layers = {task(1): layer(1, minute=1), task(2): layer(2, minute=5)}
    assert names(stack_of(task(3), needs=needs({3: [2, 1]}), layers=layers)) == [1, 2]


def test_creation_time_decides_before_the_task_id() -> None:
    layers = {task(1): layer(1, minute=5), task(2): layer(2, minute=1)}
    assert names(stack_of(task(3), needs=needs({3: [1, 2]}), layers=layers)) == [2, 1]


def test_the_task_id_breaks_a_tie_in_time() -> None:
    layers = {task(2): layer(2, minute=1), task(1): layer(1, minute=1)}
    assert names(stack_of(task(3), needs=needs({3: [2, 1]}), layers=layers)) == [1, 2]


def test_a_dependency_comes_before_what_stands_on_it_however_old_it_is() -> None:
    layers = {task(1): layer(1, minute=9), task(2): layer(2, minute=1)}
    assert names(stack_of(task(3), needs=needs({3: [2], 2: [1]}), layers=layers)) == [1, 2]


def test_a_dependency_without_work_is_skipped_but_what_it_stands_on_is_not() -> None:
    layers = {task(1): layer(1, minute=1)}
    assert names(stack_of(task(3), needs=needs({3: [2], 2: [1]}), layers=layers)) == [1]


def test_a_diamond_merges_its_root_once() -> None:
    layers = {task(n): layer(n, minute=n) for n in (1, 2, 3)}
    assert names(stack_of(task(4), needs=needs({4: [2, 3], 2: [1], 3: [1]}), layers=layers)) == [1, 2, 3]


def test_a_circle_is_a_fault() -> None:
    with pytest.raises(CircularDependency):
        stack_of(task(3), needs=needs({3: [1], 1: [2], 2: [1]}), layers={})


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20), st.permutations(range(9)))
def test_every_dependency_comes_first_and_the_order_is_always_the_same(
    pairs: list[tuple[int, int]], ages: list[int]
) -> None:
    edges: dict[int, list[int]] = {9: list(range(9))}
    for one, other in pairs:
        if one != other:
            edges.setdefault(max(one, other), []).append(min(one, other))
    layers = {task(n): layer(n, minute=ages[n]) for n in range(9)}
    ordered = names(stack_of(task(9), needs=needs(edges), layers=layers))
    shuffled = {on: list(reversed(others)) for on, others in reversed(list(edges.items()))}
    assert ordered == names(stack_of(task(9), needs=needs(shuffled), layers=layers))
    assert sorted(ordered) == list(range(9))
    for on, others in edges.items():
        if on != 9:
            assert all(ordered.index(other) < ordered.index(on) for other in others)
