"""Pure: what a planner answered, as a plan or as the reasons why it is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from routing.words import Area, Risk, Size, TaskKind

PLAN_TASKS_MAX = 30
TITLE_CHARACTERS_MAX = 200
OBJECTIVE_CHARACTERS_MAX = 8_000
RESOURCES_MAX = 50
RESOURCE_CHARACTERS_MAX = 500
PROBLEMS_MAX = 20

# The kinds a planner may give to a Task; the others are roles of the platform.
PLANNED_KINDS = frozenset(TaskKind) - {TaskKind.CLASSIFY, TaskKind.COMPACT}
TASK_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}")
PLAN_FIELDS = frozenset({"tasks"})
TASK_FIELDS = frozenset(
    {
        "id",
        "title",
        "objective",
        "kind",
        "size",
        "risk",
        "area",
        "destructive_migration",
        "resources",
        "depends_on",
    }
)

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    id: str
    title: str
    objective: str
    kind: TaskKind
    size: Size
    risk: Risk
    area: Area = Area.GENERAL
    destructive_migration: bool = False
    resources: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title,
            "objective": self.objective,
            "kind": self.kind.value,
            "size": self.size.value,
            "risk": self.risk.value,
            "area": self.area.value,
            "destructive_migration": self.destructive_migration,
            "resources": list(self.resources),
            "depends_on": list(self.depends_on),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Tasks in the planner's order; every edge leads to a Task of the plan, and no way leads in a circle."""

    tasks: tuple[PlannedTask, ...]

    def as_data(self) -> dict[str, Any]:
        return {"tasks": [task.as_data() for task in self.tasks]}


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """Every reason found, for the planner's one repair and for people. Nothing was started."""

    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        return "; ".join(self.problems)


def plan_of(data: object) -> Plan | PlanRefused:
    """The plan that parsed JSON holds. All problems are told at once, at most `PROBLEMS_MAX`."""
    if not isinstance(data, Mapping):
        return PlanRefused(('the answer is not a JSON object with the field "tasks"',))
    reader = _Reader()
    reader.unknown_fields("the plan", data, PLAN_FIELDS)
    entries = data.get("tasks")
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return PlanRefused(('"tasks" is not a list of tasks',))
    if not 1 <= len(entries) <= PLAN_TASKS_MAX:
        return PlanRefused((f"a plan has 1 to {PLAN_TASKS_MAX} tasks, this one has {len(entries)}",))
    tasks = [reader.task(f"tasks[{index}]", entry) for index, entry in enumerate(entries)]
    if reader.problems:
        return _refused(reader.problems)
    plan = Plan(tuple(task for task in tasks if task is not None))
    problems = _graph_problems(plan.tasks)
    return _refused(problems) if problems else plan


