"""Endpoints, deliveries and hooks as they go over REST. A secret comes out once, where it was made."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request

from budgets.money import NotAnAmount, Usd, exact, parse_usd
from tenants.shapes import Shape
from webhooks.endpoints import DESCRIPTION_CHARACTERS_MAX
from webhooks.hooks import LABEL_CHARACTERS_MAX, NAME_CHARACTERS_MAX
from webhooks.kinds import EVERYTHING, KINDS
from webhooks.models import Attempt, Delivery, Endpoint, HookKind, IncomingDelivery, IncomingHook

KIND_CHOICES = [*KINDS, EVERYTHING]
ONCE = "shown this once; null in a replay"


class KindsField(serializers.ListField):
    """Some of the kinds of events, or `*` for all, also later ones."""

    child = serializers.ChoiceField(choices=KIND_CHOICES)

    def __init__(self, **more: Any) -> None:
        super().__init__(max_length=len(KIND_CHOICES), **more)


class EndpointOutput(serializers.ModelSerializer[Endpoint]):
    organization = serializers.UUIDField(source="organization_id")
    kinds = KindsField()
    off_because = serializers.CharField(help_text="person, gone or failing; empty while it is on")
    previous_secret_until = serializers.DateTimeField(
        source="previous_until", allow_null=True, help_text="until then the secret before signs, too"
    )

    class Meta:
        model = Endpoint
        fields = [
            "id",
            "organization",
            "url",
            "description",
            "kinds",
            "enabled",
            "off_because",
            "off_at",
            "failures",
            "failing_since",
            "succeeded_at",
            "previous_secret_until",
            "created_at",
            "updated_at",
        ]


class EndpointWithSecret(EndpointOutput):
    secret = serializers.CharField(allow_null=True, help_text=ONCE)

    class Meta(EndpointOutput.Meta):
        fields = [*EndpointOutput.Meta.fields, "secret"]


class EndpointChange(Shape):
    """What may change; a field that is not sent stays."""

    url = serializers.CharField(required=False, max_length=500)
    description = serializers.CharField(
        required=False, allow_blank=True, max_length=DESCRIPTION_CHARACTERS_MAX
    )
    kinds = KindsField(required=False)
    enabled = serializers.BooleanField(required=False)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Stops and money",
            request_only=True,
            value={
                "url": "https://hooks.example.com/remit",
                "description": "Tells the team's channel",
                "kinds": ["change.budget_blocked", "change.ready"],
            },
        )
    ]
)
class EndpointInput(EndpointChange):
    url = serializers.CharField(
        max_length=500, help_text="https; private addresses where the deployment allows"
    )
    kinds = KindsField()


class AttemptOutput(serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = [
            "number",
            "started_at",
            "ended_at",
            "status",
            "milliseconds",
            "problem",
            "answer",
            "next_at",
        ]
        extra_kwargs = {
            "ended_at": {"help_text": "null: on its way, or its worker died"},
            "answer": {"help_text": "the first part of what the receiver said: a stranger's text"},
        }


class DeliveryOutput(serializers.ModelSerializer[Delivery]):
    webhook = serializers.UUIDField(source="endpoint_id")
    state = serializers.CharField(help_text="pending, delivered or failed")
    next_at = serializers.SerializerMethodField(help_text="when it is tried next; null when it has ended")

    class Meta:
        model = Delivery
        fields = [
            "id",
            "webhook",
            "message_id",
            "kind",
            "state",
            "tries",
            "problem",
            "next_at",
            "created_at",
            "ended_at",
        ]

    def get_next_at(self, delivery: Delivery) -> str | None:
        pending = delivery.ended_at is None
        return serializers.DateTimeField().to_representation(delivery.not_before) if pending else None


class DeliveryDetailOutput(DeliveryOutput):
    payload = serializers.CharField(help_text="the exact text that is signed and sent")
    attempts = AttemptOutput(many=True)

    class Meta(DeliveryOutput.Meta):
        fields = [*DeliveryOutput.Meta.fields, "payload", "attempts"]


class ResendInput(Shape):
    since = serializers.DateTimeField(
        help_text="all that failed and was written since then, at most 30 days back"
    )


class ResentOutput(serializers.Serializer[Any]):
    resent = serializers.IntegerField()


@extend_schema_field({"type": "string", "pattern": r"^\d{1,7}(\.\d{1,6})?$", "example": "12.50"})
class BudgetField(serializers.Field[Any, Any, Any, Any]):
    """US dollars as text, such as "12.50"; null is no limit of its own."""

    def to_internal_value(self, data: Any) -> Usd:
        try:
            return parse_usd(data)
        except NotAnAmount as error:
            raise serializers.ValidationError(str(error), code="not_an_amount") from None

    def to_representation(self, value: Usd) -> str:
        return exact(value)


class HookOutput(serializers.ModelSerializer[IncomingHook]):
    project = serializers.UUIDField(source="project_id")
    kind = serializers.CharField(help_text="standard or github")
    author = serializers.UUIDField(source="author_id", help_text="whose monthly budget pays")
    budget = BudgetField(allow_null=True, help_text="the limit of each Change that names none itself")
    address = serializers.SerializerMethodField(help_text="where to send to")
    previous_secret_until = serializers.DateTimeField(
        source="previous_until", allow_null=True, help_text="until then the secret before is taken, too"
    )

    class Meta:
        model = IncomingHook
        fields = [
            "id",
            "project",
            "name",
            "kind",
            "label",
            "author",
            "budget",
            "enabled",
            "address",
            "previous_secret_until",
            "used_at",
            "created_at",
        ]

    def get_address(self, hook: IncomingHook) -> str:
        path = reverse("incoming-hook", args=[hook.pk])
        request: Request | None = self.context.get("request")
        return path if request is None else str(request.build_absolute_uri(path))


class HookWithSecret(HookOutput):
    secret = serializers.CharField(allow_null=True, help_text=ONCE)

    class Meta(HookOutput.Meta):
        fields = [*HookOutput.Meta.fields, "secret"]


class HookChange(Shape):
    """What may change; a field that is not sent stays."""

    name = serializers.CharField(required=False, max_length=NAME_CHARACTERS_MAX)
    author = serializers.UUIDField(required=False, help_text="a member's user id")
    label = serializers.CharField(
        required=False, max_length=LABEL_CHARACTERS_MAX, help_text="of GitHub: which label asks for work"
    )  # type: ignore[assignment]  # the hook's own word
    budget = BudgetField(required=False, allow_null=True)
    enabled = serializers.BooleanField(required=False)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Issues of a tracker",
            request_only=True,
            value={"name": "tracker", "kind": "github", "author": "0192d3c4-5b6a-7000-8000-000000000002"},
        )
    ]
)
class HookInput(HookChange):
    name = serializers.CharField(max_length=NAME_CHARACTERS_MAX)
    kind = serializers.ChoiceField(choices=HookKind.choices)
    author = serializers.UUIDField(help_text="a member's user id: whose monthly budget pays")


class ReceivedOutput(serializers.ModelSerializer[IncomingDelivery]):
    change = serializers.UUIDField(source="change_id", allow_null=True)

    class Meta:
        model = IncomingDelivery
        fields = [
            "id",
            "delivery_id",
            "accepted",
            "code",
            "detail",
            "change",
            "repeated",
            "remote",
            "received_at",
        ]
