"""REST: the ledger of an organization as rows, as CSV and as sums; and the release of an unknown charge."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    extend_schema_serializer,
)
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets.keys import MeterKind
from budgets.models import LimitChange, Meter, Reservation, ReservationState
from budgets.money import Usd, exact
from budgets.reports import By, Narrow, Spend, csv_rows, narrow, spend_by
from budgets.reservations import release_unknown
from tenants.access import organization_for, require_role, role_of
from tenants.errors import InvalidInput, NotVisible
from tenants.idempotency import IdempotentPosts
from tenants.models import Organization, Role, Scope, User
from tenants.shapes import Shape

DAYS_MAX = 400
DAY_MIN, DAY_MAX = date(2000, 1, 1), date(2999, 12, 31)
ID_MAX = 2**63 - 1
CSV_ROWS_AT_ONCE = 2_000
CSV_TYPE = "text/csv; charset=utf-8"
SEE_ALL = (Role.ADMIN, Role.OWNER)
BY_WORDS = {by.value.removesuffix("_id"): by for by in By}


@extend_schema_field(OpenApiTypes.STR)
class UsdText(serializers.Field[Usd, Any, str, Any]):
    """US dollars as text with six decimals; null is unknown or unlimited, never zero."""

    def __init__(self, **more: Any) -> None:
        super().__init__(read_only=True, **more)

    def to_representation(self, value: Usd) -> str:
        return exact(value)


class MeterOutput(serializers.Serializer[Meter]):
    id = serializers.IntegerField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    period = serializers.CharField(help_text="A UTC month or day; empty: for life.")
    limit_usd = UsdText(allow_null=True, help_text="null: unlimited; 0: nothing")
    spent_usd = UsdText()
    held_usd = UsdText()
    limit_calls = serializers.IntegerField(allow_null=True)
    spent_calls = serializers.IntegerField()
    held_calls = serializers.IntegerField()


class CallOutput(serializers.Serializer[Reservation]):
    """One physical call, as the ledger holds it."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(choices=ReservationState.choices)
    purpose = serializers.CharField()
    tier = serializers.CharField()
    model = serializers.CharField()
    connector = serializers.CharField()
    project = serializers.UUIDField(source="project_id", allow_null=True)
    user = serializers.UUIDField(source="user_id", allow_null=True)
    change = serializers.UUIDField(source="change_id", allow_null=True)
    task = serializers.UUIDField(source="task_id", allow_null=True)
    run = serializers.UUIDField(source="run_id", allow_null=True)
    held = UsdText(source="hold_usd", help_text="The worst case that was held.")
    charged = UsdText(source="usd", allow_null=True, help_text="What the meters count; null while held.")
    cost = UsdText(allow_null=True, help_text="What it is known to have cost; null: unknown.")
    usage = serializers.JSONField(allow_null=True)
    rates = serializers.JSONField(allow_null=True, help_text="The rates of that day, stored with the call.")
    overrun = serializers.BooleanField()
    held_at = serializers.DateTimeField(source="created_at")
    closed_at = serializers.DateTimeField(allow_null=True)


