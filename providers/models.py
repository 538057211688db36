"""Connector: a tenant's named account at a provider."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from uuid_utils.compat import uuid7

from providers import sealing
from tenants.models import SLUG, Organization
from tenants.scope import TenantModel


class ConnectorKind(models.TextChoices):
    """Which wire a connector speaks."""

    ANTHROPIC = "anthropic", "Anthropic"
    OPENAI = "openai", "OpenAI, or any server that speaks its chat wire"
    OPENROUTER = "openrouter", "OpenRouter"
    GOOGLE = "google", "Google"
    SCRIPTED = "scripted", "a script: offline"


class Connector(TenantModel):
    """One account of one organization. Its key goes in and never comes out at a door (row 4)."""

    tenant_path = "organization"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="connectors")
    name = models.CharField(max_length=63, validators=[SLUG])
    kind = models.CharField(max_length=12, choices=ConnectorKind.choices)
    # Empty: the vendor's own address.
    base_url = models.CharField(max_length=500, blank=True)
    sealed_key = models.TextField(blank=True, editable=False)
    # Extra headers such as anthropic-workspace-id: never secrets, so they may be shown.
    headers = models.JSONField(default=dict, blank=True)
    # What the kind needs beside an address and a key: routing of OpenRouter, scenarios of a script, models of a server.
    config = models.JSONField(default=dict, blank=True)
    # Who stands in when this account does not answer, and how often it is asked first (providers/plans.py).
    fallback = models.JSONField(default=dict, blank=True)
    enabled = models.BooleanField(default=True)
    # Grows with every saved change: processes rebuild their clients when it differs.
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"], name="connector_name_once_per_organization"
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=ConnectorKind.values), name="connector_kind_is_a_known_one"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"

    @property
    def has_key(self) -> bool:
        return bool(self.sealed_key)

    def seal_key(self, plain: str) -> None:
        """Take a key in; an empty text removes it. The caller saves."""
        self.sealed_key = sealing.seal(plain, **_sealing_keys())

    def open_key(self) -> str:
        """The key in plain, for building a client and for nothing else."""
        return sealing.unseal(self.sealed_key, **_sealing_keys())


def _sealing_keys() -> dict[str, Any]:
    return {"keys": settings.PLANE.connector_keys, "secret_key": settings.PLANE.secret_key}
