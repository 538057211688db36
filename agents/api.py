"""REST: try a connector, and see what came back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.connector_test import Tried, try_connector
from budgets.api import UsdText
from providers.saving import connector_of
from tenants.api import OrganizationScoped
from tenants.idempotency import IdempotentPosts


class TriedOutput(serializers.Serializer[Tried]):
    answered = serializers.BooleanField()
    model = serializers.CharField()
    text = serializers.CharField(help_text="The first characters of the answer.")
    stop = serializers.CharField()
    input_tokens = serializers.IntegerField(allow_null=True, help_text="null: unknown")
    output_tokens = serializers.IntegerField(allow_null=True, help_text="null: unknown")
    cost = UsdText(allow_null=True, help_text="null: unknown; it stays held at its worst case")
    request_id = serializers.CharField()
    end = serializers.CharField(
        help_text="A stable word for why there is no answer; empty when there is one."
    )
    problem = serializers.CharField()


class ConnectorTest(IdempotentPosts, OrganizationScoped):
    """One metered call. A connector that does not answer is an answer of this address: 200 with `answered` false."""

    @extend_schema(operation_id="connectors_test", tags=["connectors"], request=None, responses=TriedOutput)
    def post(self, request: Request, organization_id: UUID, connector_id: UUID) -> Response:
        connector = connector_of(self.organization, connector_id)
        tried = try_connector(connector, by=self.person, now=timezone.now())
        data: dict[str, Any] = dict(TriedOutput(tried).data)
        return Response(data)


urlpatterns = [
    path(
        "organizations/<uuid:organization_id>/connectors/<uuid:connector_id>/test",
        ConnectorTest.as_view(),
        name="connector-test",
    ),
]
