"""What the screens and the API read of the domain. Every query here starts at what a person may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.db import connection
from django.db.models import (
    Count,
    F,
    IntegerField,
    Max,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Window,
)
from django.db.models.functions import Coalesce, RowNumber

from budgets.decisions import STOP_OF, MeterReading, Unit, unit_of
from budgets.keys import MeterKind
from budgets.meters import meter_key, payer_meters, read_meters
from budgets.models import LimitChange, Meter, Reservation, ReservationState
from budgets.money import ZERO, Usd
from budgets.reports import SUMS, Narrow, Spend, by_run, spend_of
from routing.words import MAX_ATTEMPTS_PER_TIER
from tasks.models import Candidate, Change, ChangeSet, Check, Criterion, DecisionReceipt, Event, Task, TaskRun
from tasks.pictures.bars import MoneyBar, money_bar
from tasks.states import WAITING_FOR_A_PERSON, ChangeState, TaskState
from tasks.stops import APPROVAL_NEEDED, EFFECT_UNCERTAIN, STOPPED_BY_PERSON
from tenants.access import role_of
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Membership, Organization, Project, Role
from tenants.scope import TenantModel

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from tenants.models import User

    Person = User | AnonymousUser

SEARCH_CHARACTERS_MAX = 200
EVENT_ID_DIGITS_MAX = 18
# States that people ask for together. A budget stop waits for a person, as a plan and a candidate do.
S = ChangeState
GROUPS: Mapping[str, tuple[ChangeState, ...]] = {
    "waiting": WAITING_FOR_A_PERSON,
    "working": (S.PLANNING, S.RUNNING, S.COMPOSING),
    "ended": (S.PROMOTED, S.CANCELLED),
}
# What a Change waits for, in the order in which people should look: money first.
STOPS = ("budget", "approve", "reconcile", "replan", "stopped")
WAITS = (*STOPS, "plan", "promote", "failed")
_STOPS_OF_NO_BUDGET = {
    MAX_ATTEMPTS_PER_TIER: "replan",
    STOPPED_BY_PERSON: "stopped",
    APPROVAL_NEEDED: "approve",
    EFFECT_UNCERTAIN: "reconcile",
}
_WAITS_IN = {S.AWAITING_APPROVAL: "plan", S.READY: "promote", S.FAILED: "failed"}
_WAITS_AS: Mapping[str, Q] = {
    "budget": Q(state=S.BUDGET_BLOCKED) & ~Q(stop_limit__in=tuple(_STOPS_OF_NO_BUDGET)),
    **{kind: Q(state=S.BUDGET_BLOCKED, stop_limit=limit) for limit, kind in _STOPS_OF_NO_BUDGET.items()},
    **{kind: Q(state=state) for state, kind in _WAITS_IN.items()},
}
assert set(_WAITS_AS) == set(WAITS)
LIMITS_OF_A_KIND_MAX = 200
_OF_THE_ORGANIZATION = (
    MeterKind.ORGANIZATION,
    MeterKind.DAILY_CALLS,
    MeterKind.CLASSIFIER_CALLS,
    MeterKind.EMBEDDINGS,
)

Row = TypeVar("Row", bound=TenantModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """One budget as people see it: unknown charges are inside `spent` at their worst case and counted apart."""

    limit: Usd | None
    spent: Usd
    held: Usd
    unknown_calls: int = 0

    @property
    def left(self) -> Usd | None:
        return self.bar.left

    @property
    def bar(self) -> MoneyBar:
        return money_bar(limit=self.limit, spent=self.spent, held=self.held)


NO_MONEY = Money(limit=None, spent=ZERO, held=ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """The filters of the Changes list, as they stand in its address."""

    state: str = ""
    group: str = ""  # a few states together: waiting, working, ended
    stop: str = ""  # what stopped it: budget, replan, stopped
    project: UUID | None = None
    author: str = ""  # an email address, or "me"
    text: str = ""

    @classmethod
    def parse(cls, query: Mapping[str, Any]) -> ChangeFilter:
        group = str(query.get("group", ""))
        if group and group not in GROUPS:
            raise InvalidInput("group", f"{group[:40]!r} is no group", f"Use one of {', '.join(GROUPS)}.")
        state = str(query.get("state", ""))
        if state and state not in set(ChangeState):
            raise InvalidInput(
                "state", f"{state[:40]!r} is no state", f"Use one of {', '.join(ChangeState)}."
            )
        stop = str(query.get("stop", ""))
        if stop and stop not in STOPS:
            raise InvalidInput("stop", f"{stop[:40]!r} is no kind of stop", f"Use one of {', '.join(STOPS)}.")
        text = str(query.get("q", ""))[:SEARCH_CHARACTERS_MAX].replace("\0", "").strip()
        return cls(
            state=state,
            group=group,
            stop=stop,
            project=_uuid("project", query.get("project")),
            author=str(query.get("author", ""))[:SEARCH_CHARACTERS_MAX].replace("\0", ""),
            text=text,
        )

    def as_query(self) -> str:
        """The same filter as it stands in an address, always in one order."""
        said = {
            "q": self.text,
            "group": self.group,
            "state": self.state,
            "stop": self.stop,
            "project": str(self.project or ""),
            "author": self.author,
        }
        return urlencode({name: value for name, value in said.items() if value})


# What no list shows: a page of a hundred Changes would carry a megabyte of it from the database.
LONG_FIELDS = ("goal", "invariants", "plan", "plan_problem", "failure")
# Nor what only the settings of a project and an account show, for each row again.
SETTINGS_FIELDS = (
    "project__description",
    "project__caps",
    "project__extra_commands",
    "project__approval_commands",
    "project__publish_rules",
    "author__password",
    "author__saved_views",
)


def within(rows: QuerySet[Row], organization_id: UUID | None) -> QuerySet[Row]:
    """Visible rows, quickly for whoever is in one organization, as most are.

    With its id as a value beside the join PostgreSQL knows how many rows to expect, and walks that organization's own
    index, newest first, to the end of a page; by the join alone it reads and sorts all of its Changes.
    """
    if organization_id is None:
        return rows
    found: QuerySet[Row] = rows.filter(**{f"{rows.model.tenant_path}__pk": organization_id})
    return found


def sole(organization_ids: Iterable[UUID]) -> UUID | None:
    """The only one; None when there are several or none."""
    found = list(organization_ids)
    return found[0] if len(found) == 1 else None


def _seen_changes(user: Person) -> QuerySet[Change]:
    mine = Membership.objects.visible_to(user).filter(user=user.pk).values_list("organization_id", flat=True)
    return within(Change.objects.visible_to(user), sole(mine[:2]))


def listed_changes(user: Person, wanted: ChangeFilter = ChangeFilter()) -> QuerySet[Change]:
    """As `changes_for`, without the long texts."""
    return changes_for(user, wanted).defer(*LONG_FIELDS, *SETTINGS_FIELDS)


def plain_changes(user: Person) -> QuerySet[Change]:
    """Newest first, without counts and long texts: for what only names them, hundreds at a time."""
    found = _seen_changes(user).select_related("project", "organization", "author")
    return found.defer(*LONG_FIELDS, *SETTINGS_FIELDS).order_by("-id")


@dataclass(frozen=True, slots=True)
class Waits:
    """Changes that wait for the same thing: the first of them, oldest first, and how many there are."""

    kind: str  # one of WAITS
    changes: Sequence[Change]
    count: int


def waiting_changes(visible: QuerySet[Change], *, each: int) -> list[Waits]:
    """The first of each kind and their number, in two queries for any number of them; empty kinds are left out.

    Ranked by state and limit as they are stored: by a kind that is worked out for each row, a few thousand took the
    database three times as long. There are as many of these as limits have names; together they are the kinds.
    """
    same = (F("state"), F("stop_limit"))
    placed = visible.filter(state__in=GROUPS["waiting"]).annotate(
        place=Window(RowNumber(), partition_by=same, order_by=[F("updated_at").asc(), F("id").asc()]),
        count=Window(Count("*"), partition_by=same),
    )
    firsts = placed.filter(place__lte=each).values_list("state", "stop_limit", "count", "updated_at", "pk")
    counts: dict[str, dict[tuple[str, str], int]] = {}
    oldest: dict[str, list[tuple[datetime, UUID]]] = {}
    for state, limit, count, at, key in firsts:
        kind = kind_of_wait(state, limit)
        counts.setdefault(kind, {})[state, limit] = count
        oldest.setdefault(kind, []).append((at, key))
    shown = {kind: [key for _, key in sorted(found)[:each]] for kind, found in oldest.items()}
    wanted = [key for keys in shown.values() for key in keys]
    rows = visible.defer("goal", "invariants", "plan").in_bulk(wanted)
    return [
        Waits(kind, [rows[key] for key in shown[kind] if key in rows], sum(counts[kind].values()))
        for kind in WAITS
        if kind in shown
    ]


def kind_of_wait(state: str, stop_limit: str) -> str:
    """What a waiting Change waits for: the same that `_WAITS_AS` asks the database."""
    if state == S.BUDGET_BLOCKED:
        return _STOPS_OF_NO_BUDGET.get(stop_limit, "budget")
    return _WAITS_IN[ChangeState(state)]


def changes_for(user: Person, wanted: ChangeFilter = ChangeFilter()) -> QuerySet[Change]:
    """The Changes a person may see, newest first, with the counts that a row of the list shows."""
    found = _seen_changes(user).select_related("project", "author", "organization")
    if wanted.state:
        found = found.filter(state=wanted.state)
    if wanted.group:
        found = found.filter(state__in=GROUPS[wanted.group])
    if wanted.stop:
        found = found.filter(_WAITS_AS[wanted.stop])
    if wanted.author:
        found = (
            found.filter(author=user.pk)
            if wanted.author == "me"
            else found.filter(author__email=wanted.author)
        )
    if wanted.project:
        found = found.filter(project_id=wanted.project)
    if wanted.text:
        number = wanted.text.upper().removeprefix("CH-")
        by_number = Q(number=int(number)) if number.isdecimal() and len(number) < 10 else Q()
        found = found.filter(Q(title__icontains=wanted.text) | by_number)
    # Each counted for itself by an index: a join with GROUP BY would count for every Change before the first page.
    tasks = Task.objects.filter(change=OuterRef("pk"))
    return found.annotate(
        tasks_count=_count_of(tasks),
        tasks_done=_count_of(tasks.filter(state=TaskState.DONE)),
        criteria_count=_count_of(Criterion.objects.filter(change=OuterRef("pk"))),
    ).order_by("-id")


def change_for(user: Person, change_id: UUID) -> Change:
    """One Change with all that its page needs, in a bounded number of queries. Raises NotVisible."""
    runs = TaskRun.objects.defer("failure_log", "note", "intent", "detail", "stacked_on")
    tasks = Task.objects.prefetch_related("dependencies", Prefetch("runs", runs))
    rows = _one_change(user).prefetch_related("criteria", Prefetch("tasks", tasks))
    change: Change = _one(rows, change_id, "change")
    counted: Any = change  # the same names as the counts of a list
    counted.tasks_count = len(change.tasks.all())
    counted.tasks_done = sum(task.state == TaskState.DONE for task in change.tasks.all())
    counted.criteria_count = len(change.criteria.all())
    by_id = {task.pk: task for task in change.tasks.all()}
    for task in by_id.values():  # all of them are here already: no second look for the other end
        if task.blocked_by_id is not None:
            task.blocked_by = by_id[task.blocked_by_id]
        for edge in task.dependencies.all():
            edge.task, edge.on = task, by_id[edge.on_id]
    return change


def named_change(user: Person, change_id: UUID) -> Change:
    """One Change with its project and author, for pages that say whose they are. Raises NotVisible."""
    change: Change = _one(_one_change(user), change_id, "change")
    return change


def _one_change(user: Person) -> QuerySet[Change]:
    found: QuerySet[Change] = Change.objects.visible_to(user)
    return found.select_related("project", "author", "organization")


def change_of(user: Person, change_id: UUID) -> Change:
    """The bare row, for doors that need no more. Raises NotVisible."""
    change: Change = _one(Change.objects.visible_to(user), change_id, "change")
    return change


def change_pulse(user: Person, change_id: UUID) -> tuple[object, ...]:
    """What moves when there is something new to see on a Change's page; few rows, for polls. Raises NotVisible."""
    change = change_of(user, change_id)
    runs = TaskRun.objects.of_organization(change.organization_id).filter(task__change=change)
    used = runs.aggregate(calls=Sum("calls"), cost=Sum("cost"))
    return _pulse(change, used["calls"] or 0, used["cost"] or ZERO)


