"""What goes over REST: output as it is shown; input with known fields only, each complaint naming its field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request

from tenants.caps import CAPS, caps_of
from tenants.errors import InvalidInput
from tenants.invitations import state_of
from tenants.models import (
    ApiToken,
    AuditEntry,
    Invitation,
    Membership,
    Organization,
    Project,
    Promotion,
    Role,
    Scope,
)
from tenants.publish_rules import (
    FILE_KIB_MAX,
    FILES_MAX,
    PATTERN_CHARACTERS_MAX,
    PATTERN_NAME_CHARACTERS_MAX,
)

ROLE_WORDS = tuple(Role.labels)


class Shape(serializers.Serializer[Any]):
    """A serializer for input: a field it does not know is refused, so that a typing error does not pass for a no."""

    @classmethod
    def parse(cls, request: Request) -> dict[str, Any]:
        """The checked body. Raises DRF's ValidationError or InvalidInput."""
        shape = cls(data=request.data)
        if isinstance(request.data, Mapping):
            refuse_unknown(request.data, shape.fields)
        shape.is_valid(raise_exception=True)
        return dict(shape.validated_data)


class RoleField(serializers.ChoiceField):
    """A role by its word."""

    def __init__(self, **more: Any) -> None:
        super().__init__(choices=ROLE_WORDS, **more)

    def to_internal_value(self, data: Any) -> Any:
        return Role.of(super().to_internal_value(data))

    def to_representation(self, value: Any) -> str:
        return str(Role(value).label)


class OrganizationOutput(serializers.ModelSerializer[Organization]):
    role = serializers.SerializerMethodField(help_text="what you are there")

    class Meta:
        model = Organization
        fields = ["id", "slug", "name", "role", "created_at"]

    def get_role(self, organization: Organization) -> str:
        """From `roles` in the context: one query for a whole list."""
        return str(Role(self.context["roles"][organization.pk]).label)


@extend_schema_serializer(
    examples=[OpenApiExample("A team", request_only=True, value={"name": "Payments", "slug": "payments"})]
)
class OrganizationInput(Shape):
    name = serializers.CharField(max_length=200)
    slug = serializers.CharField(max_length=63)


class OrganizationName(Shape):
    name = serializers.CharField(max_length=200)


class MemberOutput(serializers.ModelSerializer[Membership]):
    user = serializers.UUIDField(source="user_id")
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.get_full_name")
    active = serializers.BooleanField(source="user.is_active")
    role = RoleField()

    class Meta:
        model = Membership
        fields = ["user", "email", "name", "active", "role", "created_at"]


class MemberRole(Shape):
    role = RoleField()


class InvitationOutput(serializers.ModelSerializer[Invitation]):
    role = RoleField()
    state = serializers.SerializerMethodField()
    invited_by = serializers.EmailField(source="invited_by.email", allow_null=True, default=None)

    class Meta:
        model = Invitation
        fields = ["id", "email", "role", "state", "invited_by", "sent_at", "expires_at", "accepted_at"]

    def get_state(self, invitation: Invitation) -> str:
        return state_of(invitation, now=timezone.now())


class InvitationWithLink(InvitationOutput):
    link = serializers.CharField(help_text="shown this once; null in a replay", allow_null=True)

    class Meta(InvitationOutput.Meta):
        fields = [*InvitationOutput.Meta.fields, "link"]


@extend_schema_serializer(
    examples=[
        OpenApiExample("A member", request_only=True, value={"email": "ana@example.com", "role": "member"})
    ]
)
class InvitationInput(Shape):
    email = serializers.CharField(max_length=254)
    role = RoleField(required=False)


class SecretPatternShape(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=PATTERN_NAME_CHARACTERS_MAX, help_text='such as "an ACME key"')
    pattern = serializers.CharField(
        max_length=PATTERN_CHARACTERS_MAX, help_text="a regular expression without look-around"
    )


class PublishRulesShape(serializers.Serializer[Any]):
    """What agents may publish. Null takes an override back."""

    file_kib_max = serializers.IntegerField(
        min_value=1, max_value=FILE_KIB_MAX, required=False, allow_null=True, help_text="of one file, in KiB"
    )
    files_max = serializers.IntegerField(
        min_value=1, max_value=FILES_MAX, required=False, allow_null=True, help_text="in one ChangeSet"
    )
    secret_patterns = SecretPatternShape(many=True, required=False, allow_null=True)
    secret_exceptions = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        allow_null=True,
        help_text="globs of paths where nobody looks for secrets; * takes / too",
    )

    def to_representation(self, instance: Any) -> Any:
        return dict(instance)


