"""The figures of the Spend page: sums, pictures and rankings of calls that a person may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.functions import TruncDate
from django.http import HttpRequest

from budgets.api import SEE_ALL, calls_of_role
from budgets.keys import MeterKind
from budgets.meters import meter_key, read_meters
from budgets.models import LimitChange, Reservation
from budgets.money import ZERO, Usd
from budgets.reports import (
    By,
    CacheEffect,
    DaySpend,
    Narrow,
    Spend,
    by_day,
    by_hour,
    days,
    days_of,
    largest,
    narrow,
    ranked,
    spend_by,
)
from routing.words import Tier
from tasks.attempts.choice import CLASSIFIER
from tasks.models import Change, Event
from tasks.pictures.bars import DayChart, MoneyBar, day_chart, money_bar
from tasks.pictures.timeline import BurnDown, burn_down, limit_steps, share_of_span
from tasks.reads import (
    MeterFigures,
    SubjectLimit,
    accepted_of,
    budgets_told,
    figures_of,
    limits_of,
    outcomes_of,
)
from tasks.reviews import CHECKER, JUDGE
from tasks.states import RunState
from tenants.models import Membership, Organization, Project, Role

TOP = 10
CALLS_SHOWN = 30
# Who classifies and who judges is looked at apart from the tier of its model.
ROLES = {"classifier": (CLASSIFIER,), "judge": (JUDGE.name, CHECKER.name)}
TIERS = ("haiku", "sonnet", "opus")
SERIES = (*TIERS, *ROLES, "other")


@dataclass(frozen=True, slots=True)
class Share:
    """One line of a ranking, with its bar against the largest."""

    label: str
    spend: Spend
    bar: MoneyBar
    link: str = ""


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """How often a tier sufficed, and what its failed attempts cost."""

    tier: str
    succeeded: int
    failed: int
    cost: Spend
    lost: Spend

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed

    @property
    def share(self) -> int | None:
        """How often it sufficed, in per cent; None where nothing has ended."""
        return self.succeeded * 100 // self.ended if self.ended else None

    @property
    def lost_share(self) -> int | None:
        """The part of its money that went into failed attempts, in per cent."""
        whole = self.cost.charged.micro
        return self.lost.charged.micro * 100 // whole if whole else None


@dataclass(frozen=True, slots=True)
class RefusedCalls:
    """How often one limit refused a call on one UTC day."""

    day: date
    limit: str
    count: int


def spend_figures(
    request: HttpRequest, organization: Organization, filters: Narrow, *, role: Role | None, now: datetime
) -> Mapping[str, Any]:
    assert filters.since is not None
    assert filters.until is not None
    calls = calls_of_role(request.user, organization, role)
    found = narrow(calls, filters)
    first, last = filters.since.date(), (filters.until - timedelta(days=1)).date()
    rows = days_of(found)
    sums, effect = _whole(rows)
    month = _month(organization, now=now)
    all_of_it = role in SEE_ALL
    raises = _raises(organization, month, now=now) if all_of_it else []
    days_of_month = rows if _covers_month(filters, now=now) else None
    return {
        "first": first,
        "last": last,
        "total": sums,
        "coverage": sums.coverage,
        "chart": _chart(rows, first, last),
        "series": SERIES,
        "tier_names": TIERS,
        "month": month,
        "burn": _burn(calls, month, days_of_month, raises, now=now) if all_of_it else None,
        "raises": _placed(raises, month, now=now),
        "rankings": _rankings(organization, found, rows, sums),
        "cache_share": effect.read_tokens * 100 // effect.input_tokens if effect.input_tokens else None,
        "cache_saved": effect.saved,
        "tiers": _tiers(found),
        "budgets": _budgets(request, organization, all_of_it=all_of_it, now=now),
        "refused": _refused(request, organization, filters) if all_of_it else (),
        "accepted": accepted_of(request.user, organization, _of_changes(rows), filters, all_of_it=all_of_it),
        "calls": _labelled(organization, list(found[:CALLS_SHOWN])),
    }


def _whole(rows: Sequence[DaySpend]) -> tuple[Spend, CacheEffect]:
    spends, effects = (row.spend for row in rows), (row.effect for row in rows)
    return sum(spends, Spend()), sum(effects, CacheEffect(0, 0, 0))


def _of_changes(rows: Sequence[DaySpend]) -> Spend:
    return sum((row.spend for row in rows if row.of_change), Spend())


def _chart(rows: Sequence[DaySpend], first: date, last: date) -> DayChart:
    by_day: dict[date, dict[str, Usd]] = {day: {} for day in days(first, last)}
    for row in rows:
        name = _series(row)
        of_day = by_day.setdefault(row.day, {})
        of_day[name] = of_day.get(name, ZERO) + row.spend.charged
    return day_chart(sorted(by_day.items()), SERIES)


def _series(row: DaySpend) -> str:
    role = next((name for name, purposes in ROLES.items() if row.purpose in purposes), "")
    return role or (row.tier if row.tier in TIERS else "other")


def _month(organization: Organization, *, now: datetime) -> MeterFigures:
    key = meter_key(MeterKind.ORGANIZATION, organization.pk, str(organization.pk), now=now)
    return figures_of(read_meters([key])[0])


def _covers_month(filters: Narrow, *, now: datetime) -> bool:
    """Whether what the page shows is all of this month, so that nobody has to read it twice."""
    whole = filters == Narrow(since=filters.since, until=filters.until)
    start, until = _start_of_month(now), filters.until
    return (
        whole and filters.since is not None and filters.since <= start and until is not None and until > now
    )


def _burn(
    calls: QuerySet[Reservation],
    month: MeterFigures,
    rows: Sequence[DaySpend] | None,
    raises: Sequence[LimitChange],
    *,
    now: datetime,
) -> BurnDown | None:
    """By the day on which a call was held, from `rows` when there are some, and since yesterday by the hour."""
    if not isinstance(month.limit, Usd) or month.ends_at is None:
        return None
    start = _start_of_month(now)
    yesterday = max(start, _midnight(now) - timedelta(days=1))
    if rows is None:
        rows = days_of(calls.filter(created_at__gte=start, created_at__lt=yesterday))
    past = by_day([row for row in rows if start.date() <= row.day < yesterday.date()])
    lately = by_hour(calls.filter(created_at__gte=yesterday))
    limits = limit_steps(budgets_told(raises), start=start, now=now, limit=month.limit)
    return burn_down([*past, *lately], limits=limits, start=start, end=month.ends_at, now=now)


def _midnight(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _start_of_month(now: datetime) -> datetime:
    return _midnight(now).replace(day=1)


def _raises(organization: Organization, month: MeterFigures, *, now: datetime) -> list[LimitChange]:
    """Changes of the month's limit, in order of time."""
    if month.ends_at is None:
        return []
    changes = LimitChange.objects.of_organization(organization.pk).filter(
        kind=MeterKind.ORGANIZATION, at__gte=_start_of_month(now), at__lt=month.ends_at
    )
    return list(changes.order_by("at", "id"))