def pulse_of(change: Change) -> tuple[object, ...]:
    """The same of a Change that `change_for` has read already."""
    runs = [run for task in change.tasks.all() for run in task.runs.all()]
    return _pulse(change, sum(run.calls for run in runs), sum((run.cost for run in runs), ZERO))


def _pulse(change: Change, calls: int, cost: Usd) -> tuple[object, ...]:
    meter = Meter.objects.of_organization(change.organization_id).filter(
        kind=MeterKind.CHANGE, subject=str(change.pk)
    )
    return (
        change.state,
        change.paused_at,
        change.updated_at,
        change.events.aggregate(last=Max("pk"))["last"],
        *meter.values_list("limit_usd", "spent_usd", "held_usd"),
        calls,
        cost,
    )


def task_for(user: Person, task_id: UUID) -> Task:
    found: QuerySet[Task] = (
        Task.objects.visible_to(user)
        .select_related("change__project", "change__organization", "change__author", "blocked_by")
        .prefetch_related("dependencies__on", "dependents__task", "reopenings__by")
    )
    return _one(found, task_id, "task")


def run_for(user: Person, run_id: UUID) -> TaskRun:
    found: QuerySet[TaskRun] = TaskRun.objects.visible_to(user).select_related(
        "task__change__project", "task__change__organization"
    )
    return _one(found, run_id, "run")


