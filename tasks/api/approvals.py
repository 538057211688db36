"""REST: commands that wait for a person's yes: read them, decide, and say what became of one."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.models import Approval
from tasks import reads
from tasks.api import inputs, outputs
from tasks.api.views import Below, patch_of
from tasks.approvals import ROLE, Asked, approval_for, approvals_of, decide, reconcile
from tenants.access import require_role
from tenants.idempotency import IdempotentPosts
from tenants.models import Scope, User


class ApprovalList(Below):
    serializer_class = outputs.ApprovalOutput
    queryset = Approval.objects.none()
    filterset_fields = ("state",)

    @extend_schema(
        operation_id="changes_approvals", tags=["approvals"], responses=outputs.ApprovalOutput(many=True)
    )
    def get(self, request: Request, change_id: UUID) -> Response:
        return self.page(approvals_of(reads.named_change(request.user, change_id)))


class ApprovalDetail(APIView):
    @extend_schema(operation_id="approvals_retrieve", tags=["approvals"], responses=outputs.ApprovalOutput)
    def get(self, request: Request, approval_id: UUID) -> Response:
        return _answer(request, approval_id)


class ApprovalPatch(APIView):
    @extend_schema(
        operation_id="approvals_patch",
        tags=["approvals"],
        responses={(200, "text/x-diff"): OpenApiTypes.STR},
        description="The attempt's work up to the newest pause, on top of what it started from.",
    )
    def get(self, request: Request, approval_id: UUID) -> HttpResponse:
        return patch_of(approval_for(_person(request), approval_id).approval.continuation.patch_key)


class ApprovalDecision(IdempotentPosts):
    write_scope = Scope.ADMIN

    @extend_schema(
        operation_id="approvals_decide",
        tags=["approvals"],
        request=inputs.DecisionInput,
        responses=outputs.ApprovalOutput,
        description="Stores a yes or a no; nothing is run by it. Whatever does not fit the approval as it is now, or "
        "a second and different decision, is a 409 and changes nothing; the same decision again answers the same.",
    )
    def post(self, request: Request, approval_id: UUID) -> Response:
        asked = _asked(request, approval_id)
        wanted = inputs.DecisionInput.parse(request)
        decide(
            asked,
            approves=wanted["approve"],
            bound=wanted,
            by=_person(request),
            reason=wanted["reason"],
            now=timezone.now(),
        )
        return _answer(request, approval_id)


class ApprovalReconciliation(IdempotentPosts):
    write_scope = Scope.ADMIN

    @extend_schema(
        operation_id="approvals_reconcile",
        tags=["approvals"],
        request=inputs.ReconciliationInput,
        responses=outputs.ApprovalOutput,
        description="Says what became of an approved command whose worker died while it ran. It is never replayed; "
        "the next attempt is told.",
    )
    def post(self, request: Request, approval_id: UUID) -> Response:
        asked = _asked(request, approval_id)
        wanted = inputs.ReconciliationInput.parse(request)
        reconcile(
            asked,
            took_effect=wanted["took_effect"],
            by=_person(request),
            reason=wanted["reason"],
            now=timezone.now(),
        )
        return _answer(request, approval_id)


def _asked(request: Request, approval_id: UUID) -> Asked:
    asked = approval_for(_person(request), approval_id)
    require_role(request.user, asked.approval.organization_id, ROLE)
    return asked


def _answer(request: Request, approval_id: UUID) -> Response:
    shown: Any = outputs.ApprovalOutput(approval_for(_person(request), approval_id).approval).data
    return Response(shown)


def _person(request: Request) -> User:
    return cast(User, request.user)