def _placed(
    raises: Sequence[LimitChange], month: MeterFigures, *, now: datetime
) -> list[tuple[int, LimitChange]]:
    """Each with its place on the axis of the burn-down."""
    start, end = _start_of_month(now), month.ends_at
    return [] if end is None else [(share_of_span(each.at, start=start, end=end), each) for each in raises]


def _refused(request: HttpRequest, organization: Organization, filters: Narrow) -> list[RefusedCalls]:
    """How often each limit refused a call on each UTC day, the newest day first."""
    events = Event.objects.visible_to(request.user).filter(
        organization=organization, kind="spend_limited", at__gte=filters.since, at__lt=filters.until
    )
    counts = events.order_by().values_list(TruncDate("at", tzinfo=UTC), "data__limit").annotate(Count("pk"))
    rows = [RefusedCalls(day, str(limit), count) for day, limit, count in counts]
    return sorted(rows, key=lambda row: (row.day, row.count), reverse=True)


def _budgets(
    request: HttpRequest, organization: Organization, *, all_of_it: bool, now: datetime
) -> list[SubjectLimit]:
    """Every meter of now that is limited or was used; of people, a member sees their own alone."""
    found = limits_of(organization, now=now)
    mine = {MeterKind.USER: str(request.user.pk)}
    return [
        row
        for row in found
        if (all_of_it or mine.get(MeterKind(row.figures.kind), row.subject) == row.subject)
        and (all_of_it or row.figures.kind != MeterKind.PROVIDER)
        and (row.figures.limit is not None or row.figures.is_used)
    ]


