"""Browser: the inbox "Needs you": everything that waits for a person, money first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from budgets.decisions import Unit
from budgets.keys import MeterKind
from budgets.meters import meter_key, read_meters
from budgets.models import ThresholdCrossing
from budgets.money import Usd
from budgets.thresholds import open_crossings
from routing.words import Tier
from tasks import reads
from tasks.models import Candidate, Change, Task, TaskRun
from tasks.pages.live import mark_of, show
from tasks.pages.stops import RefusedMeter, StopCard, stop_card
from tasks.planning import estimate_plan, plan_on
from tasks.preflights import failing_for
from tasks.states import ENDED_CHANGES, CandidateState, ChangeState, RunState, TaskState
from tasks.stops import RAISED_BY
from tenants.access import roles_of
from tenants.models import Organization, Role, User
from webhooks.endpoints import switched_off_by_remit
from webhooks.models import Endpoint

ROWS_OF_A_KIND_MAX = 8  # the rest is a link away
# Of what runs: beyond it the page says "or more", and reads no thousands of rows for a figure.
COUNTED_MAX = 100
CHANGES_WATCHED_MAX = 200  # the newest that are alive, for budgets that run out
LINKS = {
    "approve": "state=budget_blocked&stop=approve",
    "reconcile": "state=budget_blocked&stop=reconcile",
    "budget": "state=budget_blocked&stop=budget",
    "replan": "state=budget_blocked&stop=replan",
    "stopped": "state=budget_blocked&stop=stopped",
    "plan": f"state={ChangeState.AWAITING_APPROVAL}",
    "promote": f"state={ChangeState.READY}",
    "failed": f"state={ChangeState.FAILED}",
}
PILLS = {"promote": "passed", "failed": "failed"}
assert LINKS.keys() == set(reads.WAITS)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Head(Generic[Item]):
    """The first of some rows, and how many there are."""

    rows: Sequence[Item]
    count: int
    least: bool = False  # there may be more than `count`

    @property
    def more(self) -> int:
        return self.count - len(self.rows)


@dataclass(frozen=True, slots=True)
class Act:
    """The one thing to do about a row."""

    label: str
    path: str
    primary: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """One row: what waits, why, and the act that moves it."""

    kind: str  # one of `reads.WAITS`
    change: Change
    act: Act
    stop: StopCard | None = None
    task: Task | None = None
    figures: str = ""  # what a plan will take, what a candidate has shown

    @property
    def pill(self) -> str:
        return PILLS.get(self.kind, "blocked")

    @property
    def refused(self) -> RefusedMeter | None:
        return self.stop.refused[0] if self.stop and self.stop.refused else None


@dataclass(frozen=True, slots=True)
class Section:
    """What waits for the same thing, with the filtered list that shows all of it."""

    kind: str
    head: Head[Waiting]
    link: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A meter that has passed a soft threshold; `change` when it is a Change's own."""

    crossing: ThresholdCrossing
    change: Change | None

    @property
    def spent(self) -> Usd | int:
        return self._amount(self.crossing.spent)

    @property
    def limit(self) -> Usd | int:
        return self._amount(self.crossing.limit)

    def _amount(self, value: int) -> Usd | int:
        return Usd(value) if self.crossing.unit == Unit.USD else value


