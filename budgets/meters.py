"""Meters: usage counters with a limit and a period."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class MeterKind(StrEnum):
    """What a meter counts for. The order is the order in which a refusal is named (row 22)."""

    CHANGE = "change"  # for life
    PROJECT = "project"  # UTC month
    USER = "user"  # UTC month, in one organization
    ORGANIZATION = "organization"  # UTC month
    DAILY_CALLS = "daily_calls"  # UTC day
    CLASSIFIER_CALLS = "classifier_calls"  # UTC day
    EMBEDDINGS = "embeddings"  # UTC day
    PROVIDER = "provider"  # a connector's account, UTC month
    PLATFORM = "platform"  # the whole deployment, UTC month; its organization is None


@dataclass(frozen=True, slots=True, order=True)
class MeterKey:
    """The identity of a meter. The period is part of it, so nothing is ever reset."""

    kind: MeterKind
    organization_id: UUID | None
    subject: str
    period: str  # "", "2026-11" or "2026-11-30", UTC
