"""Events in sentences, pictures in figures: pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from budgets.money import Usd
from routing.words import EndReason
from tasks.pages.money import suggested_limit
from tasks.pages.stories import END_WORDS, QUIET, SENTENCES, Story, story
from tasks.pictures.timeline import climb, seconds_axis

ROOT = Path(__file__).resolve().parents[3]
START = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("change.planned", {"tasks": 3}, Story("Planned in 3 tasks", "")),
        (
            "task.blocked",
            {"because": "dependency_stopped"},
            Story("Stopped", "what it builds on has stopped"),
        ),
        ("run.failed", {"because": "failed_by_agent"}, Story("The attempt failed", "the agent gave up")),
        ("task.done", {"because": "completed"}, Story("Done", "")),
        ("task.waits", {"for": "held_money:change"}, Story("Waits", "held money: change")),
        ("change.planned", {}, Story("Planned in ? tasks", "")),
        ("change.submitted", {"draft": False}, Story("Handed over", "")),
        ("change.submitted", {}, Story("Handed over", "")),
        ("change.submitted", {"draft": True}, Story("Kept as a draft", "")),
        ("something.new", {}, Story("Something new", "")),
    ],
)
def test_an_event_is_told_in_a_sentence(kind: str, data: dict[str, object], said: Story) -> None:
    assert story(kind, data) == said


def test_every_kind_that_the_code_records_has_its_sentence() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tasks").rglob("*.py"))
    kinds = set(re.findall(r'record\(\s*"([a-z._]+)"', code))
    assert len(kinds) > 10
    assert kinds - set(SENTENCES) == set()
    assert set(SENTENCES) >= QUIET


def test_every_end_of_an_attempt_has_its_words() -> None:
    assert set(END_WORDS) == {str(end) for end in EndReason}


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (7.9, ["0 s", "2 s", "4 s", "6 s"]),
        (0.2, ["0 s", "0.1 s", "0.2 s"]),
        (600, ["0 s", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (90_000, ["0 s", "6 h", "12 h", "18 h", "24 h"]),
    ],
)
def test_an_axis_has_a_few_round_marks(seconds: float, labels: list[str]) -> None:
    marks = seconds_axis(START, START + timedelta(seconds=seconds))
    assert [mark.label for mark in marks] == labels
    assert all(0 <= mark.x <= 1000 for mark in marks)


def test_an_axis_of_nothing_is_still_one() -> None:
    assert [mark.label for mark in seconds_axis(START, START)] == ["0 s"]


def test_money_climbs_in_steps_to_the_whole() -> None:
    half = START + timedelta(seconds=50)
    line = climb([(half, Usd(30)), (half, Usd(10))], start=START, end=START + timedelta(seconds=100))
    assert line == "0,1000 500,1000 500,250 500,250 500,0 1000,0"
    assert climb([], start=START, end=half) == ""


@pytest.mark.parametrize(
    ("limit", "least", "said"),
    [
        (Usd.dollars("5"), Usd.dollars("5.16"), "10.00"),
        (Usd.dollars("0.10"), Usd.dollars("3"), "3.00"),
        (Usd(1), None, "0.01"),
        (1000, 1001, "2000"),
        (None, None, ""),
    ],
)
def test_a_raise_suggests_twice_the_limit_or_what_the_call_needs(
    limit: Usd | int | None, least: Usd | int | None, said: str
) -> None:
    assert suggested_limit(limit, least) == said
