"""REST: the connectors of an organization."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from providers.models import Connector
from providers.saving import connector_of, save_connector
from providers.shapes import ConnectorChange, ConnectorInput, ConnectorOutput
from tenants.api import OrganizationScoped
from tenants.idempotency import IdempotentPosts
from tenants.models import Role


class ConnectorList(OrganizationScoped, IdempotentPosts, ListAPIView[Connector]):
    serializer_class = ConnectorOutput
    reader = Role.ADMIN
    queryset = Connector.objects.none()
    filterset_fields = ("kind", "name")

    def get_queryset(self) -> QuerySet[Connector]:
        return Connector.objects.of_organization(self.organization.pk)

    @extend_schema(operation_id="connectors_list", tags=["connectors"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="connectors_create",
        tags=["connectors"],
        request=ConnectorInput,
        responses={201: ConnectorOutput},
    )
    def post(self, request: Request, organization_id: UUID) -> Response:
        organization = self.organization
        wanted = ConnectorInput.parse(request)
        connector = save_connector(organization, **wanted, new=True, by=self.person)
        return Response(ConnectorOutput(connector).data, status=201)


class ConnectorDetail(OrganizationScoped):
    reader = Role.ADMIN

    @extend_schema(operation_id="connectors_retrieve", tags=["connectors"], responses=ConnectorOutput)
    def get(self, request: Request, organization_id: UUID, connector_id: UUID) -> Response:
        return Response(ConnectorOutput(connector_of(self.organization, connector_id)).data)

    @extend_schema(
        operation_id="connectors_update",
        tags=["connectors"],
        request=ConnectorChange,
        responses=ConnectorOutput,
    )
    def patch(self, request: Request, organization_id: UUID, connector_id: UUID) -> Response:
        known = connector_of(self.organization, connector_id)
        kept = {
            "name": known.name,
            "kind": known.kind,
            "base_url": known.base_url,
            "headers": known.headers,
            "config": known.config,
            "fallback": known.fallback,
            "enabled": known.enabled,
        }
        connector = save_connector(
            self.organization, **(kept | ConnectorChange.parse(request)), by=self.person
        )
        return Response(ConnectorOutput(connector).data)


_ORGANIZATION = "organizations/<uuid:organization_id>/"
urlpatterns = [
    path(_ORGANIZATION + "connectors", ConnectorList.as_view(), name="connectors"),
    path(_ORGANIZATION + "connectors/<uuid:connector_id>", ConnectorDetail.as_view(), name="connector"),
]
