"""Claims: advisory leases of a run on the resources its Task named. They warn; they never block."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from tasks.events import record
from tasks.models import Claim, TaskRun

CLAIM_SECONDS = 120
CLAIM_RENEW_AT_SECONDS = CLAIM_SECONDS // 2
CLAIMS_PER_RUN_MAX = 200


def take_claims(run: TaskRun, resources: Sequence[str], *, now: datetime) -> tuple[str, ...]:
    """Claim the resources and return those that another run holds: told as `claim.contended` (row 220)."""
    wanted = list(dict.fromkeys(resources))[:CLAIMS_PER_RUN_MAX]
    change = run.task.change
    until = now + timedelta(seconds=CLAIM_SECONDS)
    # Its own first, then a look at the others: of two that claim at once, at least the later one sees the other.
    Claim.objects.bulk_create(
        [
            Claim(project_id=change.project_id, run=run, resource=resource, lease_until=until)
            for resource in wanted
        ],
        ignore_conflicts=True,
    )
    others = Claim.objects.filter(
        project_id=change.project_id, resource__in=wanted, lease_until__gt=now
    ).exclude(run=run)
    contended: dict[str, list[str]] = {}
    for resource, holder in others.order_by("resource", "id").values_list("resource", "run_id"):
        contended.setdefault(resource, []).append(str(holder))
    for resource, holders in contended.items():
        record(
            "claim.contended",
            change=change,
            task=run.task,
            run=run,
            data={"resource": resource, "held_by": holders},
            key=f"claim.contended:{run.pk}:{sha256(resource.encode()).hexdigest()}",
            now=now,
        )
    return tuple(contended)


def renew_claims(run: TaskRun, *, now: datetime) -> int:
    """Renew at half-life and not before: only leases with at most 60 s left move (row 221). How many did."""
    half = now + timedelta(seconds=CLAIM_RENEW_AT_SECONDS)
    lapsing = Claim.objects.filter(run=run, lease_until__lte=half)
    return lapsing.update(lease_until=now + timedelta(seconds=CLAIM_SECONDS))


def release_claims(run: TaskRun) -> int:
    """Every end of a run releases its claims (row 222)."""
    deleted, _ = Claim.objects.filter(run=run).delete()
    return deleted
