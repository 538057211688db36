"""REST: allowances of a project (one allowance for several model calls), usage reported to them, and questions."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from budgets.allowances import (
    STATES,
    Report,
    allowance_for,
    allowances_of,
    cancel_allowance,
    open_allowance,
    report_usage,
)
from budgets.model_task_views import snapshot
from budgets.model_tasks import TaskLimits
from budgets.models import ModelTask
from tasks.api import inputs, outputs
from tasks.helper_questions import WantedQuestion, question_for, request_question
from tenants.access import project_for, require_role
from tenants.errors import InvalidInput
from tenants.idempotency import IdempotentPosts
from tenants.models import Role, User


class AllowanceList(IdempotentPosts, ListAPIView[ModelTask]):
    serializer_class = outputs.AllowanceOutput
    queryset = ModelTask.objects.none()

    def get_queryset(self) -> QuerySet[ModelTask]:
        project = project_for(self.request.user, self.kwargs["project_id"], at_least=Role.VIEWER)
        state = self.request.query_params.get("state", "")
        if state and state not in STATES:
            raise InvalidInput("state", "is no state", f"Use one of {', '.join(STATES)}.")
        return allowances_of(project, state, now=timezone.now())

    @extend_schema(
        operation_id="allowances_list",
        tags=["allowances"],
        parameters=[OpenApiParameter("state", str, enum=STATES, description="only in this state")],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="allowances_create",
        tags=["allowances"],
        request=inputs.AllowanceInput,
        responses={201: outputs.AllowanceDetailOutput},
        description="Opens one allowance of calls, tokens, money and time for several model calls.",
    )
    def post(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.MEMBER)
        wanted = inputs.AllowanceInput.parse(request)
        limits = TaskLimits(
            calls_max=wanted.get("calls_max"),
            tokens_max=wanted.get("tokens_max"),
            cost_max=wanted.get("cost_max_usd"),
            output_tokens_per_call_max=wanted.get("output_tokens_per_call_max"),
            deadline=wanted.get("deadline"),
        )
        made = open_allowance(project, limits, by=_person(request), now=timezone.now())
        return Response(_detail(made), status=201)


class AllowanceDetail(APIView):
    @extend_schema(
        operation_id="allowances_retrieve", tags=["allowances"], responses=outputs.AllowanceDetailOutput
    )
    def get(self, request: Request, allowance_id: UUID) -> Response:
        return Response(_detail(allowance_for(request.user, allowance_id)))


class AllowanceCancel(IdempotentPosts):
    @extend_schema(
        operation_id="allowances_cancel",
        tags=["allowances"],
        request=None,
        responses=outputs.AllowanceDetailOutput,
        description="Nothing more is asked under it; what is on its way still settles on it.",
    )
    def post(self, request: Request, allowance_id: UUID) -> Response:
        cancel_allowance(_writable(request, allowance_id), by=_person(request), now=timezone.now())
        return Response(_detail(allowance_for(request.user, allowance_id)))


class AllowanceReports(IdempotentPosts):
    @extend_schema(
        operation_id="allowances_report",
        tags=["allowances"],
        request=inputs.ReportInput,
        responses=outputs.AllowanceDetailOutput,
        description="Counts usage that Remit did not make. It takes no call; an explicit zero is known.",
    )
    def post(self, request: Request, allowance_id: UUID) -> Response:
        allowance = _writable(request, allowance_id)
        said = inputs.ReportInput.parse(request)
        report = Report(id=said["id"], tokens=said["usage"], cost=said["cost_usd"], model=said["model"])
        report_usage(allowance, report, now=timezone.now())
        return Response(_detail(allowance_for(request.user, allowance_id)))


class AllowanceQuestions(IdempotentPosts):
    @extend_schema(
        operation_id="questions_create",
        tags=["allowances"],
        request=inputs.QuestionInput,
        responses={202: outputs.QuestionOutput},
        description="Asks a helper: a worker does it, once. Read the question until it is answered or failed. The "
        "project, its month and whoever asks pay; both their limits and the allowance must have room.",
    )
    def post(self, request: Request, allowance_id: UUID) -> Response:
        allowance = _writable(request, allowance_id)
        wanted = WantedQuestion(**inputs.QuestionInput.parse(request))
        made = request_question(allowance, wanted, by=_person(request), now=timezone.now())
        return Response(outputs.QuestionOutput(made).data, status=202)


class QuestionDetail(APIView):
    @extend_schema(operation_id="questions_retrieve", tags=["allowances"], responses=outputs.QuestionOutput)
    def get(self, request: Request, question_id: UUID) -> Response:
        return Response(outputs.QuestionOutput(question_for(request.user, question_id)).data)


def _writable(request: Request, allowance_id: UUID) -> ModelTask:
    found = allowance_for(request.user, allowance_id)
    require_role(request.user, found.organization_id, Role.MEMBER)
    return found


def _person(request: Request) -> User:
    return cast(User, request.user)


def _detail(allowance: ModelTask) -> Any:
    shown = outputs.AllowanceDetailOutput(allowance, context={"snapshot": snapshot(allowance.pk)})
    return shown.data
