"""Plans: what a planner answers is a plan, or is refused with every reason, and then nothing starts."""

from __future__ import annotations

import json
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.money import ZERO, Usd
from budgets.prices import estimate_of
from routing.words import Size, TaskKind
from tasks.estimates import range_of
from tasks.plan import PLAN_TASKS_MAX, Plan, PlanRefused, cycle_in, plan_of
from tasks.verdicts import read_plan


def entry(id_: str = "T1", **more: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "title": f"Do {id_}",
        "objective": "Do it well.",
        "kind": "implement",
        "size": "small",
        "risk": "low",
    } | more


def text_of(*entries: dict[str, Any]) -> str:
    return json.dumps({"tasks": list(entries)})


def refused(text: str, *, cut_off: bool = False) -> str:
    plan = read_plan(text, cut_off=cut_off)
    assert isinstance(plan, PlanRefused), plan
    return plan.text


def test_a_plan_keeps_its_order_edges_and_words() -> None:
    plan = read_plan(text_of(entry("T1"), entry("T2", depends_on=["T1"], kind="test", size="medium")))
    assert isinstance(plan, Plan)
    assert [task.id for task in plan.tasks] == ["T1", "T2"]
    assert plan.tasks[1].depends_on == ("T1",)
    assert plan.tasks[1].kind is TaskKind.TEST
    assert plan.tasks[1].size is Size.MEDIUM
    assert plan_of(plan.as_data()) == plan


def test_prose_and_fences_around_the_json_are_fine() -> None:
    """Fault C88."""
    assert isinstance(read_plan(f"Here is the plan:\n```json\n{text_of(entry())}\n```\nGood luck!"), Plan)


def test_words_in_prose_are_no_edges() -> None:
    """Fault C85."""
    plan = read_plan(text_of(entry("T1", objective="Parallel-safe with T2; after T2 is fine."), entry("T2")))
    assert isinstance(plan, Plan)
    assert [task.depends_on for task in plan.tasks] == [(), ()]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_object"),
        ("- first do this\n- then that", "no_object"),
        ('{"tasks": [', "not_json"),
        ('{"tasks": [], "tasks": []}', "duplicate_key"),
        ('{"tasks": NaN}', "not_finite"),
        ('{"tasks": {}}', '"tasks" is not a list'),
        ('{"tasks": "T1"}', '"tasks" is not a list'),
        ('{"tasks": []}', "this one has 0"),
        (text_of(*(entry(f"T{n}") for n in range(PLAN_TASKS_MAX + 1))), "1 to 30 tasks"),
        ('{"tasks": ["T1"]}', "tasks[0] is not an object"),
        (text_of(entry(title="  ")), "tasks[0].title is empty"),
        (text_of(entry(title=7)), "tasks[0].title is empty"),
        (text_of(entry(title="x" * 201)), "at most 200"),
        (text_of(entry(objective="")), "tasks[0].objective is empty"),
        (text_of(entry(kind="deploy")), 'kind is "deploy"; allowed: plan, architecture'),
        (text_of(entry(kind="compact")), 'kind is "compact"; allowed'),
        (text_of(entry(size=3)), "size is no text; allowed: small, medium, large"),
        (text_of(entry(risk=None)), "risk is missing; allowed: low, medium, high"),
        (text_of(entry(area="ui")), 'area is "ui"; allowed: general, billing, authorization'),
        (text_of(entry(destructive_migration="no")), "neither true nor false"),
        (text_of(entry(depends_on="T2")), "depends_on is not a list"),
        (text_of(entry(resources=[1])), "resources is not a list"),
        (text_of(entry(priority=1)), "unknown fields: priority"),
        (text_of(entry("")), "tasks[0].id"),
        (text_of(entry("1")), "tasks[0].id"),
        (text_of(entry("T1"), entry("T1")), 'the id "T1" is used 2 times'),
        (text_of(entry("T1", depends_on=["T9"])), 'T1 depends on "T9", which is no task'),
        (text_of(entry("T1", depends_on=["T1"])), "T1 depends on itself: T1 -> T1"),
        (text_of(entry("A", depends_on=["B"]), entry("B", depends_on=["A"])), "in a circle: A -> B -> A"),
        (
            text_of(
                entry("A"),
                entry("B", depends_on=["D"]),
                entry("C", depends_on=["B"]),
                entry("D", depends_on=["A", "C"]),
            ),
            "in a circle: B -> D -> C -> B",
        ),
    ],
)
def test_a_bad_plan_is_refused_with_its_reason(text: str, reason: str) -> None:
    """Faults C84, C85, C88."""
    assert reason in refused(text)


def test_an_answer_that_was_cut_off_is_no_plan_even_when_it_parses() -> None:
    """Fault C87: no fallback, no junk Tasks from what is there."""
    assert "cut_off" in refused(text_of(entry()), cut_off=True)


def test_all_problems_are_told_at_once() -> None:
    said = refused(text_of(entry(title="", kind="x"), entry("T2", size="huge")))
    assert all(part in said for part in ("title is empty", 'kind is "x"', 'size is "huge"'))


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4)))
def test_a_circle_is_shown_as_a_way_that_exists_and_ends_where_it_starts(edges: dict[str, list[str]]) -> None:
    path = cycle_in(edges)
    if path:
        assert path[0] == path[-1]
        assert all(b in edges[a] for a, b in pairwise(path))
    else:
        left = {name: set(on) for name, on in edges.items()}
        while free := [name for name, on in left.items() if not on & left.keys()]:
            for name in free:
                del left[name]
        assert not left


def test_a_long_chain_is_read_without_recursion() -> None:
    assert cycle_in({str(n): [str(n + 1)] for n in range(5_000)}) == ()


def test_the_estimate_is_a_range_that_grows_with_the_work() -> None:
    small = read_plan(text_of(entry()))
    large = read_plan(text_of(entry(size="large", risk="medium"), entry("T2", size="medium")))
    assert isinstance(small, Plan)
    assert isinstance(large, Plan)
    less, more = range_of(small, allow_opus=False), range_of(large, allow_opus=False)
    assert less is not None
    assert more is not None
    assert ZERO < less[0] < less[1]
    assert all(above > below for above, below in zip(more, less, strict=True))


def test_a_model_without_a_price_leaves_no_estimate_and_never_a_lower_one() -> None:
    """Rows 136 and 138."""
    plan = read_plan(text_of(entry(), entry("T2", size="large", risk="medium")))
    assert isinstance(plan, Plan)

    def only_haiku(characters: int, tokens: int, model: str, at: date | None) -> Usd | None:
        return estimate_of(characters, tokens, model, at) if model == "claude-haiku-5-5" else None

    assert range_of(plan, allow_opus=False, estimate=only_haiku) is None
