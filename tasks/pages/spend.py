"""Browser: where the money of an organization went, all of it read from the one ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from budgets.api import SEE_ALL, calls_for, csv_answer, read_filters
from budgets.keys import MeterKind
from budgets.meters import meter_key, read_meters
from budgets.models import Reservation
from budgets.money import ZERO, Usd
from budgets.reports import By, Narrow, Spend, cache_effect, days, narrow, spend_by, total
from routing.words import Tier
from tasks.models import Change, TaskRun
from tasks.pictures.bars import DayChart, MoneyBar, day_chart, money_bar
from tasks.pictures.timeline import BurnDown, burn_down
from tasks.reads import MeterFigures, figures_of
from tasks.states import ChangeState, RunState
from tenants.access import organization_for, role_of
from tenants.errors import NotVisible
from tenants.models import Organization, Project, Role, User

DAYS_SHOWN = 30
TOP = 10
CALLS_SHOWN = 50
SERIES = ("haiku", "sonnet", "opus", "other")


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
    cost: Usd
    lost: Usd


@require_GET
@login_required
def spend(request: HttpRequest) -> HttpResponse:
    """The first organization of a person, or the one of the address."""
    wanted = request.GET.get("organization")
    organizations = list(Organization.objects.visible_to(request.user).order_by("name"))
    if not organizations:
        return redirect("organizations")
    chosen = _chosen(request, wanted) if wanted else organizations[0]
    context = {
        "organization": chosen,
        "organizations": organizations,
        "role": role_of(request.user, chosen.pk),
        **_figures(request, chosen, now=timezone.now()),
    }
    return render(request, "tasks/spend.html", context)


@require_GET
@login_required
def spend_csv(request: HttpRequest, organization_id: UUID) -> StreamingHttpResponse:
    organization = organization_for(request.user, organization_id, at_least=Role.VIEWER)
    return csv_answer(narrow(calls_for(request.user, organization), read_filters(organization, request.GET)))


def _chosen(request: HttpRequest, wanted: str) -> Organization:
    try:
        return organization_for(request.user, UUID(wanted), at_least=Role.VIEWER)
    except ValueError:
        raise NotVisible("organization") from None


def _figures(request: HttpRequest, organization: Organization, *, now: datetime) -> Mapping[str, Any]:
    calls = calls_for(request.user, organization)
    today = now.astimezone(UTC).date()
    first = today - timedelta(days=DAYS_SHOWN - 1)
    recent = calls.filter(created_at__gte=datetime.combine(first, time(), tzinfo=UTC))
    sums = total(recent)
    effect = cache_effect(recent)
    month = _month(organization, now=now)
    return {
        "first": first,
        "today": today,
        "total": sums,
        "coverage": sums.coverage,
        "chart": _chart(recent, first, today),
        "series": SERIES,
        "month": month,
        "burn": _burn(calls, month, now=now) if role_of(request.user, organization.pk) in SEE_ALL else None,
        "rankings": _rankings(recent),
        "cache_share": effect.read_tokens * 100 // effect.input_tokens if effect.input_tokens else None,
        "cache_saved": effect.saved,
        "tiers": _tiers(request, organization, first),
        "accepted": _accepted(request, organization, calls),
        "calls": _labelled(list(narrow(recent, Narrow())[:CALLS_SHOWN])),
    }


def _chart(calls: QuerySet[Reservation], first: date, last: date) -> DayChart:
    by_day: dict[date, dict[str, Usd]] = {day: {} for day in days(first, last)}
    for (day, tier), spent in spend_by(calls, By.DAY, By.TIER).items():
        name = tier if tier in SERIES else "other"
        by_day.setdefault(day, {})[name] = by_day.get(day, {}).get(name, ZERO) + spent.charged
    return day_chart(sorted(by_day.items()), SERIES)


def _month(organization: Organization, *, now: datetime) -> MeterFigures:
    key = meter_key(MeterKind.ORGANIZATION, organization.pk, str(organization.pk), now=now)
    return figures_of(read_meters([key])[0])


def _burn(calls: QuerySet[Reservation], month: MeterFigures, *, now: datetime) -> BurnDown | None:
    if not isinstance(month.limit, Usd) or month.ends_at is None:
        return None
    start = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ended = calls.filter(created_at__gte=start, closed_at__isnull=False).order_by("closed_at", "pk")
    charges = [
        (at, usd) for at, usd in ended.values_list("closed_at", "usd").iterator() if at is not None and usd
    ]
    return burn_down(charges, limit=month.limit, start=start, end=month.ends_at, now=now)


def _rankings(calls: QuerySet[Reservation]) -> list[tuple[str, list[Share]]]:
    projects = _names(Project.objects.filter(pk__in=_keys(calls, "project_id")), "name")
    people = _names(User.objects.filter(pk__in=_keys(calls, "user_id")), "email")
    changes = {
        change.pk: f"{change.key} {change.title}"
        for change in Change.objects.filter(pk__in=_keys(calls, "change_id"))
    }
    return [
        ("Changes", _ranking(calls, By.CHANGE, changes, "/changes/")),
        ("Projects", _ranking(calls, By.PROJECT, projects)),
        ("People", _ranking(calls, By.USER, people)),
        ("Purposes", _ranking(calls, By.PURPOSE, {})),
    ]


def _ranking(calls: QuerySet[Reservation], by: By, names: Mapping[Any, str], path: str = "") -> list[Share]:
    """The ten largest, and the rest as one."""
    found = sorted(spend_by(calls, by).items(), key=lambda each: each[1].charged, reverse=True)
    largest = found[0][1].charged if found else ZERO
    shares = [
        Share(
            label=names.get(key, str(key or "none").replace("_", " ")),
            spend=each,
            bar=money_bar(limit=largest, spent=each.charged, held=ZERO),
            link=f"{path}{key}" if path and key in names else "",
        )
        for (key,), each in found[:TOP]
    ]
    if len(found) > TOP:
        rest = sum((each.charged for _, each in found[TOP:]), ZERO)
        counted = Spend(known=rest, calls=sum(each.calls for _, each in found[TOP:]))
        shares.append(
            Share(f"{len(found) - TOP} more", counted, money_bar(limit=largest, spent=rest, held=ZERO))
        )
    return shares


def _tiers(request: HttpRequest, organization: Organization, first: date) -> list[TierOutcome]:
    runs = TaskRun.objects.visible_to(request.user).filter(
        task__change__organization=organization, started_at__date__gte=first
    )
    rows = runs.order_by().values_list("tier", "state").annotate(count=Count("pk"), cost=Sum("cost"))
    found: dict[int, dict[str, tuple[int, Usd]]] = {}
    for tier, state, count, cost in rows:
        found.setdefault(tier, {})[state] = (count, cost or ZERO)
    none = (0, ZERO)
    return [
        TierOutcome(
            tier=Tier(tier).word,
            succeeded=states.get(RunState.SUCCEEDED, none)[0],
            failed=states.get(RunState.FAILED, none)[0],
            cost=sum((cost for _, cost in states.values()), ZERO),
            lost=states.get(RunState.FAILED, none)[1],
        )
        for tier, states in sorted(found.items())
    ]


def _accepted(
    request: HttpRequest, organization: Organization, calls: QuerySet[Reservation]
) -> tuple[int, Usd | None]:
    """How many Changes were promoted, and what one of them cost on average, failures included."""
    promoted = Change.objects.visible_to(request.user).filter(
        organization=organization, state=ChangeState.PROMOTED
    )
    count = promoted.count()
    if not count:
        return 0, None
    cost = total(calls.filter(change_id__isnull=False)).charged
    return count, Usd(-(-cost.micro // count))


def _labelled(calls: Sequence[Reservation]) -> list[tuple[Reservation, str]]:
    changes = _names(Change.objects.filter(pk__in=[call.change_id for call in calls]), "number")
    return [(call, f"CH-{changes[call.change_id]}" if call.change_id in changes else "") for call in calls]


def _keys(calls: QuerySet[Reservation], name: str) -> list[Any]:
    return list(calls.order_by().values_list(name, flat=True).distinct())


def _names(rows: QuerySet[Any], name: str) -> dict[Any, str]:
    return dict(rows.values_list("pk", name))
