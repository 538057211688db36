"""Browser: the limits of an organization, up or down, and its unknown charges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from budgets.api import unknown_charge
from budgets.keys import MeterKind
from budgets.models import LimitChange, Reservation, ReservationState
from budgets.money import Usd
from budgets.reservations import release_unknown
from tasks import reads
from tasks.models import Change
from tasks.pages.forms import LimitForm, ReleaseForm
from tasks.pages.stops import METER_LABELS
from tasks.raises import LimitOf, LimitSet, limit_of_subject, preview_limit, set_budget
from tenants.access import organization_for, role_of
from tenants.errors import InvalidInput
from tenants.forms import attempt
from tenants.models import Organization, Role, User

CHANGES_SHOWN = 50
UNKNOWN_PER_PAGE = 50
# What they spend is spent of the organization's month, too.
UNDER_THE_MONTH = (MeterKind.PROJECT, MeterKind.USER, MeterKind.PROVIDER)


@dataclass(frozen=True, slots=True)
class Named:
    """Whose limit was changed, in words, with its page where it has one."""

    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Effective:
    """One limit with what can still be spent under it: its own rest, or less where the organization has less.

    `binds` names the limit that ends it first, where that is not its own; `left` None: nothing binds.
    """

    subject: str
    name: str
    figures: reads.MeterFigures
    left: Usd | int | None
    binds: str


def effective(rows: Sequence[reads.SubjectLimit]) -> list[Effective]:
    """Each limit beside the month of the organization, which pays for all that projects and people spend. Pure."""
    month = next(row.figures for row in rows if row.figures.kind == MeterKind.ORGANIZATION)
    return [_effective(row, month) for row in rows]


def _effective(row: reads.SubjectLimit, month: reads.MeterFigures) -> Effective:
    own, less = row.figures.left, month.left
    is_under = row.figures.kind in UNDER_THE_MONTH and isinstance(less, Usd)
    if is_under and (own is None or (isinstance(own, Usd) and isinstance(less, Usd) and less < own)):
        return Effective(row.subject, row.name, row.figures, less, month.stop)
    return Effective(row.subject, row.name, row.figures, own, "")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def limits(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """First the preview, then the new limit: the same form, two buttons."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    rows = reads.limits_of(organization, now=timezone.now())
    form = LimitForm(
        request.POST or None, initial=_initial(request), of=_choices(request, organization, rows)
    )
    preview = None
    if request.method == "POST" and form.is_valid():
        if "set" in request.POST:
            done = attempt(form, lambda: _set(request, organization, form))
            if done is not None:
                messages.success(request, _words(done))
                return redirect("limits", organization.pk)
        else:
            preview = attempt(
                form,
                lambda: preview_limit(
                    _whose(organization, form), form.limit(_kind(form)), now=timezone.now()
                ),
            )
    history = LimitChange.objects.of_organization(organization.pk).select_related("by").order_by("-at", "-id")
    return _page(
        request,
        "tasks/limits.html",
        organization,
        rows=effective(rows),
        form=form,
        preview=preview,
        preview_label=METER_LABELS.get(str(preview.kind), "") if preview else "",
        history=_named(organization, list(history[:CHANGES_SHOWN]), rows),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def unknown_charges(request: HttpRequest, organization_id: UUID) -> HttpResponse:
    """Calls that may have been billed. A person who knows better takes a charge back, and says why."""
    organization = organization_for(request.user, organization_id, at_least=Role.ADMIN)
    form = ReleaseForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        call = unknown_charge(request.user, organization, form.cleaned_data["call"])
        closed = attempt(
            form,
            lambda: release_unknown(call.pk, by=cast(User, request.user), reason=form.cleaned_data["reason"]),
        )
        if closed is not None:
            messages.success(request, f"{call.hold_usd} no longer count as spent.")
            return redirect("unknown-charges", organization.pk)
    unknown = Reservation.objects.of_organization(organization.pk).filter(state=ReservationState.UNKNOWN)
    page = Paginator(unknown.order_by("-created_at", "-pk"), UNKNOWN_PER_PAGE).get_page(
        request.GET.get("page")
    )
    changes = Change.objects.of_organization(organization.pk).filter(pk__in=[call.change_id for call in page])
    keys = {change.pk: change.key for change in changes.only("number")}
    return _page(request, "tasks/unknown_charges.html", organization, page=page, form=form, keys=keys)


def _page(request: HttpRequest, template: str, organization: Organization, **more: Any) -> HttpResponse:
    role = role_of(request.user, organization.pk)
    context = {"organization": organization, "my_role": role, "is_admin": True, **more}
    return render(request, template, context, status=400 if more["form"].errors else 200)


def _initial(request: HttpRequest) -> dict[str, str]:
    return {
        "of": request.GET.get("of", ""),
        "to": request.GET.get("to", ""),
        "key": f"page-{uuid4()}",
    }


def _choices(
    request: HttpRequest, organization: Organization, rows: list[reads.SubjectLimit]
) -> list[tuple[str, str]]:
    found = [
        (f"{row.figures.kind}:{row.subject}", f"{METER_LABELS[row.figures.kind]}: {row.name}") for row in rows
    ]
    asked = request.POST.get("of") or request.GET.get("of") or ""
    kind, _, subject = asked.partition(":")
    if kind == MeterKind.CHANGE:  # from the page of a Change; there may be thousands
        change = cast(Change, limit_of_subject(organization, MeterKind.CHANGE, subject).change)
        found.insert(0, (f"{kind}:{change.pk}", f"{change.key} {change.title}"))
    return found


def _kind(form: LimitForm) -> MeterKind:
    return MeterKind(form.cleaned_data["of"].partition(":")[0])


def _whose(organization: Organization, form: LimitForm) -> LimitOf:
    return limit_of_subject(organization, _kind(form), form.cleaned_data["of"].partition(":")[2])


def _set(request: HttpRequest, organization: Organization, form: LimitForm) -> LimitSet:
    done = set_budget(
        _whose(organization, form),
        form.limit(_kind(form)),
        by=cast(User, request.user),
        reason=form.cleaned_data["reason"],
        key=form.cleaned_data["key"],
        expires_at=form.expires_at(),
        now=timezone.now(),
    )
    if done.before == done.after and not done.raised.replayed and form.expires_at():
        raise InvalidInput("to", "is the limit of now", "Name another one for that time.")
    return done


def _words(done: LimitSet) -> str:
    after = "There is no limit now" if done.after is None else f"The limit is {done.after} now"
    names = ", ".join(f"{task.change.key}/{task.key}" for task in done.raised.reopened)
    return f"{after}, and {names} can go on." if names else f"{after}."


def _named(
    organization: Organization, history: list[LimitChange], rows: list[reads.SubjectLimit]
) -> list[tuple[LimitChange, Named]]:
    """Each change of a limit with whose it was: a Change by its number, a member by their address."""
    names = {(row.figures.kind, row.subject): Named(row.name) for row in rows}
    subjects = {each.subject for each in history if each.kind == MeterKind.CHANGE}
    for change in Change.objects.of_organization(organization.pk).filter(pk__in=subjects):
        link = reverse("change", args=[change.pk])
        names[MeterKind.CHANGE, str(change.pk)] = Named(f"{change.key} {change.title}", link)
    gone = Named("no longer here")
    return [(each, names.get((each.kind, each.subject), gone)) for each in history]
