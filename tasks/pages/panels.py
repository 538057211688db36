"""What stands on the Change page, gathered from its rows in a bounded number of queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from budgets.money import ZERO, Usd
from routing.words import Tier
from tasks import reads
from tasks.models import Candidate, Change, Check, Criterion, Task, TaskRun
from tasks.pages.stops import StopCard, stop_card
from tasks.pages.stories import QUIET
from tasks.pictures.graph import BOX_HEIGHT, BOX_WIDTH, Arrow, lay_out
from tasks.pictures.timeline import BurnDown, burn_down
from tasks.planning import estimate_plan, plan_on
from tasks.states import ENDED_CHANGES, ChangeState

EVENTS_SHOWN = 12
# One charge is a step, no course.
CHARGES_DRAWN_MIN = 2
TITLE_IN_BOX_CHARACTERS = 24
# The second line around a box that a limit stopped.
RING = 4


@dataclass(frozen=True, slots=True)
class CriterionRow:
    criterion: Criterion
    check: Check | None

    @property
    def state(self) -> str:
        return self.check.verdict if self.check else "pending"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A Task with its latest attempt and what all its attempts cost."""

    task: Task
    run: TaskRun | None
    attempts: int
    cost: Usd
    unknown_calls: int
    stop: StopCard | None

    @property
    def tier(self) -> str:
        return Tier(self.run.tier).word if self.run else ""

    @property
    def state(self) -> str:
        return str(self.task.state)


@dataclass(frozen=True, slots=True)
class GraphBox:
    row: TaskRow
    x: int
    y: int
    title: str


@dataclass(frozen=True, slots=True)
class TaskGraph:
    width: int
    height: int
    boxes: tuple[GraphBox, ...]
    arrows: tuple[tuple[Arrow[UUID], bool], ...]  # True: added later, by the integrate rule
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT
    ring_width: int = BOX_WIDTH + 2 * RING
    ring_height: int = BOX_HEIGHT + 2 * RING

    @property
    def has_late(self) -> bool:
        return any(late for _, late in self.arrows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePanels:
    criteria: tuple[CriterionRow, ...]
    tasks: tuple[TaskRow, ...]
    graph: TaskGraph
    money: reads.Money
    meters: list[reads.MeterFigures]
    binding: reads.MeterFigures | None
    stop: StopCard | None
    candidate: Candidate | None
    events: list[Any]
    estimate: tuple[Usd, Usd] | None
    burn: BurnDown | None
    live: bool

    def as_context(self) -> Mapping[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def change_panels(change: Change, *, now: datetime) -> ChangePanels:
    money = reads.money_of([change])[change.pk]
    checks = reads.latest_checks([change]).get(change.pk, {})
    rows = tuple(_task_row(task) for task in change.tasks.all())
    events = list(reads.events_of(change).exclude(kind__in=QUIET).reverse()[:EVENTS_SHOWN])
    candidate = change.candidates.select_related("promoted_by").order_by("-number").first()
    meters = reads.meters_of(change, now=now)
    return ChangePanels(
        criteria=tuple(CriterionRow(each, checks.get(each.position)) for each in change.criteria.all()),
        tasks=rows,
        graph=_graph(rows),
        money=money,
        meters=meters,
        binding=_binding(meters),
        stop=stop_card(change.stop_limit, change.stop_detail),
        candidate=candidate,
        events=events,
        estimate=_estimate(change),
        burn=_burn(change, money, now=now),
        live=change.state not in ENDED_CHANGES,
    )


def criteria_strip(change: Change, checks: Mapping[UUID, Mapping[int, Check]]) -> list[str]:
    """One word per criterion of a Change with `criteria_count`: passed, failed, error or pending."""
    known = checks.get(change.pk, {})
    count: int = change.criteria_count  # type: ignore[attr-defined]  # annotated by reads.changes_for
    return [known[n].verdict if n in known else "pending" for n in range(1, count + 1)]


def _estimate(change: Change) -> tuple[Usd, Usd] | None:
    plan = plan_on(change) if change.state == ChangeState.AWAITING_APPROVAL else None
    return estimate_plan(plan) if plan else None


def _burn(change: Change, money: reads.Money, *, now: datetime) -> BurnDown | None:
    """How the budget went down; while agents work, a third of the picture is what lies ahead."""
    if money.limit is None or money.limit <= ZERO or change.state == ChangeState.DRAFT:
        return None
    charges = reads.charges_of(change)
    if len(charges) < CHARGES_DRAWN_MIN:
        return None
    works = change.state in reads.GROUPS["working"]
    until = now if works else charges[-1][0]
    ahead = (until - change.created_at) / 2 if works else timedelta(0)
    return burn_down(charges, limit=money.limit, start=change.created_at, end=until + ahead, now=until)


def _task_row(task: Task) -> TaskRow:
    runs = sorted(task.runs.all(), key=lambda run: run.attempt)
    return TaskRow(
        task=task,
        run=runs[-1] if runs else None,
        attempts=len(runs),
        cost=sum((run.cost for run in runs), ZERO),
        unknown_calls=sum(run.unknown_calls for run in runs),
        stop=stop_card(task.stop_limit, task.stop_detail),
    )


def _graph(rows: tuple[TaskRow, ...]) -> TaskGraph:
    by_id = {row.task.pk: row for row in rows}
    edges = {row.task.pk: list(row.task.dependencies.all()) for row in rows}
    drawn = lay_out({key: [edge.on_id for edge in ons] for key, ons in edges.items()})
    late = {(edge.on_id, key) for key, ons in edges.items() for edge in ons if edge.added_by != "plan"}
    boxes = tuple(
        GraphBox(by_id[box.key], box.x, box.y, _short(by_id[box.key].task.title)) for box in drawn.boxes
    )
    arrows = tuple((arrow, (arrow.source, arrow.target) in late) for arrow in drawn.arrows)
    return TaskGraph(drawn.width, drawn.height, boxes, arrows)


def _short(title: str) -> str:
    cut = TITLE_IN_BOX_CHARACTERS
    return title if len(title) <= cut else title[: cut - 1].rstrip() + "…"


def _binding(meters: list[reads.MeterFigures]) -> reads.MeterFigures | None:
    """The budget in money with the least left: the one that will stop the work first."""
    limited = [meter for meter in meters if isinstance(meter.left, Usd)]
    return min(limited, key=lambda meter: meter.left, default=None)  # type: ignore[arg-type,return-value]  # all are Usd