def changeset_for(user: Person, changeset_id: UUID) -> ChangeSet:
    found: QuerySet[ChangeSet] = ChangeSet.objects.visible_to(user).select_related(
        "task__change__project", "run"
    )
    return _one(found, changeset_id, "changeset")


def candidate_for(user: Person, candidate_id: UUID) -> Candidate:
    found: QuerySet[Candidate] = (
        Candidate.objects.visible_to(user)
        .select_related("change__project__trunk", "change__organization", "promoted_by")
        .prefetch_related("checks__criterion")
    )
    return _one(found, candidate_id, "candidate")


def changeset_of(run: TaskRun) -> ChangeSet:
    """What an attempt published. Raises NotVisible when it published nothing."""
    changeset: ChangeSet | None = ChangeSet.objects.filter(run=run).first()
    if changeset is None:
        raise NotVisible("changeset")
    return changeset


def tasks_of(change: Change) -> QuerySet[Task]:
    found: QuerySet[Task] = change.tasks.prefetch_related("dependencies__on").select_related("blocked_by")
    return found


def runs_of(task: Task) -> QuerySet[TaskRun]:
    found: QuerySet[TaskRun] = task.runs.select_related("changeset").order_by("attempt")
    return found


def receipts_of(change: Change, task: Task | None = None) -> QuerySet[DecisionReceipt]:
    found: QuerySet[DecisionReceipt] = change.receipts.select_related("task", "run").order_by("id")
    return found if task is None else found.filter(task=task)


