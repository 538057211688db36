"""REST: Preflights of a project: start one, read what it finds while it works, end it."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tasks.api import inputs, outputs
from tasks.models import Preflight
from tasks.preflights import (
    cancel_preflight,
    preflight_for,
    preflights_of,
    request_preflight,
    suggested_commands,
)
from tenants.access import project_for, require_role
from tenants.idempotency import IdempotentPosts
from tenants.models import Role, Scope, User


class PreflightList(IdempotentPosts, ListAPIView[Preflight]):
    serializer_class = outputs.PreflightOutput
    write_scope = Scope.ADMIN
    queryset = Preflight.objects.none()
    filterset_fields = ("state",)

    def get_queryset(self) -> QuerySet[Preflight]:
        return preflights_of(project_for(self.request.user, self.kwargs["project_id"], at_least=Role.VIEWER))

    @extend_schema(operation_id="preflights_list", tags=["projects"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="preflights_create",
        tags=["projects"],
        request=inputs.PreflightInput,
        responses={201: outputs.PreflightOutput},
        description="Tries out, before any money is spent, whether attempts can begin. One at a time per project.",
    )
    def post(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.ADMIN)
        wanted = inputs.PreflightInput.parse(request)
        commands = wanted["commands"]
        made = request_preflight(
            project,
            suggested_commands(project) if commands is None else commands,
            prepares=wanted["prepare"],
            by=cast(User, request.user),
            now=timezone.now(),
        )
        return Response(outputs.PreflightOutput(made).data, status=201)


class PreflightDetail(APIView):
    @extend_schema(operation_id="preflights_retrieve", tags=["projects"], responses=outputs.PreflightOutput)
    def get(self, request: Request, preflight_id: UUID) -> Response:
        return Response(outputs.PreflightOutput(preflight_for(request.user, preflight_id)).data)


class PreflightCancel(IdempotentPosts):
    write_scope = Scope.ADMIN

    @extend_schema(
        operation_id="preflights_cancel",
        tags=["projects"],
        request=None,
        responses=outputs.PreflightOutput,
        description="Ends it; what it runs is killed.",
    )
    def post(self, request: Request, preflight_id: UUID) -> Response:
        found = preflight_for(request.user, preflight_id)
        require_role(request.user, found.project.organization_id, Role.ADMIN)
        cancel_preflight(found, by=cast(User, request.user), now=timezone.now())
        return Response(outputs.PreflightOutput(preflight_for(request.user, preflight_id)).data)
