"""What a person asks for is checked field by field, and each refusal names the field."""

from __future__ import annotations

from typing import Any

import pytest

from budgets.money import Usd
from tasks.protected import is_protected, protected_among
from tasks.verdicts import ConflictOpinion, Unreadable, Verdict, read_conflict, read_verdict
from tasks.wanted import GOAL_CHARACTERS_MAX, WantedCriterion, read_wanted, why_no_command
from tenants.errors import InvalidInput

GOOD: dict[str, Any] = {
    "title": "Export CSV",
    "goal": "Totals as CSV.",
    "criteria": [{"text": "The tests pass", "command": "python3 -m unittest"}, "It is documented"],
    "budget": "1.50",
}


def test_a_change_is_read_with_its_criteria_and_budget() -> None:
    wanted = read_wanted(GOOD)
    assert wanted.criteria == (
        WantedCriterion("The tests pass", "python3 -m unittest"),
        WantedCriterion("It is documented"),
    )
    assert wanted.budget == Usd(1_500_000)


@pytest.mark.parametrize(("given", "budget"), [(None, None), ("", None), ("0", Usd(0)), (3, Usd(3_000_000))])
def test_no_budget_is_no_limit_and_zero_is_zero(given: object, budget: Usd | None) -> None:
    assert read_wanted(GOOD | {"budget": given}).budget == budget


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"title": ""}, "title"),
        ({"title": "two\nlines"}, "title"),
        ({"title": 5}, "title"),
        ({"goal": "  "}, "goal"),
        ({"goal": "x" * 1_000_000}, "goal"),
        ({"goal": "x" * (GOAL_CHARACTERS_MAX + 1)}, "goal"),
        ({"criteria": "the tests pass"}, "criteria"),
        ({"criteria": {"text": "x"}}, "criteria"),
        ({"criteria": []}, "criteria"),
        ({"criteria": ["x"] * 51}, "criteria"),
        ({"criteria": [7]}, "criteria[0]"),
        ({"criteria": ["ok", {"text": ""}]}, "criteria[1].text"),
        ({"criteria": [{"text": "x" * 2_001}]}, "criteria[0].text"),
        ({"criteria": [{"text": "x", "command": "a && b"}]}, "criteria[0].command"),
        ({"criteria": [{"text": "x", "cmd": "a"}]}, "criteria[0].cmd"),
        ({"invariants": "never"}, "invariants"),
        ({"invariants": [""]}, "invariants[0]"),
        ({"budget": "-1"}, "budget"),
        ({"budget": "a lot"}, "budget"),
        ({"budget": 1.5}, "budget"),
        ({"budget": "1e3"}, "budget"),
        ({"budget": ["1"]}, "budget"),
        ({"draft": "yes"}, "draft"),
        ({"owner": "me"}, "owner"),
    ],
)
def test_bad_input_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_wanted(GOOD | change)
    assert refused.value.field == field
    assert refused.value.remedy


@pytest.mark.parametrize("command", ["pytest -q", "python3 -m unittest tests.test_a", "bun test 'a b'"])
def test_a_plain_command_is_one(command: str) -> None:
    assert why_no_command(command) == ""


@pytest.mark.parametrize(
    "command", ["a; b", "a | b", "a > b", "$HOME/x", "`x`", "'open", "A=1 x", "-x", "a\nb"]
)
def test_what_only_a_shell_understands_is_no_command(command: str) -> None:
    assert why_no_command(command)


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_api.py",
        "pkg/api_test.go",
        "src/app.spec.ts",
        "a/__tests__/b.js",
        "conftest.py",
        ".github/workflows/ci.yml",
        "Makefile",
        "pyproject.toml",
        "web/vitest.config.ts",
        "tsconfig.build.json",
        "src/FooTest.java",
        "spec/models/user_spec.rb",
    ],
)
def test_what_proves_the_work_is_protected(path: str) -> None:
    """Fault C93."""
    assert is_protected(path)


@pytest.mark.parametrize(
    "path", ["src/app.py", "latest.py", "contest.py", "docs/testing.md", "attestation.go"]
)
def test_other_files_are_not(path: str) -> None:
    assert not is_protected(path)


def test_protected_files_keep_their_order() -> None:
    assert protected_among(["b.py", "tests/z.py", "Makefile"]) == ("tests/z.py", "Makefile")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"verdict": "pass", "reason": "shown"}', Verdict(True, "shown")),
        ('So: {"verdict": "fail", "reason": "no test"}', Verdict(False, "no test")),
    ],
)
def test_a_verdict_is_read(text: str, verdict: Verdict) -> None:
    assert read_verdict(text) == verdict


@pytest.mark.parametrize(
    "text",
    [
        "pass",
        '{"verdict": "yes", "reason": ""}',
        '{"verdict": true, "reason": ""}',
        '{"verdict": "pass"}',
        '{"verdict": "pass", "reason": "", "score": 1}',
        '{"verdict": "pass", "verdict": "fail", "reason": ""}',
        '{"verdict": "pass", "reason": "a"} or {"verdict": "fail", "reason": "b"}',
    ],
)
def test_a_guess_is_no_verdict(text: str) -> None:
    assert isinstance(read_verdict(text), Unreadable)
    assert isinstance(read_verdict('{"verdict": "pass", "reason": "x"}', cut_off=True), Unreadable)


def test_a_conflict_opinion_counts_resources_only_for_a_design_conflict() -> None:
    same = '{"design_conflict": false, "resources": ["a.py"], "advice": "Keep both."}'
    design = '{"design_conflict": true, "resources": ["routes", "names"], "advice": "Use the first."}'
    assert read_conflict(same) == ConflictOpinion((), "Keep both.")
    assert read_conflict(design) == ConflictOpinion(("routes", "names"), "Use the first.")
    assert isinstance(read_conflict('{"design_conflict": 1}'), Unreadable)
