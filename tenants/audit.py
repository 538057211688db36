"""Who did what: one appended row per act, in the transaction of the act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from tenants.models import AuditEntry, Organization, User
from tenants.origin import current_origin

# Plain JSON; never a secret, never a model's text.
Facts: TypeAlias = Mapping[str, Any]

SUBJECT_CHARACTERS_MAX = 200


def note(
    organization: Organization,
    actor: User | None,
    action: str,
    subject: str,
    *,
    before: Facts | None = None,
    after: Facts | None = None,
    reason: str = "",
) -> AuditEntry:
    """Append one entry. `action` is a fixed word such as `member.role_changed`; actor None is Remit itself."""
    origin = current_origin()
    entry: AuditEntry = AuditEntry.objects.create(
        organization=organization,
        actor=actor,
        action=action,
        subject=subject[:SUBJECT_CHARACTERS_MAX],
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
        reason=reason,
        request_id=origin.request_id,
        remote=origin.remote,
    )
    return entry