class ProjectOutput(serializers.ModelSerializer[Project]):
    organization = serializers.UUIDField(source="organization_id")
    promotion = serializers.ChoiceField(choices=Promotion.choices)
    caps = serializers.DictField(
        child=serializers.IntegerField(), help_text="only what differs from the defaults"
    )
    caps_in_force = serializers.SerializerMethodField()
    extra_commands = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    approval_commands = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    publish_rules = PublishRulesShape(help_text="only what differs from the defaults")

    class Meta:
        model = Project
        fields = [
            "id",
            "organization",
            "slug",
            "name",
            "description",
            "connector",
            "plan_needs_approval",
            "promotion",
            "trusted",
            "raise_needs_reason",
            "allow_opus",
            "caps",
            "caps_in_force",
            "extra_commands",
            "approval_commands",
            "publish_rules",
            "archived_at",
            "created_at",
        ]

    def get_caps_in_force(self, project: Project) -> dict[str, int]:
        return caps_of(project.caps)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A project whose plans wait for a yes",
            request_only=True,
            value={
                "organization": "0192d3c4-5b6a-7000-8000-000000000001",
                "name": "Ledger",
                "slug": "ledger",
                "plan_needs_approval": True,
            },
        )
    ]
)
class ProjectInput(Shape):
    organization = serializers.UUIDField()
    name = serializers.CharField(max_length=200)
    slug = serializers.CharField(max_length=63)
    description = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    connector = serializers.CharField(required=False, max_length=63)
    plan_needs_approval = serializers.BooleanField(required=False)
    promotion = serializers.ChoiceField(choices=Promotion.choices, required=False)


class ProjectSettings(Shape):
    """For the schema; `change_project` checks each field itself."""

    name = serializers.CharField(required=False, max_length=200)
    description = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    connector = serializers.CharField(required=False, max_length=63)
    plan_needs_approval = serializers.BooleanField(required=False)
    promotion = serializers.ChoiceField(choices=Promotion.choices, required=False)
    raise_needs_reason = serializers.BooleanField(required=False)
    allow_opus = serializers.BooleanField(
        required=False, help_text="the deployment's ALLOW_OPUS must be true as well"
    )
    trusted = serializers.BooleanField(required=False, help_text="owners only")
    caps = serializers.DictField(
        child=serializers.IntegerField(min_value=1, allow_null=True),
        required=False,
        help_text=", ".join(CAPS),
    )
    extra_commands = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), required=False, help_text="owners only"
    )
    approval_commands = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()),
        required=False,
        help_text="owners only; an attempt pauses before each until an admin decides; a last ... covers the rest",
    )
    publish_rules = PublishRulesShape(required=False, help_text="owners only")
    archived = serializers.BooleanField(required=False)


class TokenOutput(serializers.ModelSerializer[ApiToken]):
    user = serializers.EmailField(source="user.email")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=Scope.choices))

    class Meta:
        model = ApiToken
        fields = [
            "id",
            "name",
            "prefix",
            "user",
            "scopes",
            "created_at",
            "last_used_at",
            "expires_at",
            "revoked_at",
        ]


class TokenWithText(TokenOutput):
    token = serializers.CharField(help_text="shown this once; null in a replay", allow_null=True)

    class Meta(TokenOutput.Meta):
        fields = [*TokenOutput.Meta.fields, "token"]


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "For a build server",
            request_only=True,
            value={
                "name": "build server",
                "scopes": ["read", "changes:write"],
                "expires_at": "2030-01-01T00:00:00Z",
            },
        )
    ]
)
class TokenInput(Shape):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.choices), max_length=len(Scope)
    )
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class AuditOutput(serializers.ModelSerializer[AuditEntry]):
    actor = serializers.EmailField(source="actor.email", allow_null=True, default=None)

    class Meta:
        model = AuditEntry
        fields = [
            "id",
            "at",
            "actor",
            "action",
            "subject",
            "before",
            "after",
            "reason",
            "request_id",
            "remote",
        ]


def body_of(request: Request) -> Mapping[str, Any]:
    """The body as an object, for services that check each field themselves."""
    if not isinstance(request.data, Mapping):
        raise InvalidInput("", "the body is no JSON object", "Send an object of settings.")
    return request.data


def refuse_unknown(data: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in data:
        if name not in known:
            raise InvalidInput(
                str(name)[:60], "is no field here", f"Known are: {', '.join(known)}.", code="unknown_field"
            )