@require_GET
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    roles = roles_of(cast(User, request.user))
    only = reads.sole(roles)
    changes = reads.within(Change.objects.visible_to(request.user), only)
    sections = _sections(request.user, changes, roles)
    waiting = [row for section in sections for row in section.head.rows]
    running = _head(
        reads.within(TaskRun.objects.visible_to(request.user), only)
        .filter(state=RunState.RUNNING)
        .select_related("task__change")
        .only("tier", "calls", "caps", "cost", "task__key", "task__title", "task__change__number")
        .order_by("started_at")
    )
    planning = _head(
        changes.filter(state__in=(ChangeState.PLANNING, ChangeState.COMPOSING))
        .only("number", "title", "state")
        .order_by("-id")
    )
    stops = {row.change.pk for row in waiting if row.kind == "budget"}  # said below, with what lifts it
    warnings = _warnings(request.user, changes, roles, but=stops)
    failing = _head(failing_for(request.user))
    silent = _silent_endpoints(roles)
    months = _months(request)
    context = {
        "sections": sections,
        "alone": not roles,
        "count": sum(section.head.count for section in sections),
        "warnings": warnings,
        "silent": silent,
        "running": running,
        "words": {tier.value: tier.word for tier in Tier},
        "planning": planning,
        "months": months,
        "preflights": failing,
    }
    heads: list[Head[Any]] = [running, planning, failing, silent, warnings, *(each.head for each in sections)]
    facts: list[Any] = [head.count for head in heads]
    facts += [(row.change.pk, row.kind, row.change.updated_at) for row in waiting]
    facts += [(each.crossing.pk, each.crossing.percent) for each in warnings.rows]
    facts += [each.pk for each in (*failing.rows, *silent.rows, *planning.rows)]
    facts += [(run.pk, run.calls, run.cost) for run in running.rows]
    facts += [(name, month.spent, month.held) for name, month in months]
    return show(request, "tasks/inbox.html", context, mark=mark_of(*facts))


def _head(rows: QuerySet[Any]) -> Head[Any]:
    """Counts only what may be more than is shown, and not far beyond that."""
    found = list(rows[:ROWS_OF_A_KIND_MAX])
    if len(found) < ROWS_OF_A_KIND_MAX:
        return Head(found, len(found))
    count = rows.order_by()[: COUNTED_MAX + 1].count()
    return Head(found, min(count, COUNTED_MAX), least=count > COUNTED_MAX)


def _sections(user: reads.Person, visible: QuerySet[Change], roles: Mapping[UUID, int]) -> list[Section]:
    found = reads.waiting_changes(visible, each=ROWS_OF_A_KIND_MAX)
    blocked = [change.pk for waits in found if waits.kind in reads.STOPS for change in waits.changes]
    stopped = _stopped_tasks(user, blocked)
    figures = _plans(visible, _of_kind(found, "plan")) | _shown(user, _of_kind(found, "promote"))
    changes = reverse("changes")
    return [
        Section(
            waits.kind,
            Head(
                [
                    _waiting(waits.kind, change, stopped.get(change.pk), roles, figures.get(change.pk, ""))
                    for change in waits.changes
                ],
                waits.count,
            ),
            f"{changes}?{LINKS[waits.kind]}",
        )
        for waits in found
    ]


def _of_kind(found: Sequence[reads.Waits], kind: str) -> list[UUID]:
    return [change.pk for waits in found if waits.kind == kind for change in waits.changes]


def _plans(visible: QuerySet[Change], change_ids: Sequence[UUID]) -> dict[UUID, str]:
    """How many Tasks each plan has, and what it will probably cost."""
    if not change_ids:
        return {}
    rows = visible.filter(pk__in=change_ids).select_related("project").only("plan", "project", "organization")
    plans = {change.pk: (change, plan) for change in rows if (plan := plan_on(change)) is not None}
    found = {}
    for pk, (change, plan) in plans.items():
        count, estimate = len(plan.tasks), estimate_plan(change, plan)
        cost = f", probably {estimate[0]} to {estimate[1]}" if estimate else ""
        found[pk] = f"{count} task{'' if count == 1 else 's'}{cost}."
    return found


