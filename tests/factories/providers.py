"""One `make_` function for each row of providers."""

from __future__ import annotations

from typing import Any

from providers.models import Connector
from tenants.models import Organization
from tests.factories.tenants import make_organization


def make_connector(organization: Organization | None = None, *, key: str = "", **given: Any) -> Connector:
    """A scripted connector named main that answers "ok"; `steps` gives it another script."""
    steps = given.pop("steps", [{"text": "ok"}])
    row = Connector(
        **{
            "organization": organization or make_organization(),
            "name": "main",
            "kind": "scripted",
            "config": {"inline": [{"steps": steps}]},
            **given,
        }
    )
    row.seal_key(key)
    row.save()
    return row
