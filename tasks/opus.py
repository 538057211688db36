"""Whether the opus tier may use the opus model: the deployment and the project must both allow it (row 77)."""

from __future__ import annotations

from django.conf import settings

from routing.tiers import OpusRule
from tenants.models import Project


def opus_rule(project: Project) -> OpusRule:
    return OpusRule(deployment=settings.PLANE.allow_opus, project=project.allow_opus)