def cycle_in(edges: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The first circle as a path that ends where it starts (`A, B, A`), or nothing. Names without edges are fine."""
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        found = _walk(start, edges, path, done)
        if found:
            return found
    return ()


def _walk(start: str, edges: Mapping[str, Iterable[str]], path: list[str], done: set[str]) -> tuple[str, ...]:
    """Depth first without recursion: a plan a person edited must not end in a RecursionError."""
    stack = [(start, iter(edges.get(start, ())))]
    path.append(start)
    while stack:
        name, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            stack.pop()
            path.pop()
            done.add(name)
        elif following in path:
            return (*path[path.index(following) :], following)
        elif following not in done:
            stack.append((following, iter(edges.get(following, ()))))
            path.append(following)
    return ()


def _graph_problems(tasks: Sequence[PlannedTask]) -> list[str]:
    ids = [task.id for task in tasks]
    problems = [
        f'the id "{id_}" is used {ids.count(id_)} times' for id_ in dict.fromkeys(ids) if ids.count(id_) > 1
    ]
    for task in tasks:
        for wanted in task.depends_on:
            if wanted == task.id:
                problems.append(f"{task.id} depends on itself: {task.id} -> {task.id}")
            elif wanted not in ids:
                problems.append(f'{task.id} depends on "{wanted}", which is no task of this plan')
    if problems:
        return problems
    circle = cycle_in({task.id: task.depends_on for task in tasks})
    return [f"the dependencies lead in a circle: {' -> '.join(circle)}"] if circle else []


def _refused(problems: Sequence[str]) -> PlanRefused:
    shown = list(problems[:PROBLEMS_MAX])
    if len(problems) > PROBLEMS_MAX:
        shown.append(f"and {len(problems) - PROBLEMS_MAX} more")
    return PlanRefused(tuple(shown))


class _Reader:
    """Reads one entry after the other and keeps what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def task(self, where: str, entry: object) -> PlannedTask | None:
        if not isinstance(entry, Mapping):
            self.problems.append(f"{where} is not an object")
            return None
        self.unknown_fields(where, entry, TASK_FIELDS)
        before = len(self.problems)
        id_ = entry.get("id")
        if not isinstance(id_, str) or not TASK_ID.fullmatch(id_):
            self.problems.append(f"{where}.id is not 1 to 20 of letters, digits, - and _, a letter first")
            id_ = ""
        title = self._text(f"{where}.title", entry.get("title"), TITLE_CHARACTERS_MAX)
        objective = self._text(f"{where}.objective", entry.get("objective"), OBJECTIVE_CHARACTERS_MAX)
        kind = self._word(f"{where}.kind", entry.get("kind"), TaskKind, PLANNED_KINDS)
        size = self._word(f"{where}.size", entry.get("size"), Size)
        risk = self._word(f"{where}.risk", entry.get("risk"), Risk)
        area = self._word(f"{where}.area", entry.get("area", Area.GENERAL.value), Area)
        destructive = entry.get("destructive_migration", False)
        if not isinstance(destructive, bool):
            self.problems.append(f"{where}.destructive_migration is neither true nor false")
        resources = self._texts(f"{where}.resources", entry.get("resources", []), RESOURCES_MAX)
        depends_on = self._texts(f"{where}.depends_on", entry.get("depends_on", []), PLAN_TASKS_MAX)
        if len(self.problems) > before or kind is None or size is None or risk is None or area is None:
            return None
        return PlannedTask(
            id=id_,
            title=title,
            objective=objective,
            kind=kind,
            size=size,
            risk=risk,
            area=area,
            destructive_migration=destructive is True,
            resources=tuple(dict.fromkeys(resources)),
            depends_on=tuple(dict.fromkeys(depends_on)),
        )

    def unknown_fields(self, where: str, entry: Mapping[Any, Any], known: frozenset[str]) -> None:
        strange = sorted(str(name)[:40] for name in entry if name not in known)
        if strange:
            self.problems.append(
                f"{where} has unknown fields: {', '.join(strange)} (known: {', '.join(sorted(known))})"
            )

    def _text(self, where: str, value: object, characters_max: int) -> str:
        if not isinstance(value, str) or not value.strip():
            self.problems.append(f"{where} is empty")
            return ""
        if len(value) > characters_max:
            self.problems.append(f"{where} has {len(value):,} characters; at most {characters_max:,}")
        if "\x00" in value:
            self.problems.append(f"{where} holds a NUL character")
        return value.strip()

    def _word(
        self, where: str, value: object, words: type[Word], allowed: frozenset[Word] | None = None
    ) -> Word | None:
        known = [word for word in words if allowed is None or word in allowed]
        if isinstance(value, str) and value in known:
            return words(value)
        shown = f'"{value[:40]}"' if isinstance(value, str) else "missing" if value is None else "no text"
        self.problems.append(f"{where} is {shown}; allowed: {', '.join(known)}")
        return None

    def _texts(self, where: str, value: object, count_max: int) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            self.problems.append(f"{where} is not a list of texts")
            return []
        if len(value) > count_max:
            self.problems.append(f"{where} has {len(value)} entries; at most {count_max}")
        if any(len(one) > RESOURCE_CHARACTERS_MAX or "\x00" in one for one in value):
            self.problems.append(f"{where} has an entry that is no path or name")
        return [one.strip() for one in value[:count_max]]
