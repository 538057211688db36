"""Connectors as they go over REST. The key goes in and never comes out."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample, extend_schema_serializer
from rest_framework import serializers

from providers.models import Connector, ConnectorKind
from tenants.shapes import Shape


class ConnectorOutput(serializers.ModelSerializer[Connector]):
    organization = serializers.UUIDField(source="organization_id")
    has_key = serializers.BooleanField(help_text="whether a key is stored; the key itself is never shown")
    headers = serializers.DictField(child=serializers.CharField())
    config = serializers.DictField()
    fallback = serializers.DictField(help_text="who stands in, and how often the account is asked first")

    class Meta:
        model = Connector
        fields = [
            "id",
            "organization",
            "name",
            "kind",
            "base_url",
            "has_key",
            "headers",
            "config",
            "fallback",
            "enabled",
            "created_at",
            "updated_at",
        ]


class ConnectorChange(Shape):
    """What may change; a field that is not sent stays."""

    base_url = serializers.CharField(required=False, allow_blank=True, max_length=500)
    key = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=4_000,
        write_only=True,
        trim_whitespace=False,
        help_text="kept when not sent, removed when empty; needed again when the address changes",
    )
    headers = serializers.DictField(
        required=False, help_text="extra headers; never secrets, they are shown again"
    )
    config = serializers.DictField(required=False)
    fallback = serializers.DictField(
        required=False,
        help_text='such as {"connectors": [{"connector": "spare", "models": {}}], "max_retries": 2, '
        '"retry_transport": false}; {} for none',
    )
    enabled = serializers.BooleanField(required=False)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A server of your own, with its price",
            request_only=True,
            value={
                "name": "house",
                "kind": "openai",
                "base_url": "https://llm.example.org/v1",
                "key": "sk-...",
                "config": {
                    "models": {"claude-haiku-5-5": {"model": "qwen", "thinking": "off"}},
                    "profiles": {
                        "qwen": {
                            "can": ["tools", "streaming", "thinking_off"],
                            "input_tokens": 32000,
                            "output_tokens": 8000,
                        }
                    },
                    "prices": {"qwen": {"input": "0.02", "output": "0.06"}},
                },
            },
        )
    ]
)
class ConnectorInput(ConnectorChange):
    name = serializers.CharField(max_length=63)
    kind = serializers.ChoiceField(choices=ConnectorKind.choices)
