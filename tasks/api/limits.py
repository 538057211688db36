"""REST: the limits of an organization, up or down, with a preview; and what an accepted Change costs."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets.api import FILTERS, calls_for, read_filters
from budgets.keys import MeterKind
from budgets.reports import narrow, total
from tasks import reads
from tasks.api import inputs, outputs
from tasks.api.views import TO_OF_A_PREVIEW, key_of, limit_asked
from tasks.raises import SETTABLE, limit_of_subject, preview_limit, set_budget
from tenants.access import organization_for
from tenants.errors import InvalidInput
from tenants.idempotency import IdempotentPosts
from tenants.models import Organization, Role, Scope, User


class LimitList(IdempotentPosts):
    """Every limit of an organization. For admins: a limit says what others may spend."""

    write_scope = Scope.BUDGETS_WRITE

    @extend_schema(
        operation_id="limits_list", tags=["budgets"], responses=outputs.LimitOutput(many=True), filters=False
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        rows = reads.limits_of(_governed(request, organization_id), now=timezone.now())
        return Response(outputs.LimitOutput(rows, many=True).data)

    @extend_schema(
        operation_id="limits_set",
        tags=["budgets"],
        request=inputs.LimitInput,
        responses={201: outputs.LimitSetOutput},
        description="A raise reopens exactly what the limit had stopped. A limit below what is spent is allowed: "
        "it stops the next call.",
    )
    def post(self, request: Request, organization_id: UUID) -> Response:
        organization = _governed(request, organization_id)
        wanted = inputs.LimitInput.parse(request)
        kind = MeterKind(wanted["meter"])
        done = set_budget(
            limit_of_subject(organization, kind, wanted["subject"]),
            inputs.limit_in(wanted),
            by=cast(User, request.user),
            reason=wanted["reason"],
            key=key_of(request),
            expires_at=wanted["expires_at"],
            now=timezone.now(),
        )
        return Response(outputs.LimitSetOutput(done).data, status=201)


class LimitPreview(APIView):
    @extend_schema(
        operation_id="limits_preview",
        tags=["budgets"],
        parameters=[
            OpenApiParameter("meter", str, enum=[kind.value for kind in SETTABLE], required=True),
            OpenApiParameter("subject", str, description="as in a limit"),
            OpenApiParameter("to", str, required=True, description=TO_OF_A_PREVIEW),
        ],
        responses=outputs.PreviewOutput,
        description="What setting this limit would do; changes nothing.",
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        organization = _governed(request, organization_id)
        kind = _settable(request.query_params.get("meter"))
        whose = limit_of_subject(organization, kind, request.query_params.get("subject", ""))
        found = preview_limit(whose, limit_asked(request, kind), now=timezone.now())
        return Response(outputs.PreviewOutput(found).data)


class AcceptedCost(APIView):
    @extend_schema(
        operation_id="spend_accepted",
        tags=["budgets"],
        parameters=[each for each in FILTERS if each.name in ("since", "until", "project", "user")],
        responses=outputs.AcceptedOutput,
        description="What one promoted Change has cost on average, failures included; all time unless narrowed.",
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        organization = organization_for(request.user, organization_id, at_least=Role.VIEWER)
        filters = read_filters(organization, request.query_params)
        calls = narrow(calls_for(request.user, organization), filters)
        found = reads.accepted_of(
            request.user,
            organization,
            total(calls.filter(change_id__isnull=False)),
            filters,
            all_of_it=reads.sees_all(request.user, organization),
        )
        return Response(outputs.AcceptedOutput(found).data)


def _governed(request: Request, organization_id: UUID) -> Organization:
    return organization_for(request.user, organization_id, at_least=Role.ADMIN)


def _settable(said: str | None) -> MeterKind:
    if said not in [kind.value for kind in SETTABLE]:
        raise InvalidInput("meter", "is no limit that can be set", f"Use {', '.join(SETTABLE)}.")
    return MeterKind(said)