def _shown(user: reads.Person, change_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Which candidate passed, and how many criteria."""
    if not change_ids:
        return {}
    rows = Candidate.objects.visible_to(user).filter(change__in=change_ids, state=CandidateState.PASSED)
    counted = rows.annotate(passed=Count("checks", filter=Q(checks__verdict="passed")), all=Count("checks"))
    values = counted.order_by("number").values_list("change_id", "number", "passed", "all")
    return {
        change_id: f"{passed} of {whole} criteria pass on candidate {number}."
        for change_id, number, passed, whole in values
    }


def _waiting(
    kind: str, change: Change, task: Task | None, roles: Mapping[UUID, int], figures: str
) -> Waiting:
    stop = stop_card(change.stop_limit, change.stop_detail) if kind in reads.STOPS else None
    act = _act(kind, change, stop, task, roles.get(change.organization_id, 0))
    return Waiting(kind, change, act, stop, task, figures)


def _act(kind: str, change: Change, stop: StopCard | None, task: Task | None, role: int) -> Act:
    page = reverse("change", args=[change.pk])
    if kind == "budget":
        meter = _raise_first(stop)
        if meter and role >= Role.ADMIN:
            return Act("Raise…", f"{reverse('change-raise', args=[change.pk])}?meter={meter}", primary=True)
        return Act("See who can raise it" if meter else "See what it needs", page)
    if stop is not None and stop.approval:
        may = role >= Role.ADMIN
        label = "Look at it" if not may else "Decide…" if kind == "approve" else "Reconcile…"
        return Act(label, reverse("approval", args=[stop.approval]), may)
    if task and kind in reads.STOPS and role >= Role.MEMBER:
        return Act("Reopen…", reverse("task-reopen", args=[task.pk]), primary=True)
    if kind == "plan":
        may = role >= Role.ADMIN
        return Act(
            "Review the plan" if may else "Read the plan", reverse("change-plan", args=[change.pk]), may
        )
    if kind == "promote":
        return Act("See and promote" if role >= Role.ADMIN else "See it", page, primary=True)
    return Act("Look at it", page)


def _raise_first(stop: StopCard | None) -> str:
    """The meter whose raise lifts the stop; empty where a raise by an admin does not."""
    if stop is None:
        return ""
    ways = [way for way in stop.ways_out if way.act == "raise" and way.role == "admin"]
    known = [str(kind) for kind in RAISED_BY.get(stop.limit, ())]
    return ways[0].meter if ways else "".join(known[:1]) if not stop.ways_out else ""


def _stopped_tasks(user: reads.Person, change_ids: Sequence[UUID]) -> dict[UUID, Task]:
    """The first stopped Task of each Change: the one that a person is sent to."""
    rows = (
        Task.objects.visible_to(user)
        .filter(change__in=change_ids, state=TaskState.BLOCKED)
        .exclude(stop_limit="")
    )
    return {task.change_id: task for task in rows.only("change_id", "key").order_by("-position")}


def _warnings(
    user: reads.Person, changes: QuerySet[Change], roles: Mapping[UUID, int], *, but: Set[UUID]
) -> Head[Warned]:
    """The highest soft threshold that each meter of an open period has passed, the newest first.

    An admin sees all; everybody else what their own Changes, their projects and their month have passed.
    """
    live = changes.exclude(state__in=ENDED_CHANGES).order_by("-id")
    watched = {str(key) for key in live.values_list("pk", flat=True)[:CHANGES_WATCHED_MAX]}
    watched -= {str(key) for key in but}
    crossings = reads.within(ThresholdCrossing.objects.visible_to(user), reads.sole(roles))
    found = [
        each
        for each in open_crossings(crossings, changes=watched, now=timezone.now())
        if each.meter.kind != MeterKind.USER
        or (each.organization_id and roles.get(each.organization_id, 0) >= Role.ADMIN)
        or each.meter.subject == str(user.pk)
    ]
    shown = found[:ROWS_OF_A_KIND_MAX]
    subjects = [UUID(each.meter.subject) for each in shown if each.meter.kind == MeterKind.CHANGE]
    named = {str(key): change for key, change in changes.only("number", "title").in_bulk(subjects).items()}
    return Head([Warned(each, named.get(each.meter.subject)) for each in shown], len(found))


def _silent_endpoints(roles: Mapping[UUID, int]) -> Head[Endpoint]:
    """Webhooks that Remit switched off, for those who can mend them."""
    admin_of = [pk for pk, role in roles.items() if role >= Role.ADMIN]
    return _head(switched_off_by_remit(admin_of)) if admin_of else Head((), 0)


def _months(request: HttpRequest) -> list[tuple[Organization, reads.MeterFigures]]:
    """The month of each organization that this person is in."""
    now = timezone.now()
    organizations = list(Organization.objects.visible_to(request.user).order_by("name"))
    keys = [meter_key(MeterKind.ORGANIZATION, each.pk, str(each.pk), now=now) for each in organizations]
    return [
        (organization, reads.figures_of(reading))
        for organization, reading in zip(organizations, read_meters(keys), strict=True)
    ]