def events_of(change: Change, *, after: int = 0) -> QuerySet[Event]:
    found: QuerySet[Event] = change.events.filter(pk__gt=after).select_related("task").order_by("id")
    return found


def charges_of(change: Change) -> list[tuple[datetime, Usd]]:
    """Every closed charge of a Change in order of time, unknown ones at their worst case."""
    closed = Reservation.objects.of_organization(change.organization_id).filter(
        change_id=change.pk, closed_at__isnull=False
    )
    rows = closed.order_by("closed_at", "pk").values_list("closed_at", "usd")
    return [(at, usd) for at, usd in rows if at is not None and usd]


def limit_changes_of(change: Change) -> list[LimitChange]:
    """How the budget of a Change was set, in order of time."""
    rows = LimitChange.objects.of_organization(change.organization_id)
    return list(rows.filter(kind=MeterKind.CHANGE, subject=str(change.pk)).order_by("at", "id"))


def budgets_told(rows: Iterable[LimitChange]) -> list[tuple[datetime, Usd | None, Usd | None]]:
    """When each limit in money was set, from what to what; None: no limit."""
    return [
        (
            row.at,
            None if row.before is None else Usd(row.before),
            None if row.after is None else Usd(row.after),
        )
        for row in rows
        if row.unit == Unit.USD
    ]


def event_id(said: str | None) -> int:
    """Where to read on in the events; 0 is the beginning. Raises `InvalidInput`."""
    text = said or "0"
    if not (text.isascii() and text.isdecimal() and len(text) <= EVENT_ID_DIGITS_MAX):
        raise InvalidInput("after", "is no whole number", "Use the id of the last event you saw.")
    return int(text)


