"""Browser: the inbox "Needs you": everything that waits for a person, money first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from budgets.decisions import Unit
from budgets.keys import MeterKind
from budgets.meters import meter_key, read_meters
from budgets.models import ThresholdCrossing
from budgets.money import Usd
from budgets.thresholds import open_crossings
from routing.words import MAX_ATTEMPTS_PER_TIER, Tier
from tasks import reads
from tasks.models import Change, Task, TaskRun
from tasks.pages.live import mark_of, show
from tasks.pages.stops import RefusedMeter, StopCard, stop_card
from tasks.preflights import failing_for
from tasks.states import ENDED_CHANGES, ChangeState, RunState, TaskState
from tasks.stops import RAISED_BY, STOPPED_BY_PERSON
from tenants.access import roles_of
from tenants.models import Organization, Role, User
from webhooks.endpoints import switched_off_by_remit
from webhooks.models import Endpoint

ROWS_MAX = 100
CHANGES_WATCHED_MAX = 500
WAITING = (ChangeState.BUDGET_BLOCKED, ChangeState.AWAITING_APPROVAL, ChangeState.READY, ChangeState.FAILED)


@dataclass(frozen=True, slots=True)
class Waiting:
    """One row: what waits, why, and the kind of act that moves it."""

    kind: str  # budget, replan, stopped, plan, promote, failed
    change: Change
    stop: StopCard | None = None
    task: Task | None = None

    @property
    def raise_first(self) -> str:
        """The meter whose raise lifts the stop; empty where a raise by an admin does not."""
        if self.stop is None:
            return ""
        ways = [way for way in self.stop.ways_out if way.act == "raise" and way.role == "admin"]
        known = [str(kind) for kind in RAISED_BY.get(self.stop.limit, ())]
        return ways[0].meter if ways else "".join(known[:1]) if not self.stop.ways_out else ""

    @property
    def reopens(self) -> bool:
        """Whether one word of a member lets the stopped Task go on."""
        return self.kind in KIND_OF_STOP.values()

    @property
    def refused(self) -> RefusedMeter | None:
        return self.stop.refused[0] if self.stop and self.stop.refused else None


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


ORDER = ("budget", "replan", "stopped", "plan", "promote", "failed")
KIND_OF_STOP = {MAX_ATTEMPTS_PER_TIER: "replan", STOPPED_BY_PERSON: "stopped"}


@require_GET
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    changes = list(
        reads.plain_changes(request.user).filter(state__in=WAITING).order_by("updated_at")[:ROWS_MAX]
    )
    stopped = _stopped_tasks(request.user, changes)
    waiting = sorted(
        (_waiting(change, stopped.get(change.pk)) for change in changes),
        key=lambda row: ORDER.index(row.kind),
    )
    running = list(
        TaskRun.objects.visible_to(request.user)
        .filter(state=RunState.RUNNING)
        .select_related("task__change")
        .order_by("started_at")[:ROWS_MAX]
    )
    months = _months(request)
    planning = list(
        reads.plain_changes(request.user).filter(state__in=(ChangeState.PLANNING, ChangeState.COMPOSING))[
            :ROWS_MAX
        ]
    )
    stops = {row.change.pk for row in waiting if row.kind == "budget"}  # said below, with what lifts it
    warnings = [each for each in _warnings(request) if each.change is None or each.change.pk not in stops]
    failing = list(failing_for(request.user)[:ROWS_MAX])
    silent = _silent_endpoints(request)
    context = {
        "waiting": waiting,
        "warnings": warnings,
        "silent": silent,
        "running": [(run, Tier(run.tier).word) for run in running],
        "planning": planning,
        "months": months,
        "preflights": failing,
        "roles": roles_of(cast(User, request.user)),
    }
    facts: list[Any] = [(row.change.pk, row.kind, row.change.updated_at) for row in waiting]
    facts += [(each.crossing.pk, each.crossing.percent) for each in warnings]
    facts += [row.pk for row in failing]
    facts += [each.pk for each in silent]
    facts += [(run.pk, run.calls, run.cost) for run in running]
    facts += [(name, month.spent, month.held) for name, month in months]
    return show(request, "tasks/inbox.html", context, mark=mark_of(*facts, len(planning)))


def _waiting(change: Change, task: Task | None) -> Waiting:
    match change.state:
        case ChangeState.AWAITING_APPROVAL:
            return Waiting("plan", change)
        case ChangeState.READY:
            return Waiting("promote", change)
        case ChangeState.FAILED:
            return Waiting("failed", change)
        case _:
            kind = KIND_OF_STOP.get(change.stop_limit, "budget")
            return Waiting(kind, change, stop_card(change.stop_limit, change.stop_detail), task)


def _stopped_tasks(user: reads.Person, changes: list[Change]) -> dict[Any, Task]:
    """The first stopped Task of each Change: the one that a person is sent to."""
    rows = Task.objects.visible_to(user).filter(change__in=changes, state=TaskState.BLOCKED)
    rows = rows.exclude(stop_limit="")
    return {task.change_id: task for task in rows.order_by("-position")}


def _warnings(request: HttpRequest) -> list[Warned]:
    """The highest soft threshold that each meter of an open period has passed, the newest first.

    An admin sees all; everybody else what their own Changes, their projects and their month have passed.
    """
    live = reads.plain_changes(request.user).exclude(state__in=ENDED_CHANGES)
    changes = {str(change.pk): change for change in live[:CHANGES_WATCHED_MAX]}
    crossings = ThresholdCrossing.objects.visible_to(request.user)
    found = open_crossings(crossings, changes=changes, now=timezone.now())
    roles = roles_of(cast(User, request.user))
    return [
        Warned(each, changes.get(each.meter.subject))
        for each in found[:ROWS_MAX]
        if each.meter.kind != MeterKind.USER
        or (each.organization_id and roles.get(each.organization_id, 0) >= Role.ADMIN)
        or each.meter.subject == str(request.user.pk)
    ]


def _silent_endpoints(request: HttpRequest) -> list[Endpoint]:
    """Webhooks that Remit switched off, for those who can mend them."""
    roles = roles_of(cast(User, request.user))
    admin_of = [pk for pk, role in roles.items() if role >= Role.ADMIN]
    return list(switched_off_by_remit(admin_of)[:ROWS_MAX]) if admin_of else []


def _months(request: HttpRequest) -> list[tuple[Organization, reads.MeterFigures]]:
    """The month of each organization that this person is in."""
    now = timezone.now()
    organizations = list(Organization.objects.visible_to(request.user).order_by("name"))
    keys = [meter_key(MeterKind.ORGANIZATION, each.pk, str(each.pk), now=now) for each in organizations]
    return [
        (organization, reads.figures_of(reading))
        for organization, reading in zip(organizations, read_meters(keys), strict=True)
    ]
