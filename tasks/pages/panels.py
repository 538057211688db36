"""What stands on the Change page, gathered from its rows in a bounded number of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from budgets.money import ZERO, Usd
from routing.words import Tier
from tasks import reads
from tasks.display.hostile import revealed
from tasks.models import Candidate, Change, Check, Criterion, DecisionReceipt, Task, TaskRun
from tasks.pages.receipts import ReceiptRow, receipt_row
from tasks.pages.stops import StopCard, stop_card
from tasks.pages.stories import QUIET
from tasks.pictures.graph import (
    BOX_HEIGHT,
    BOX_WIDTH,
    MARGIN,
    NARROW_WIDTH,
    Arrow,
    Graph,
    lay_out,
    lay_out_narrow,
)
from tasks.pictures.timeline import BurnDown, burn_down, limit_steps
from tasks.planning import estimate_plan, plan_on
from tasks.states import ENDED_CHANGES, ChangeState
from tenants.models import Membership, Role

EVENTS_SHOWN = 12
DECISIONS_SHOWN = 6
ROUTE = "route"
# One charge is a step, no course.
CHARGES_DRAWN_MIN = 2
# Of a title in a box, at the size that the stylesheet gives it.
CHARACTER_PIXELS = 8
# The second line around a box that a limit stopped.
RING = 4
LIFTERS_SHOWN = 5


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
    why: tuple[str, ...]  # of the latest attempt's tier, in sentences

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
    width: int
    title: str

    @property
    def ring_width(self) -> int:
        return self.width + 2 * RING


@dataclass(frozen=True, slots=True)
class TaskGraph:
    width: int
    height: int
    boxes: tuple[GraphBox, ...]
    arrows: tuple[tuple[Arrow[UUID], bool], ...]  # True: added later, by the integrate rule
    box_height: int = BOX_HEIGHT
    ring_height: int = BOX_HEIGHT + 2 * RING

    @property
    def has_ring(self) -> bool:
        return any(box.row.task.stop_limit for box in self.boxes)

    @property
    def has_late(self) -> bool:
        return any(late for _, late in self.arrows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePanels:
    criteria: tuple[CriterionRow, ...]
    tasks: tuple[TaskRow, ...]
    graph: TaskGraph
    narrow_graph: TaskGraph
    money: reads.Money
    meters: list[reads.MeterFigures]
    binding: reads.MeterFigures | None
    stop: StopCard | None
    candidate: Candidate | None
    events: list[Any]
    decisions: tuple[ReceiptRow, ...]
    estimate: tuple[Usd, Usd] | None
    burn: BurnDown | None
    live: bool
    working: bool  # agents are at work: what goes on at this pace can be said
    lifters: list[str]

    @property
    def passed(self) -> int:
        return sum(row.state == "passed" for row in self.criteria)

    @property
    def other_limits(self) -> list[reads.MeterFigures]:
        """The limits beside the one that stops first, and what each has left."""
        return [each for each in self.meters if each is not self.binding and each.left is not None]

    def as_context(self) -> Mapping[str, Any]:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        return shown | {"passed": self.passed, "other_limits": self.other_limits}


def change_panels(change: Change, *, now: datetime) -> ChangePanels:
    money = reads.money_of([change])[change.pk]
    checks = reads.latest_checks([change]).get(change.pk, {})
    receipts = list(reads.receipts_of(change))
    whys = _whys(receipts)
    rows = tuple(_task_row(task, whys) for task in change.tasks.all())
    events = list(reads.events_of(change).exclude(kind__in=QUIET).reverse()[:EVENTS_SHOWN])
    candidate = change.candidates.select_related("promoted_by").order_by("-number").first()
    meters = reads.meters_of(change, now=now)
    return ChangePanels(
        criteria=tuple(CriterionRow(each, checks.get(each.position)) for each in change.criteria.all()),
        tasks=rows,
        graph=_graph(rows, narrow=False),
        narrow_graph=_graph(rows, narrow=True),
        money=money,
        meters=meters,
        binding=_binding(meters),
        stop=stop_card(change.stop_limit, change.stop_detail),
        candidate=candidate,
        events=events,
        decisions=tuple(receipt_row(each) for each in reversed(receipts[-DECISIONS_SHOWN:])),
        estimate=_estimate(change),
        burn=_burn(change, money, now=now),
        live=change.state not in ENDED_CHANGES,
        working=change.state in reads.GROUPS["working"],
        lifters=lifters_of(change) if change.stop_limit else [],
    )


def lifters_of(change: Change) -> list[str]:
    """Whom to ask: people of the organization who may raise its limits."""
    admins = Membership.objects.of_organization(change.organization_id).filter(
        role__gte=Role.ADMIN, user__is_active=True
    )
    return list(admins.order_by("role", "user__email").values_list("user__email", flat=True)[:LIFTERS_SHOWN])


def criteria_strip(change: Change, verdicts: Mapping[UUID, Mapping[int, str]]) -> list[str]:
    """One word per criterion of a Change with `criteria_count`: passed, failed, error or pending."""
    known = verdicts.get(change.pk, {})
    count: int = change.criteria_count  # type: ignore[attr-defined]  # annotated by reads.changes_for
    return [known.get(n, "pending") for n in range(1, count + 1)]


def _estimate(change: Change) -> tuple[Usd, Usd] | None:
    plan = plan_on(change) if change.state == ChangeState.AWAITING_APPROVAL else None
    return estimate_plan(change, plan) if plan else None


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
    told = reads.budgets_told(reads.limit_changes_of(change))
    limits = limit_steps(told, start=change.created_at, now=until, limit=money.limit)
    return burn_down(charges, limits=limits, start=change.created_at, end=until + ahead, now=until)


def _whys(receipts: Sequence[DecisionReceipt]) -> dict[UUID, tuple[str, ...]]:
    """Why each attempt got its tier, by run."""
    routes = (each for each in receipts if each.kind == ROUTE)
    return {each.run_id: receipt_row(each).sentences for each in routes if each.run_id}


def _task_row(task: Task, whys: Mapping[UUID, tuple[str, ...]]) -> TaskRow:
    runs = sorted(task.runs.all(), key=lambda run: run.attempt)
    return TaskRow(
        task=task,
        run=runs[-1] if runs else None,
        attempts=len(runs),
        cost=sum((run.cost for run in runs), ZERO),
        unknown_calls=sum(run.unknown_calls for run in runs),
        stop=stop_card(task.stop_limit, task.stop_detail),
        why=whys.get(runs[-1].pk, ()) if runs else (),
    )


def _graph(rows: tuple[TaskRow, ...], *, narrow: bool) -> TaskGraph:
    by_id = {row.task.pk: row for row in rows}
    edges = {row.task.pk: list(row.task.dependencies.all()) for row in rows}
    depends_on = {key: [edge.on_id for edge in ons] for key, ons in edges.items()}
    drawn: Graph[UUID] = lay_out_narrow(depends_on) if narrow else lay_out(depends_on)
    late = {(edge.on_id, key) for key, ons in edges.items() for edge in ons if edge.added_by != "plan"}
    boxes = tuple(_box(by_id[box.key], box.x, box.y, narrow=narrow) for box in drawn.boxes)
    arrows = tuple((arrow, (arrow.source, arrow.target) in late) for arrow in drawn.arrows)
    return TaskGraph(drawn.width, drawn.height, boxes, arrows)


def _box(row: TaskRow, x: int, y: int, *, narrow: bool) -> GraphBox:
    width = NARROW_WIDTH - MARGIN - x if narrow else BOX_WIDTH
    return GraphBox(row, x, y, width, _short(revealed(row.task.title), width // CHARACTER_PIXELS))


def _short(title: str, cut: int) -> str:
    return title if len(title) <= cut else title[: cut - 1].rstrip() + "…"


def _binding(meters: list[reads.MeterFigures]) -> reads.MeterFigures | None:
    """The budget in money with the least left: the one that will stop the work first."""
    limited = [meter for meter in meters if isinstance(meter.left, Usd)]
    return min(limited, key=lambda meter: meter.left, default=None)  # type: ignore[arg-type,return-value]  # all are Usd