def latest_verdicts(changes: Iterable[Change]) -> dict[UUID, dict[int, str]]:
    """The newest evidence of each Change in one word per criterion's position, for lists."""
    found: dict[UUID, dict[int, str]] = {}
    newest: dict[UUID, int] = {}
    checks = (
        Check.objects.filter(candidate__change__in=[change.pk for change in changes])
        .order_by("candidate__change_id", "-candidate__number")
        .values_list("candidate__change_id", "candidate__number", "criterion__position", "verdict")
    )
    for change_id, number, position, verdict in checks:
        if newest.setdefault(change_id, number) == number:
            found.setdefault(change_id, {})[position] = verdict
    return found


def latest_checks(changes: Iterable[Change]) -> dict[UUID, dict[int, Check]]:
    """The newest evidence of each Change: criterion position to Check of its latest Candidate that has any."""
    found: dict[UUID, dict[int, Check]] = {}
    newest: dict[UUID, int] = {}
    checks = (
        Check.objects.filter(candidate__change__in=[change.pk for change in changes])
        .select_related("candidate", "criterion")
        .order_by("candidate__change_id", "-candidate__number")
    )
    for check in checks:
        candidate = check.candidate
        if newest.setdefault(candidate.change_id, candidate.number) == candidate.number:
            found.setdefault(candidate.change_id, {})[check.criterion.position] = check
    return found


def money_of(changes: Sequence[Change]) -> dict[UUID, Money]:
    """The budget of each Change from its own meter, in two queries for any number of them."""
    ids = [str(change.pk) for change in changes]
    unknown = unknown_calls(change_ids=[change.pk for change in changes])
    meters = Meter.objects.filter(
        organization__in={change.organization_id for change in changes},
        kind=MeterKind.CHANGE,
        subject__in=ids,
    )
    found = {UUID(meter.subject): _money(meter, unknown.get(UUID(meter.subject), 0)) for meter in meters}
    return {change.pk: found.get(change.pk, NO_MONEY) for change in changes}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFigures:
    """One meter as people see it. Amounts of `counts` "calls" are whole numbers."""

    kind: str
    stop: str
    period: str
    counts: str
    limit: Usd | int | None
    spent: Usd | int
    held: Usd | int
    left: Usd | int | None
    ends_at: datetime | None

    @property
    def used(self) -> str:
        """The word behind what is gone: money is spent, calls are used."""
        return "spent" if self.counts == "usd" else "used"

    @property
    def is_held(self) -> bool:
        return bool(self.held.micro if isinstance(self.held, Usd) else self.held)

    @property
    def is_used(self) -> bool:
        return self.is_held or bool(self.spent.micro if isinstance(self.spent, Usd) else self.spent)

    @property
    def bar(self) -> MoneyBar:
        """The same bar for calls: one call is drawn as one micro-dollar."""
        limit = None if self.limit is None else _as_usd(self.limit)
        return money_bar(limit=limit, spent=_as_usd(self.spent), held=_as_usd(self.held))


def meters_of(change: Change, *, now: datetime) -> list[MeterFigures]:
    """Every meter that pays for a Change, in the order in which a refusal is named.

    The connector's and the platform's are an operator's business and are left out.
    """
    keys = payer_meters(
        organization_id=change.organization_id,
        project_id=change.project_id,
        user_id=change.author_id,
        change_id=change.pk,
        connector="",
        counts_daily=True,
        now=now,
    )
    shown = [key for key in keys if key.kind is not MeterKind.PLATFORM]
    return [figures_of(reading) for reading in read_meters(shown)]