class LimitChangeOutput(serializers.Serializer[LimitChange]):
    """A limit that was set: who, when, from, to and why. `before` and `after` are micro-dollars or calls."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    unit = serializers.CharField()
    before = serializers.IntegerField(allow_null=True)
    after = serializers.IntegerField(allow_null=True)
    by = serializers.EmailField(source="by.email", allow_null=True, default=None)
    reason = serializers.CharField()
    expires_at = serializers.DateTimeField(allow_null=True)
    at = serializers.DateTimeField()


class SpendOutput(serializers.Serializer[Spend]):
    known = UsdText(help_text="A subtotal: unknown calls are not in it.")
    unknown_calls = serializers.IntegerField()
    unknown_at_most = UsdText(help_text="What those cost at most; the meters count it.")
    unpriced_calls = serializers.IntegerField(
        help_text="Of the unknown ones, those that no price is known for: they are not even in unknown_at_most."
    )
    known_calls = serializers.IntegerField(help_text="Coverage: calls whose cost is known, of `calls`.")
    held = UsdText()
    calls = serializers.IntegerField()


class SpendGroupOutput(SpendOutput):
    group = serializers.ListField(child=serializers.CharField(), help_text="One value per name of `by`.")


class SpendAnswer(serializers.Serializer[Any]):
    total = SpendOutput()
    groups = SpendGroupOutput(many=True)


FILTERS = [
    OpenApiParameter("since", date, description="first UTC day"),
    OpenApiParameter("until", date, description="last UTC day"),
    OpenApiParameter("project", UUID),
    OpenApiParameter("user", UUID),
    OpenApiParameter("change", UUID),
    OpenApiParameter("task", UUID),
    OpenApiParameter("run", UUID),
    OpenApiParameter("purpose", str),
    OpenApiParameter("tier", str),
    OpenApiParameter("model", str),
    OpenApiParameter("state", str, enum=ReservationState.values),
    OpenApiParameter("meter", int),
]


class OfOrganization(APIView):
    """Money of one organization: an admin sees all of it, everybody else what they paid for."""

    organization: Organization

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.organization = organization_for(request.user, kwargs["organization_id"], at_least=Role.VIEWER)

    def calls(self) -> QuerySet[Reservation]:
        filters = read_filters(self.organization, self.request.query_params)
        return narrow(calls_for(self.request.user, self.organization), filters)


class MeterList(OfOrganization, ListAPIView[Meter]):
    serializer_class = MeterOutput
    queryset = Meter.objects.none()

    def get_queryset(self) -> QuerySet[Meter]:
        wanted = {name: _text(self.request.query_params, name) for name in ("kind", "subject", "period")}
        equal = {name: value for name, value in wanted.items() if value}
        meters = Meter.objects.of_organization(self.organization.pk).filter(**equal)
        if role_of(self.request.user, self.organization.pk) in SEE_ALL:
            return meters
        return meters.exclude(~Q(subject=str(self.request.user.pk)), kind=MeterKind.USER)

    @extend_schema(
        operation_id="meters_list",
        tags=["budgets"],
        parameters=[OpenApiParameter(name, str) for name in ("kind", "subject", "period")],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class Ledger(OfOrganization, ListAPIView[Reservation]):
    serializer_class = CallOutput
    queryset = Reservation.objects.none()

    def get_queryset(self) -> QuerySet[Reservation]:
        return self.calls()

    @extend_schema(operation_id="ledger_list", tags=["budgets"], parameters=FILTERS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Not on the bill", request_only=True, value={"reason": "The provider's bill has no such call."}
        )
    ]
)
class ReleaseInput(Shape):
    reason = serializers.CharField(help_text="Why this call was not billed; it is kept.")


class Release(OfOrganization, IdempotentPosts):
    """Take an unknown charge off the meters: a person knows that the provider did not bill it."""

    write_scope = Scope.BUDGETS_WRITE

    @extend_schema(
        operation_id="ledger_release", tags=["budgets"], request=ReleaseInput, responses=CallOutput
    )
    def post(self, request: Request, organization_id: UUID, call_id: int) -> Response:
        call = unknown_charge(request.user, self.organization, call_id)
        reason = ReleaseInput.parse(request)["reason"]
        release_unknown(call.pk, by=cast(User, request.user), reason=reason)
        call.refresh_from_db()
        return Response(CallOutput(call).data)


class LedgerCsv(OfOrganization):
    @extend_schema(
        operation_id="ledger_csv",
        tags=["budgets"],
        parameters=FILTERS,
        responses={(200, "text/csv"): OpenApiTypes.STR},
        description="The same rows for a spreadsheet; money is whole micro-dollars, unknown is empty.",
    )
    def get(self, request: Request, organization_id: UUID) -> StreamingHttpResponse:
        return csv_answer(request._request, self.calls())


class SpendSums(OfOrganization):
    @extend_schema(
        operation_id="spend_retrieve",
        tags=["budgets"],
        parameters=[
            OpenApiParameter("by", str, description="comma separated: " + ", ".join(BY_WORDS)),
            *FILTERS,
        ],
        responses=SpendAnswer,
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        calls = self.calls()
        groups = [_by(word) for word in request.query_params.get("by", "day").split(",")]
        found = spend_by(calls, *groups)
        answer = {
            "total": SpendOutput(sum(found.values(), Spend())).data,  # one pass, and the parts are the whole
            "groups": [
                {"group": ["" if part is None else str(part) for part in key], **SpendOutput(spend).data}
                for key, spend in found.items()
            ],
        }
        return Response(answer)


class LimitChanges(OfOrganization, ListAPIView[LimitChange]):
    serializer_class = LimitChangeOutput
    queryset = LimitChange.objects.none()
    filterset_fields = ("kind", "subject")

    def get_queryset(self) -> QuerySet[LimitChange]:
        require_role(self.request.user, self.organization.pk, Role.ADMIN)
        return LimitChange.objects.of_organization(self.organization.pk).select_related("by")

    @extend_schema(operation_id="limit_changes_list", tags=["budgets"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


def calls_for(user: Any, organization: Organization) -> QuerySet[Reservation]:
    """The calls of an organization that a person may see: an admin all, everybody else those on their own budget."""
    return calls_of_role(user, organization, role_of(user, organization.pk))


def calls_of_role(user: Any, organization: Organization, role: Role | None) -> QuerySet[Reservation]:
    """As `calls_for`, for whoever has looked up the person's role there."""
    calls: QuerySet[Reservation] = Reservation.objects.of_organization(organization.pk)
    return calls if role in SEE_ALL else calls.filter(user_id=user.pk)


