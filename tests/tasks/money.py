"""Money of a Change for tests: through the real ledger, never by writing a meter."""

from __future__ import annotations

from uuid import UUID, uuid4

from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.money import Usd
from budgets.reservations import Amount, CallContext, Held, keep, reserve, settle
from providers.messages import Usage
from tasks.funding import payers_for
from tasks.models import Change
from tests.factories.tasks import NOW

ONE_TOKEN = Usage(input_uncached=1, output=1)


def give_budget(change: Change, to: Usd | int | None, *, kind: MeterKind = MeterKind.CHANGE) -> None:
    subjects = {
        MeterKind.CHANGE: change.pk,
        MeterKind.PROJECT: change.project_id,
        MeterKind.USER: change.author_id,
    }
    set_limit(
        organization_id=change.organization_id,
        kind=kind,
        subject=str(subjects.get(kind, change.organization_id)),
        to=to,
        by=None,
        reason="a test",
        key=uuid4().hex,
        now=NOW,
    )


def hold(change: Change, amount: Usd, *, run_id: UUID | None = None, purpose: str = "agent") -> Held:
    """A hold on every meter of the Change, as a call in flight has one."""
    payers = payers_for(change, purpose=purpose, key="unused", now=NOW)
    context = CallContext(
        organization_id=payers.organization_id,
        project_id=payers.project_id,
        user_id=payers.user_id,
        change_id=change.pk,
        task_id=None,
        run_id=run_id,
        purpose=purpose,
        tier="haiku",
        model="claude-haiku-5-5",
        connector=payers.connector,
    )
    held = reserve(
        key=uuid4().hex,
        meters=payers.meters,
        amount=Amount(usd=amount, tokens=10, calls=1),
        context=context,
        owner="a test",
        lease_seconds=600,
    )
    assert isinstance(held, Held), held
    return held


def spend(
    change: Change,
    cost: Usd,
    *,
    run_id: UUID | None = None,
    purpose: str = "agent",
    limit_first: bool = True,
) -> None:
    """Settle a call of that cost. Without `limit_first` its hold was small: a late report above the limit."""
    held = hold(change, cost if limit_first else Usd(1), run_id=run_id, purpose=purpose)
    settle(held.reservation_id, cost=cost, usage=ONE_TOKEN, rates={})


def keep_unknown(change: Change, amount: Usd, *, run_id: UUID | None = None) -> None:
    keep(hold(change, amount, run_id=run_id).reservation_id, reason="a test")