def figures_of(reading: MeterReading) -> MeterFigures:
    money = unit_of(reading.key.kind) is Unit.USD
    return MeterFigures(
        kind=str(reading.key.kind),
        stop=STOP_OF[reading.key.kind],
        period=reading.key.period,
        counts="usd" if money else "calls",
        limit=reading.limit_usd if money else reading.limit_calls,
        spent=reading.spent_usd if money else reading.spent_calls,
        held=reading.held_usd if money else reading.held_calls,
        left=_left(reading.left_usd) if money else _left(reading.left_calls),
        ends_at=reading.ends_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectLimit:
    """One limit of an organization, and whose it is."""

    subject: str
    name: str
    figures: MeterFigures


def limits_of(organization: Organization, *, now: datetime) -> list[SubjectLimit]:
    """Every limit that an admin can set for the open period, in a bounded number of queries; Changes have pages."""
    own = str(organization.pk)
    subjects = [(kind, own, organization.name) for kind in _OF_THE_ORGANIZATION]
    projects = Project.objects.of_organization(organization.pk).filter(archived_at__isnull=True)
    named = list(projects.order_by("name")[:LIMITS_OF_A_KIND_MAX])
    subjects += [(MeterKind.PROJECT, str(project.pk), project.name) for project in named]
    members = (
        Membership.objects.of_organization(organization.pk).select_related("user").order_by("user__email")
    )
    subjects += [(MeterKind.USER, str(one.user_id), one.user.email) for one in members[:LIMITS_OF_A_KIND_MAX]]
    connectors = sorted({project.connector for project in named if project.connector})
    subjects += [(MeterKind.PROVIDER, name, name) for name in connectors]
    keys = [meter_key(kind, organization.pk, subject, now=now) for kind, subject, _ in subjects]
    return [
        SubjectLimit(subject=subject, name=name, figures=figures_of(reading))
        for (_, subject, name), reading in zip(subjects, read_meters(keys), strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """How many Changes were promoted, and what one of them cost on average, failures included."""

    changes: int
    cost: Usd | None  # unknown charges at their worst case; None: nothing was promoted
    unknown_calls: int


def accepted_of(
    user: Person, organization: Organization, spent: Spend, filters: Narrow, *, all_of_it: bool
) -> Accepted:
    """Promoted in that time; `spent` on Changes are the calls of that time which a person may see.

    Whoever sees only their own calls, not `all_of_it`, is told of their own Changes.
    """
    promoted = Change.objects.visible_to(user).filter(organization=organization, state=ChangeState.PROMOTED)
    author = filters.user_id if all_of_it else user.pk
    equal = {
        "author_id": author,
        "project_id": filters.project_id,
        "ended_at__gte": filters.since,
        "ended_at__lt": filters.until,
    }
    count = promoted.filter(**{name: value for name, value in equal.items() if value is not None}).count()
    cost = Usd(-(-spent.charged.micro // count)) if count else None
    return Accepted(changes=count, cost=cost, unknown_calls=spent.unknown_calls)


def outcomes_of(calls: QuerySet[Reservation]) -> list[tuple[int, str, int, Spend]]:
    """Tier, state, number and cost of the attempts that made these calls; those of a run are of one organization."""
    rows, values = by_run(calls)
    sums = ", ".join(f"SUM(spent.{name})" for name in SUMS)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT run.tier, run.state, COUNT(*), {sums} FROM ({rows}) AS spent"  # noqa: S608  # our own names
            f" JOIN {TaskRun._meta.db_table} AS run ON run.id = spent.run_id GROUP BY run.tier, run.state",
            values,
        )
        found = cursor.fetchall()
    return [(tier, state, count, spend_of(spent)) for tier, state, count, *spent in found]


def sees_all(user: Person, organization: Organization) -> bool:
    """An admin sees the money of everybody."""
    role = role_of(user, organization.pk)
    return role is not None and role >= Role.ADMIN


def unknown_calls(*, change_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many calls of each Change were charged at their worst case because nobody could read the bill."""
    rows = (
        Reservation.objects.filter(change_id__in=change_ids, state=ReservationState.UNKNOWN)
        .values_list("change_id")
        .annotate(count=Count("id"))
    )
    return dict(rows)


def _count_of(rows: QuerySet[Any]) -> Coalesce:
    """How many there are, inside of another query."""
    counted = rows.order_by().values("change").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def _money(meter: Meter, unknown: int) -> Money:
    return Money(limit=meter.limit_usd, spent=meter.spent_usd, held=meter.held_usd, unknown_calls=unknown)


def _as_usd(amount: Usd | int) -> Usd:
    return amount if isinstance(amount, Usd) else Usd(amount)


def _left(amount: Usd | int | None) -> Usd | int | None:
    """Below zero after a late report; people see that nothing is left."""
    if isinstance(amount, Usd):
        return max(amount, ZERO)
    return None if amount is None else max(amount, 0)


def _one(rows: QuerySet[Row], key: UUID, what: str) -> Row:
    row = rows.filter(pk=key).first()
    if row is None:
        raise NotVisible(what)
    return row


def _uuid(field: str, value: object) -> UUID | None:
    if not value:
        return None
    try:
        return UUID(str(value))
    except ValueError:
        raise InvalidInput(field, "is no id", "Use the id as the API gives it.") from None