def unknown_charge(user: Any, organization: Organization, call_id: int) -> Reservation:
    """The call of an address, for an admin. Raises `NotVisible`, `RoleTooLow`."""
    call = Reservation.objects.of_organization(organization.pk).filter(pk=min(call_id, ID_MAX)).first()
    if call is None:
        raise NotVisible("call")
    require_role(user, organization.pk, Role.ADMIN)
    found: Reservation = call
    return found


def read_filters(organization: Organization, query: Any) -> Narrow:
    """The filters of an address. Raises `InvalidInput` that names the one that does not fit."""
    since, until = _day(query, "since"), _day(query, "until")
    if since and until and not timedelta(0) <= until - since <= timedelta(days=DAYS_MAX):
        raise InvalidInput("until", "does not fit since", f"Ask for 1 to {DAYS_MAX} days.")
    state = query.get("state", "")
    if state and state not in ReservationState.values:
        raise InvalidInput("state", "is no state", f"Use one of {', '.join(ReservationState.values)}.")
    return Narrow(
        meter_id=_meter(organization, query.get("meter")),
        state=state,
        project_id=_id(query, "project"),
        user_id=_id(query, "user"),
        change_id=_id(query, "change"),
        task_id=_id(query, "task"),
        run_id=_id(query, "run"),
        purpose=_text(query, "purpose"),
        tier=_text(query, "tier"),
        model=_text(query, "model"),
        since=_midnight(since),
        until=_midnight(until + timedelta(days=1)) if until else None,
    )


def csv_answer(request: HttpRequest, calls: QuerySet[Reservation]) -> StreamingHttpResponse:
    """The ledger as a download, written while it is read."""
    lines = _csv_lines(calls)
    # Under ASGI a plain generator would be read to its end before the first byte leaves.
    content = _portions(lines) if isinstance(request, ASGIRequest) else lines
    answer = StreamingHttpResponse(content, content_type=CSV_TYPE)
    answer["Content-Disposition"] = "attachment; filename=ledger.csv"
    return answer


def _csv_lines(calls: QuerySet[Reservation]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    # No cell shows these, and to read their JSON took most of the time of a row.
    rows = calls.defer("meters", "usage", "rates")
    for row in csv_rows(rows.iterator(chunk_size=CSV_ROWS_AT_ONCE)):
        yield writer.writerow(row)


async def _portions(lines: Iterator[str]) -> AsyncIterator[str]:
    take = sync_to_async(lambda: "".join(islice(lines, CSV_ROWS_AT_ONCE)))
    while portion := await take():
        yield portion


class _Echo:
    """A file that hands back what is written to it."""

    def write(self, text: str) -> str:
        return text


def _by(word: str) -> By:
    found = BY_WORDS.get(word.strip())
    if found is None:
        raise InvalidInput("by", f"{word[:40]!r} is no group", f"Use {', '.join(BY_WORDS)}.")
    return found


def _meter(organization: Organization, said: str | None) -> int | None:
    if not said:
        return None
    number = int(said) if said.isascii() and said.isdecimal() and len(said) <= 18 else 0
    if not Meter.objects.of_organization(organization.pk).filter(pk=number).exists():
        raise NotVisible("meter")
    return number


def _id(query: Any, name: str) -> UUID | None:
    said = query.get(name)
    try:
        return UUID(said) if said else None
    except ValueError:
        raise InvalidInput(name, "is no id", "Use the id as the API gives it.") from None


def _text(query: Any, name: str) -> str:
    return str(query.get(name, ""))[:100].replace("\0", "")


def _day(query: Any, name: str) -> date | None:
    """Not at the ends of the calendar: the days around it are counted from it."""
    said = query.get(name)
    try:
        day = date.fromisoformat(said) if said else None
    except ValueError:
        raise InvalidInput(name, "is no day", "Write it like 2026-11-30.") from None
    if day and not DAY_MIN <= day <= DAY_MAX:
        raise InvalidInput(name, "is no day of any call", f"Use a day from {DAY_MIN} to {DAY_MAX}.")
    return day


def _midnight(day: date | None) -> datetime | None:
    return datetime.combine(day, time(), tzinfo=UTC) if day else None


urlpatterns = [
    path("organizations/<uuid:organization_id>/meters", MeterList.as_view()),
    path("organizations/<uuid:organization_id>/ledger", Ledger.as_view()),
    path("organizations/<uuid:organization_id>/ledger.csv", LedgerCsv.as_view()),
    path("organizations/<uuid:organization_id>/ledger/<int:call_id>/release", Release.as_view()),
    path("organizations/<uuid:organization_id>/spend", SpendSums.as_view()),
    path("organizations/<uuid:organization_id>/limit-changes", LimitChanges.as_view()),
]
