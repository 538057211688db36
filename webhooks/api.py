"""REST: endpoints of an organization with their deliveries, and incoming hooks of a project."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tenants.access import project_for
from tenants.api import OrganizationScoped
from tenants.idempotency import IdempotentPosts
from tenants.models import Project, Role, Scope, User
from webhooks import endpoints, hooks
from webhooks.models import Delivery, DeliveryState, Endpoint, HookKind, IncomingDelivery, IncomingHook
from webhooks.shapes import (
    DeliveryDetailOutput,
    DeliveryOutput,
    EndpointChange,
    EndpointInput,
    EndpointOutput,
    EndpointWithSecret,
    HookChange,
    HookInput,
    HookOutput,
    HookWithSecret,
    ReceivedOutput,
    ResendInput,
    ResentOutput,
)

TAGS = ["webhooks"]


class EndpointList(OrganizationScoped, IdempotentPosts, ListAPIView[Endpoint]):
    serializer_class = EndpointOutput
    reader = Role.ADMIN
    kept_out = ("secret",)
    queryset = Endpoint.objects.none()

    def get_queryset(self) -> QuerySet[Endpoint]:
        return Endpoint.objects.visible_to(self.person).of_organization(self.organization.pk)

    @extend_schema(operation_id="webhooks_list", tags=TAGS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="webhooks_create", tags=TAGS, request=EndpointInput, responses={201: EndpointWithSecret}
    )
    def post(self, request: Request, organization_id: UUID) -> Response:
        organization = self.organization
        wanted = _wanted_endpoint(EndpointInput.parse(request), None)
        endpoint, secret = endpoints.make_endpoint(organization, wanted, by=self.person, now=timezone.now())
        return Response(EndpointOutput(endpoint).data | {"secret": secret}, status=201)


class EndpointScoped(OrganizationScoped):
    """Beneath one endpoint: for admins, also to read, since answers of receivers stand in the log."""

    reader = Role.ADMIN

    @cached_property
    def endpoint(self) -> Endpoint:
        return endpoints.endpoint_of(self.organization, self.kwargs["webhook_id"])


class EndpointDetail(EndpointScoped):
    @extend_schema(operation_id="webhooks_retrieve", tags=TAGS, responses=EndpointOutput)
    def get(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        return Response(EndpointOutput(self.endpoint).data)

    @extend_schema(
        operation_id="webhooks_update", tags=TAGS, request=EndpointChange, responses=EndpointOutput
    )
    def patch(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        known = self.endpoint
        wanted = _wanted_endpoint(EndpointChange.parse(request), known)
        changed = endpoints.change_endpoint(known, wanted, by=self.person, now=timezone.now())
        return Response(EndpointOutput(changed).data)

    @extend_schema(operation_id="webhooks_remove", tags=TAGS, responses={204: None})
    def delete(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        endpoints.remove_endpoint(self.endpoint, by=self.person)
        return Response(status=204)


class EndpointRotation(EndpointScoped, IdempotentPosts):
    kept_out = ("secret",)

    @extend_schema(
        operation_id="webhooks_rotate",
        tags=TAGS,
        request=None,
        responses=EndpointWithSecret,
        description="A new secret. For a day the one before signs each message, too.",
    )
    def post(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        endpoint, secret = endpoints.rotate_secret(self.endpoint, by=self.person, now=timezone.now())
        return Response(EndpointOutput(endpoint).data | {"secret": secret})


class EndpointTest(EndpointScoped, IdempotentPosts):
    @extend_schema(
        operation_id="webhooks_test",
        tags=TAGS,
        request=None,
        responses={202: DeliveryOutput},
        description="Sends an event of the kind webhook.test.",
    )
    def post(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        delivery = endpoints.send_test(self.endpoint, by=self.person, now=timezone.now())
        return Response(DeliveryOutput(delivery).data, status=202)


class EndpointResend(EndpointScoped, IdempotentPosts):
    @extend_schema(
        operation_id="webhooks_resend_failed",
        tags=TAGS,
        request=ResendInput,
        responses={202: ResentOutput},
        description="Queues what failed since then, the oldest first, at most 1,000 at a time.",
    )
    def post(self, request: Request, organization_id: UUID, webhook_id: UUID) -> Response:
        endpoint = self.endpoint
        since = ResendInput.parse(request)["since"]
        count = endpoints.resend_failed(endpoint, since=since, by=self.person, now=timezone.now())
        return Response({"resent": count}, status=202)


class DeliveryList(EndpointScoped, ListAPIView[Delivery]):
    serializer_class = DeliveryOutput
    queryset = Delivery.objects.none()

    def get_queryset(self) -> QuerySet[Delivery]:
        return endpoints.deliveries_of(self.endpoint, state=self.request.query_params.get("state", ""))

    @extend_schema(
        operation_id="webhooks_deliveries_list",
        tags=TAGS,
        parameters=[
            OpenApiParameter("state", str, enum=DeliveryState.values, description="only in this state")
        ],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class DeliveryDetail(EndpointScoped):
    @extend_schema(operation_id="webhooks_deliveries_retrieve", tags=TAGS, responses=DeliveryDetailOutput)
    def get(self, request: Request, organization_id: UUID, webhook_id: UUID, delivery_id: UUID) -> Response:
        return Response(DeliveryDetailOutput(endpoints.delivery_of(self.endpoint, delivery_id)).data)


class DeliveryResend(EndpointScoped, IdempotentPosts):
    @extend_schema(
        operation_id="webhooks_deliveries_resend",
        tags=TAGS,
        request=None,
        responses={202: DeliveryOutput},
        description="The same message under the same id, with fresh tries.",
    )
    def post(self, request: Request, organization_id: UUID, webhook_id: UUID, delivery_id: UUID) -> Response:
        delivery = endpoints.delivery_of(self.endpoint, delivery_id)
        delivery = endpoints.resend(delivery, by=self.person, now=timezone.now())
        return Response(DeliveryOutput(delivery).data, status=202)


class ProjectScoped(APIView):
    """Beneath one project, for its admins."""

    write_scope = Scope.ADMIN

    @cached_property
    def project(self) -> Project:
        return project_for(self.request.user, self.kwargs["project_id"], at_least=Role.ADMIN)

    @property
    def hook(self) -> IncomingHook:
        return hooks.hook_of(self.project, self.kwargs["hook_id"])

    @property
    def person(self) -> User:
        return cast(User, self.request.user)


class HookList(ProjectScoped, IdempotentPosts, ListAPIView[IncomingHook]):
    serializer_class = HookOutput
    kept_out = ("secret",)
    queryset = IncomingHook.objects.none()

    def get_queryset(self) -> QuerySet[IncomingHook]:
        return hooks.hooks_of(self.project)

    @extend_schema(operation_id="hooks_list", tags=TAGS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(operation_id="hooks_create", tags=TAGS, request=HookInput, responses={201: HookWithSecret})
    def post(self, request: Request, project_id: UUID) -> Response:
        project = self.project
        sent = HookInput.parse(request)
        kind = HookKind(sent.pop("kind"))
        hook, secret = hooks.make_hook(project, kind, hooks.WantedHook(**sent), by=self.person)
        return Response(_hook(request, hook) | {"secret": secret}, status=201)


class HookDetail(ProjectScoped):
    @extend_schema(operation_id="hooks_retrieve", tags=TAGS, responses=HookOutput)
    def get(self, request: Request, project_id: UUID, hook_id: UUID) -> Response:
        return Response(_hook(request, self.hook))

    @extend_schema(operation_id="hooks_update", tags=TAGS, request=HookChange, responses=HookOutput)
    def patch(self, request: Request, project_id: UUID, hook_id: UUID) -> Response:
        known = self.hook
        kept = {
            "name": known.name,
            "author": known.author_id,
            "label": known.label,
            "budget": known.budget,
            "enabled": known.enabled,
        }
        wanted = hooks.WantedHook(**(kept | HookChange.parse(request)))
        return Response(_hook(request, hooks.change_hook(known, wanted, by=self.person)))

    @extend_schema(operation_id="hooks_remove", tags=TAGS, responses={204: None})
    def delete(self, request: Request, project_id: UUID, hook_id: UUID) -> Response:
        hooks.remove_hook(self.hook, by=self.person)
        return Response(status=204)


class HookRotation(ProjectScoped, IdempotentPosts):
    kept_out = ("secret",)

    @extend_schema(
        operation_id="hooks_rotate",
        tags=TAGS,
        request=None,
        responses=HookWithSecret,
        description="A new secret. For a day what is signed with the one before is taken, too.",
    )
    def post(self, request: Request, project_id: UUID, hook_id: UUID) -> Response:
        hook, secret = hooks.rotate_hook(self.hook, by=self.person, now=timezone.now())
        return Response(_hook(request, hook) | {"secret": secret})


class ReceivedList(ProjectScoped, ListAPIView[IncomingDelivery]):
    serializer_class = ReceivedOutput
    queryset = IncomingDelivery.objects.none()

    def get_queryset(self) -> QuerySet[IncomingDelivery]:
        return hooks.received_by(self.hook)

    @extend_schema(operation_id="hooks_deliveries_list", tags=TAGS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


def _wanted_endpoint(sent: dict[str, Any], known: Endpoint | None) -> endpoints.WantedEndpoint:
    kept: dict[str, Any] = (
        {}
        if known is None
        else {
            "url": known.url,
            "kinds": known.kinds,
            "description": known.description,
            "enabled": known.enabled,
        }
    )
    said = kept | sent
    return endpoints.WantedEndpoint(**(said | {"kinds": tuple(said["kinds"])}))


def _hook(request: Request, hook: IncomingHook) -> dict[str, Any]:
    return dict(HookOutput(hook, context={"request": request}).data)


_ALL = "organizations/<uuid:organization_id>/webhooks"
_ONE = _ALL + "/<uuid:webhook_id>"
_HOOKS = "projects/<uuid:project_id>/hooks"
_HOOK = _HOOKS + "/<uuid:hook_id>"
urlpatterns = [
    path(_ALL, EndpointList.as_view(), name="webhooks"),
    path(_ONE, EndpointDetail.as_view(), name="webhook"),
    path(_ONE + "/rotate", EndpointRotation.as_view(), name="webhook-rotate"),
    path(_ONE + "/test", EndpointTest.as_view(), name="webhook-test"),
    path(_ONE + "/resend", EndpointResend.as_view(), name="webhook-resend"),
    path(_ONE + "/deliveries", DeliveryList.as_view(), name="webhook-deliveries"),
    path(_ONE + "/deliveries/<uuid:delivery_id>", DeliveryDetail.as_view(), name="webhook-delivery"),
    path(
        _ONE + "/deliveries/<uuid:delivery_id>/resend",
        DeliveryResend.as_view(),
        name="webhook-delivery-resend",
    ),
    path(_HOOKS, HookList.as_view(), name="hooks"),
    path(_HOOK, HookDetail.as_view(), name="hook"),
    path(_HOOK + "/rotate", HookRotation.as_view(), name="hook-rotate"),
    path(_HOOK + "/deliveries", ReceivedList.as_view(), name="hook-deliveries"),
]
