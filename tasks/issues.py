"""An issue of GitHub that got the label, as a Change that somebody asks for. Pure; all of it is strangers' text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from budgets.money import Usd
from tasks.display.hostile import one_line, revealed
from tasks.wanted import (
    CRITERIA_MAX,
    CRITERION_CHARACTERS_MAX,
    GOAL_CHARACTERS_MAX,
    TITLE_CHARACTERS_MAX,
    WantedChange,
    WantedCriterion,
)

# A line of a task list: "- [ ] it says hello". What is ticked already is no wish any more.
_OPEN_TASK = re.compile(r"^\s{0,8}[-*+] \[ \] +(\S.*)$")
ASKED = "What the issue asks for is done, and nothing beside it was changed."


@dataclass(frozen=True, slots=True)
class WantedByIssue:
    """`plan_waits`: nobody wrote down when it is done, so a person looks at the plan before work starts."""

    wanted: WantedChange
    plan_waits: bool


def labelled(payload: Mapping[str, Any]) -> str:
    """The label that an issue was given by this event; empty for every other event."""
    label = payload.get("label")
    if payload.get("action") != "labeled" or not isinstance(payload.get("issue"), Mapping):
        return ""
    name = label.get("name") if isinstance(label, Mapping) else None
    return name if isinstance(name, str) else ""


def wanted_by(issue: Mapping[str, Any], *, budget: Usd | None) -> WantedByIssue:
    """Its title, its text, and a criterion for each open line of its task lists."""
    body = issue.get("body")
    body = body if isinstance(body, str) else ""
    title = one_line(str(issue.get("title") or "") or f"Issue {issue.get('number')}", TITLE_CHARACTERS_MAX)
    criteria = tuple(WantedCriterion(line) for line in _open_tasks(body))
    goal = _plain(f"{title}\n\n{body}\n\n{_where(issue)}".strip())
    if len(goal) > GOAL_CHARACTERS_MAX:
        goal = goal[: GOAL_CHARACTERS_MAX - 1].rstrip() + "…"
    wanted = WantedChange(
        title=title,
        goal=goal,
        criteria=criteria or (WantedCriterion(ASKED),),
        budget=budget,
    )
    return WantedByIssue(wanted, plan_waits=not criteria)


def _open_tasks(body: str) -> list[str]:
    found = (_OPEN_TASK.match(line) for line in body.splitlines())
    lines = [one_line(match.group(1), CRITERION_CHARACTERS_MAX) for match in found if match]
    return lines[:CRITERIA_MAX]


def _where(issue: Mapping[str, Any]) -> str:
    address = issue.get("html_url")
    return f"From {one_line(address, 500)}" if isinstance(address, str) and address else ""


def _plain(text: str) -> str:
    """Invisible and reordering characters written out, so that what an agent reads is what a person sees."""
    shown = revealed(text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(c for c in shown if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"})
