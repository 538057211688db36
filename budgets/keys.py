"""Which meter: kind, organization, subject, period. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

# The subject of the one platform-wide meter; every other subject is an id or a connector's name.
PLATFORM_SUBJECT = "platform"


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


# The meters that count calls; all others count money. Each has all units, and a limit in any of them.
COUNTS_CALLS = frozenset({MeterKind.DAILY_CALLS, MeterKind.CLASSIFIER_CALLS, MeterKind.EMBEDDINGS})


@dataclass(frozen=True, slots=True, order=True)
class MeterKey:
    """The identity of a meter. The period is part of it, so nothing is ever reset."""

    kind: MeterKind
    organization_id: UUID | None
    subject: str
    period: str  # "", "2026-11" or "2026-11-30", UTC

    @property
    def name(self) -> str:
        """The key as one text: what the ledger looks up in its single round trip."""
        return f"{self.kind}:{self.organization_id or '-'}:{self.subject}:{self.period}"

    @property
    def rule_name(self) -> str:
        """The key without its period: the name of the rule that every new period starts with."""
        return f"{self.kind}:{self.organization_id or '-'}:{self.subject}"
