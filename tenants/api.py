"""REST: organizations, members, invitations, projects, tokens and the audit list."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet
from django.urls import path, reverse
from django.utils import timezone
from django_filters import CharFilter, FilterSet, TypedChoiceFilter
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tenants import invitations, members
from tenants.access import (
    invitation_of,
    member_of,
    organization_for,
    project_for,
    roles_of,
    token_of,
    tokens_for,
)
from tenants.errors import NotVisible, RoleTooLow
from tenants.idempotency import IdempotentPosts
from tenants.models import (
    ApiToken,
    AuditEntry,
    Invitation,
    Membership,
    Organization,
    Project,
    Role,
    Scope,
    User,
)
from tenants.projects import change_project
from tenants.shapes import (
    AuditOutput,
    InvitationInput,
    InvitationOutput,
    InvitationWithLink,
    MemberOutput,
    MemberRole,
    OrganizationInput,
    OrganizationName,
    OrganizationOutput,
    ProjectInput,
    ProjectOutput,
    ProjectSettings,
    TokenInput,
    TokenOutput,
    TokenWithText,
    body_of,
)

# The schema reads a view's type from its rows; this is all of them that nobody may see.
NOBODY = AnonymousUser()


class OrganizationScoped(APIView):
    """A view beneath one organization. Its rows are looked up together with it, never by a bare id (C79, C81)."""

    write_scope = Scope.ADMIN
    reader = Role.VIEWER
    writer = Role.ADMIN

    @cached_property
    def organization(self) -> Organization:
        at_least = self.reader if self.request.method in SAFE_METHODS else self.writer
        return organization_for(self.request.user, self.kwargs["organization_id"], at_least=at_least)

    @property
    def person(self) -> User:
        return cast(User, self.request.user)


class OrganizationList(IdempotentPosts, ListAPIView[Organization]):
    serializer_class = OrganizationOutput
    write_scope = Scope.ADMIN
    queryset = Organization.objects.visible_to(NOBODY)

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "roles": roles_of(cast(User, self.request.user))}

    def get_queryset(self) -> QuerySet[Organization]:
        return Organization.objects.visible_to(self.request.user)

    @extend_schema(operation_id="organizations_list", tags=["organizations"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="organizations_create",
        tags=["organizations"],
        request=OrganizationInput,
        responses={201: OrganizationOutput},
        description="For operators of the deployment, signed in; a token sees one organization and makes none.",
    )
    def post(self, request: Request) -> Response:
        person = cast(User, request.user)
        if not person.is_staff or request.auth is not None:
            raise RoleTooLow("operator")
        organization = members.create_organization(**OrganizationInput.parse(request), owner=person)
        return Response(shown(organization, request), status=201)


class OrganizationDetail(OrganizationScoped):
    @extend_schema(
        operation_id="organizations_retrieve", tags=["organizations"], responses=OrganizationOutput
    )
    def get(self, request: Request, organization_id: UUID) -> Response:
        return Response(shown(self.organization, request))

    @extend_schema(
        operation_id="organizations_update",
        tags=["organizations"],
        request=OrganizationName,
        responses=OrganizationOutput,
    )
    def patch(self, request: Request, organization_id: UUID) -> Response:
        organization = members.rename_organization(
            self.organization, name=OrganizationName.parse(request)["name"], by=self.person
        )
        return Response(shown(organization, request))


class ByRole(FilterSet):  # type: ignore[misc]  # django-filter has no types
    """By the word that everybody reads, not by the number that is stored."""

    role = TypedChoiceFilter(choices=[(role.label, role.label) for role in Role], coerce=Role.of)


class ByAct(FilterSet):  # type: ignore[misc]
    """Who did what, and to what."""

    actor = CharFilter(field_name="actor__email", lookup_expr="iexact", max_length=254)
    action = CharFilter(max_length=60)
    subject = CharFilter(max_length=200)


class MemberList(OrganizationScoped, ListAPIView[Membership]):
    serializer_class = MemberOutput
    queryset = Membership.objects.visible_to(NOBODY)
    filterset_class = ByRole

    def get_queryset(self) -> QuerySet[Membership]:
        return (
            Membership.objects.visible_to(self.person)
            .of_organization(self.organization.pk)
            .select_related("user")
        )

    @extend_schema(operation_id="members_list", tags=["members"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MemberDetail(OrganizationScoped):
    writer = Role.VIEWER  # who may do what to whom, the service says: everybody may leave

    @extend_schema(
        operation_id="members_update", tags=["members"], request=MemberRole, responses=MemberOutput
    )
    def patch(self, request: Request, organization_id: UUID, user_id: UUID) -> Response:
        member = member_of(self.organization, user_id)
        role = MemberRole.parse(request)["role"]
        membership = members.change_role(self.organization, member.user, role, by=self.person)
        return Response(MemberOutput(membership).data)

    @extend_schema(operation_id="members_remove", tags=["members"], responses={204: None})
    def delete(self, request: Request, organization_id: UUID, user_id: UUID) -> Response:
        member = member_of(self.organization, user_id)
        members.remove_member(self.organization, member.user, by=self.person)
        return Response(status=204)


class InvitationList(OrganizationScoped, IdempotentPosts, ListAPIView[Invitation]):
    serializer_class = InvitationOutput
    reader = Role.ADMIN
    kept_out = ("link",)
    queryset = Invitation.objects.visible_to(NOBODY)
    filterset_class = ByRole

    def get_queryset(self) -> QuerySet[Invitation]:
        return (
            Invitation.objects.visible_to(self.person)
            .of_organization(self.organization.pk)
            .select_related("invited_by")
        )

    @extend_schema(operation_id="invitations_list", tags=["members"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="invitations_create",
        tags=["members"],
        request=InvitationInput,
        responses={201: InvitationWithLink},
    )
    def post(self, request: Request, organization_id: UUID) -> Response:
        organization = self.organization
        wanted = InvitationInput.parse(request)
        invitation, plain = invitations.invite(
            organization,
            wanted["email"],
            wanted.get("role", Role.MEMBER),
            by=self.person,
            now=timezone.now(),
        )
        return Response(sent(request, invitation, plain), status=201)


class InvitationDetail(OrganizationScoped):
    @extend_schema(operation_id="invitations_revoke", tags=["members"], responses={204: None})
    def delete(self, request: Request, organization_id: UUID, invitation_id: UUID) -> Response:
        invitation = invitation_of(self.organization, invitation_id)
        invitations.revoke(invitation, by=self.person, now=timezone.now())
        return Response(status=204)


class InvitationRenewal(OrganizationScoped, IdempotentPosts):
    kept_out = ("link",)

    @extend_schema(
        operation_id="invitations_renew",
        tags=["members"],
        request=None,
        responses=InvitationWithLink,
        description="Sends another link; the old one ends.",
    )
    def post(self, request: Request, organization_id: UUID, invitation_id: UUID) -> Response:
        invitation = invitation_of(self.organization, invitation_id)
        plain = invitations.renew(invitation, by=self.person, now=timezone.now())
        invitation.refresh_from_db()
        return Response(sent(request, invitation, plain))


class ProjectList(IdempotentPosts, ListAPIView[Project]):
    serializer_class = ProjectOutput
    write_scope = Scope.ADMIN
    queryset = Project.objects.visible_to(NOBODY)

    def get_queryset(self) -> QuerySet[Project]:
        rows = Project.objects.visible_to(self.request.user)
        asked = self.request.query_params.get("organization")
        if asked is None:
            return rows
        return rows.of_organization(
            organization_for(self.request.user, _uuid(asked), at_least=Role.VIEWER).pk
        )

    @extend_schema(
        operation_id="projects_list",
        tags=["projects"],
        parameters=[OpenApiParameter("organization", UUID, description="only of this one")],
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="projects_create",
        tags=["projects"],
        request=ProjectInput,
        responses={201: ProjectOutput},
    )
    def post(self, request: Request) -> Response:
        wanted = ProjectInput.parse(request)
        organization = organization_for(request.user, wanted.pop("organization"), at_least=Role.ADMIN)
        project = members.create_project(organization, **wanted, by=cast(User, request.user))
        return Response(ProjectOutput(project).data, status=201)


class ProjectDetail(APIView):
    write_scope = Scope.ADMIN

    @extend_schema(operation_id="projects_retrieve", tags=["projects"], responses=ProjectOutput)
    def get(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.VIEWER)
        return Response(ProjectOutput(project).data)

    @extend_schema(
        operation_id="projects_update",
        tags=["projects"],
        request=ProjectSettings,
        responses=ProjectOutput,
    )
    def patch(self, request: Request, project_id: UUID) -> Response:
        project = project_for(request.user, project_id, at_least=Role.ADMIN)
        person = cast(User, request.user)
        project = change_project(project, body_of(request), by=person, now=timezone.now())
        return Response(ProjectOutput(project).data)


class TokenList(OrganizationScoped, IdempotentPosts, ListAPIView[ApiToken]):
    serializer_class = TokenOutput
    writer = Role.VIEWER  # a key for oneself opens nothing that its user cannot open
    kept_out = ("token",)
    queryset = ApiToken.objects.visible_to(NOBODY)

    def get_queryset(self) -> QuerySet[ApiToken]:
        return tokens_for(self.person, self.organization)

    @extend_schema(
        operation_id="tokens_list",
        tags=["tokens"],
        description="Yours; for an admin everybody's.",
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    @extend_schema(
        operation_id="tokens_create",
        tags=["tokens"],
        request=TokenInput,
        responses={201: TokenWithText},
    )
    def post(self, request: Request, organization_id: UUID) -> Response:
        organization = self.organization
        wanted = TokenInput.parse(request)
        token, plain = members.issue_token(
            self.person, organization, **wanted, by=self.person, now=timezone.now()
        )
        return Response(TokenOutput(token).data | {"token": plain}, status=201)


class TokenDetail(OrganizationScoped):
    writer = Role.VIEWER

    @extend_schema(operation_id="tokens_revoke", tags=["tokens"], responses={204: None})
    def delete(self, request: Request, organization_id: UUID, token_id: UUID) -> Response:
        token = token_of(self.person, self.organization, token_id)
        members.revoke_token(token, by=self.person, now=timezone.now())
        return Response(status=204)


class AuditList(OrganizationScoped, ListAPIView[AuditEntry]):
    serializer_class = AuditOutput
    reader = Role.ADMIN
    queryset = AuditEntry.objects.visible_to(NOBODY)
    filterset_class = ByAct

    def get_queryset(self) -> QuerySet[AuditEntry]:
        return (
            AuditEntry.objects.visible_to(self.person)
            .of_organization(self.organization.pk)
            .select_related("actor")
        )

    @extend_schema(operation_id="audit_list", tags=["organizations"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


def shown(organization: Organization, request: Request) -> Any:
    context = {"request": request, "roles": roles_of(cast(User, request.user))}
    return OrganizationOutput(organization, context=context).data


def sent(request: Request, invitation: Invitation, plain: str) -> dict[str, Any]:
    """Send the letter and show the link, which the sender may also hand over by themselves."""
    link = request.build_absolute_uri(reverse("invitation-accept", args=[plain]))
    invitations.send(invitation, link)
    return InvitationOutput(invitation).data | {"link": link}


def _uuid(text: str) -> UUID:
    """An id from a query string; what is none names nothing that is there."""
    try:
        return UUID(text)
    except ValueError:
        raise NotVisible("organization") from None


_ORGANIZATION = "organizations/<uuid:organization_id>"
urlpatterns = [
    path("organizations", OrganizationList.as_view(), name="organizations"),
    path(_ORGANIZATION, OrganizationDetail.as_view(), name="organization"),
    path(_ORGANIZATION + "/members", MemberList.as_view(), name="members"),
    path(_ORGANIZATION + "/members/<uuid:user_id>", MemberDetail.as_view(), name="member"),
    path(_ORGANIZATION + "/invitations", InvitationList.as_view(), name="invitations"),
    path(_ORGANIZATION + "/invitations/<uuid:invitation_id>", InvitationDetail.as_view(), name="invitation"),
    path(
        _ORGANIZATION + "/invitations/<uuid:invitation_id>/renew",
        InvitationRenewal.as_view(),
        name="invitation-renew",
    ),
    path(_ORGANIZATION + "/tokens", TokenList.as_view(), name="tokens"),
    path(_ORGANIZATION + "/tokens/<uuid:token_id>", TokenDetail.as_view(), name="token"),
    path(_ORGANIZATION + "/audit", AuditList.as_view(), name="audit"),
    path("projects", ProjectList.as_view(), name="projects"),
    path("projects/<uuid:project_id>", ProjectDetail.as_view(), name="project"),
]