def _rankings(
    organization: Organization, calls: QuerySet[Reservation], rows: Sequence[DaySpend], whole: Spend
) -> list[tuple[str, list[Share]]]:
    of, here = organization.pk, f"/spend?organization={organization.pk}"

    def changes(keys: Sequence[Any]) -> Mapping[Any, str]:
        rows = Change.objects.of_organization(of).filter(pk__in=keys).only("number", "title")
        return {change.pk: f"{change.key} {change.title}" for change in rows}

    def projects(keys: Sequence[Any]) -> Mapping[Any, str]:
        return dict(Project.objects.of_organization(of).filter(pk__in=keys).values_list("pk", "name"))

    def people(keys: Sequence[Any]) -> Mapping[Any, str]:
        members = Membership.objects.of_organization(of).filter(user__in=keys)
        return dict.fromkeys(keys, "a former member") | dict(members.values_list("user_id", "user__email"))

    by_subject = spend_by(calls, By.PROJECT, By.USER)  # few rows: a place each of a small square
    project, person = (_folded(by_subject.items(), place) for place in range(2))
    purpose = _folded([((row.purpose,), row.spend) for row in rows], 0)
    return [
        ("Changes", _ranking(largest(calls, By.CHANGE, top=TOP, whole=whole), changes, "/changes/")),
        ("Projects", _ranking(ranked(project, top=TOP), projects, f"{here}&project=")),
        ("People", _ranking(ranked(person, top=TOP), people, f"{here}&user=")),
        ("Purposes", _ranking(ranked(purpose, top=TOP), lambda _: {})),
    ]


def _folded(spent: Iterable[tuple[tuple[Any, ...], Spend]], place: int) -> dict[Any, Spend]:
    """The sums over one of several groups."""
    found: dict[Any, Spend] = {}
    for keys, each in spent:
        found[keys[place]] = found.get(keys[place], Spend()) + each
    return found


def _ranking(
    ranks: tuple[list[tuple[Any, Spend]], int, Spend],
    names_of: Callable[[Sequence[Any]], Mapping[Any, str]],
    path: str = "",
) -> list[Share]:
    """The ten largest, and the rest as one."""
    found, more, rest = ranks
    names = names_of([key for key, _ in found if key is not None])
    most = found[0][1].charged if found else ZERO
    shares = [
        Share(
            label=names.get(key, str(key or "none").replace("_", " ")),
            spend=each,
            bar=money_bar(limit=most, spent=each.charged, held=ZERO),
            link=f"{path}{key}" if path and key in names else "",
        )
        for key, each in found
    ]
    if more:
        bar = money_bar(limit=most, spent=min(rest.charged, most), held=ZERO)
        shares.append(Share(f"{more} more", rest, bar))
    return shares


def _tiers(calls: QuerySet[Reservation]) -> list[TierOutcome]:
    """What the attempts of each tier came to, and their cost from the ledger: late bills and releases included."""
    outcomes: dict[int, dict[str, tuple[int, Spend]]] = {}
    for tier, state, count, spend in outcomes_of(calls):
        outcomes.setdefault(tier, {})[state] = (count, spend)
    nothing = (0, Spend())
    return [
        TierOutcome(
            tier=Tier(tier).word,
            succeeded=states.get(RunState.SUCCEEDED, nothing)[0],
            failed=states.get(RunState.FAILED, nothing)[0],
            cost=sum((spend for _, spend in states.values()), Spend()),
            lost=states.get(RunState.FAILED, nothing)[1],
        )
        for tier, states in sorted(outcomes.items())
    ]


def _labelled(organization: Organization, calls: Sequence[Reservation]) -> list[tuple[Reservation, str]]:
    changes = Change.objects.of_organization(organization.pk).filter(
        pk__in=[call.change_id for call in calls]
    )
    numbers = dict(changes.values_list("pk", "number"))
    return [(call, f"CH-{numbers[call.change_id]}" if call.change_id in numbers else "") for call in calls]
