"""ModelTasks: one allowance for several model calls, admitted one physical attempt at a time (rows 148 to 166).

admitted ──settle──▶ settled      charged by its usage, at the dearest rates
   │  ├────────────▶ unknown      no readable usage: the worst case stays charged; a late report corrects it
   │  └─refund─────▶ refunded     never dispatched: the call's slot comes back, too
external                          usage that the host reports, known also when it is zero
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import F

from budgets.errors import ConflictingReport
from budgets.ledger.guard import outside_transactions
from budgets.model_task_rules import (
    AllowanceFacts,
    CallPlan,
    PriceBound,
    exhausted,
    least_limit,
    worst_case_of,
)
from budgets.models import Invocation, ModelTask
from budgets.money import ZERO, Usd
from budgets.prices import cost_of, upper_cost, usage_data, why_unusable
from providers.messages import Usage

__all__ = [
    "Admitted",
    "CallPlan",
    "Exhausted",
    "PriceBound",
    "TaskLimits",
    "abandon_old",
    "admit",
    "cancel_task",
    "keep_unsettled",
    "note_validation",
    "open_task",
    "refund_attempt",
    "report_external",
    "settle_attempt",
]

ABANDONED_AFTER = timedelta(hours=1)
VALIDATIONS = frozenset({"passed", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """Any subset. Nothing at all set means: no task, no accounting (row 148)."""

    calls_max: int | None = None
    tokens_max: int | None = None
    cost_max: Usd | None = None
    output_tokens_per_call_max: int | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """One physical attempt may be dispatched. End it with settle_attempt or refund_attempt."""

    invocation_id: UUID


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Nothing may be dispatched. `dimension`: cancelled, deadline, calls, tokens, cost, or price (unknown).

    `at_least` is what that limit would have to be for this call: calls, tokens, or dollars as text.
    """

    dimension: str
    at_least: str = ""


def open_task(
    organization_id: UUID,
    limits: TaskLimits,
    *,
    now: datetime,
    project_id: UUID | None = None,
    by_id: UUID | None = None,
) -> UUID | None:
    """A new allowance; None when no limit is set at all."""
    if limits == TaskLimits():
        return None
    task = ModelTask.objects.create(
        organization_id=organization_id,
        project_id=project_id,
        by_id=by_id,
        calls_max=limits.calls_max,
        tokens_max=limits.tokens_max,
        cost_max=limits.cost_max,
        output_tokens_per_call_max=limits.output_tokens_per_call_max,
        deadline=limits.deadline,
        created_at=now,
    )
    return UUID(str(task.pk))


def admit(
    task_id: UUID,
    plan: CallPlan,
    *,
    key: str,
    purpose: str,
    phase: str,
    now: datetime,
    logical: str = "",
    parent: str = "",
    connector: str = "",
) -> Admitted | Exhausted:
    """Reserve the worst case of one physical attempt, atomically across workers (row 149).

    Raises `PlanRefused` for a plan that cannot be bounded. `logical` is shared by the retries of one question.
    A second admission under one `key` raises `ConflictingReport`: each attempt needs its own.
    """
    outside_transactions()
    with transaction.atomic():
        task = ModelTask.objects.select_for_update().get(pk=task_id)
        worst = worst_case_of(
            plan, output_per_call_max=task.output_tokens_per_call_max, cost_limited=_in_money(task)
        )
        facts = _facts(task)
        dimension = exhausted(facts, worst, now=now)
        if dimension:
            return Exhausted(dimension, least_limit(facts, worst, dimension))
        if Invocation.objects.filter(task=task, key=key).exists():
            raise ConflictingReport(key)
        _charge(task, calls=1, tokens=worst.tokens, cost=worst.cost or ZERO)
        row = Invocation.objects.create(
            task=task,
            key=key,
            logical=logical or key,
            parent=parent or str(task.pk),
            purpose=purpose,
            phase=phase,
            connector=connector,
            model=plan.model,
            state="admitted",
            held_calls=1,
            held_tokens=worst.tokens,
            held_cost=worst.cost,
            charged_tokens=worst.tokens,
            charged_cost=worst.cost,
            bound=None if plan.price_bound is None else plan.price_bound.as_data(),
            started_at=now,
        )
    return Admitted(UUID(str(row.pk)))


def settle_attempt(
    invocation_id: UUID,
    *,
    usage: Usage | None,
    now: datetime,
    http_status: int | None = None,
    cost: Usd | None = None,
) -> Invocation:
    """The attempt ended. Known usage is charged at the dearest rates and the rest refunded (rows 153, 156).

    `cost` is the exact one where the caller knows it, such as by an account's own price; None: the list's.

    Usage that is absent or all zero keeps the worst case (rows 134, 154). The same report again changes
    nothing; another one raises `ConflictingReport`. A late report corrects an unknown charge (row 164).
    """
    outside_transactions()
    readable = usage is not None and not why_unusable(usage)
    with transaction.atomic():
        row = _locked(invocation_id)
        reported = usage_data(usage) if usage is not None and readable else None
        if row.state == "settled" or (row.state == "unknown" and reported is None):
            if reported is not None and row.usage != reported:
                raise ConflictingReport(row.key)
            return row  # said before, or the second report says less: the first one stands
        if row.state not in ("admitted", "unknown"):
            raise ConflictingReport(row.key)
        row.ended_at = now
        row.http_status = http_status if http_status is not None else row.http_status
        row.state = "settled" if reported is not None else "unknown"
        if usage is not None and readable:
            _settle_by(row, usage, now.date(), known=cost)
        row.save()
    return row


def refund_attempt(invocation_id: UUID, *, now: datetime) -> None:
    """It was never dispatched: everything comes back, the call's slot included (row 155)."""
    outside_transactions()
    with transaction.atomic():
        row = _locked(invocation_id)
        if row.state == "refunded":
            return
        if row.state != "admitted":
            raise ConflictingReport(row.key)
        _charge(row.task, calls=-1, tokens=-row.charged_tokens, cost=ZERO - (row.charged_cost or ZERO))
        row.state, row.ended_at = "refunded", now
        row.charged_tokens, row.charged_cost, row.known_cost = 0, ZERO, ZERO
        row.save()


def report_external(
    task_id: UUID,
    *,
    report_id: str,
    usage: Usage,
    cost: Usd | None,
    purpose: str,
    now: datetime,
    model: str = "",
) -> None:
    """Usage outside the plane that the host reports (row 162). An explicit zero is known. Takes no call's slot."""
    outside_transactions()
    tokens, reported = usage.input + usage.output, usage_data(usage)
    charged = cost if cost is not None else upper_cost(usage.input, usage.output, model, now.date())
    with transaction.atomic():
        task = ModelTask.objects.select_for_update().get(pk=task_id)
        key = f"external:{report_id}"
        earlier = Invocation.objects.filter(task=task, key=key).first()
        if earlier is not None:
            if (earlier.usage, earlier.charged_cost, earlier.model) != (reported, charged, model):
                raise ConflictingReport(key)
            return
        _charge(task, calls=0, tokens=tokens, cost=charged or ZERO)
        Invocation.objects.create(
            task=task,
            key=key,
            logical=key,
            parent=str(task.pk),
            purpose=purpose,
            phase="external",
            model=model,
            state="settled",
            held_calls=0,
            held_tokens=0,
            held_cost=ZERO,
            charged_tokens=tokens,
            charged_cost=charged,
            usage=reported,
            known_cost=charged,
            started_at=now,
            ended_at=now,
        )


def note_validation(invocation_id: UUID, verdict: str) -> None:
    """A response can be received and its output still be rejected (row 174)."""
    assert verdict in VALIDATIONS, verdict
    Invocation.objects.filter(pk=invocation_id).update(output_validation=verdict)


def cancel_task(task_id: UUID, *, now: datetime) -> None:
    """Admits nothing more; attempts in flight still settle on it (rows 164, 165)."""
    ModelTask.objects.filter(pk=task_id, cancelled_at__isnull=True).update(cancelled_at=now)


def keep_unsettled(parent: str, *, now: datetime) -> int:
    """What a lost worker left admitted for its question becomes unknown; what it is charged stays (row 154)."""
    left = Invocation.objects.filter(parent=parent, state="admitted").values_list("pk", flat=True)
    for invocation_id in list(left):
        settle_attempt(invocation_id, usage=None, now=now)
    return len(left)


def abandon_old(now: datetime) -> int:
    """Attempts whose worker never came back become unknown; what they are charged stays."""
    old = Invocation.objects.filter(state="admitted", started_at__lt=now - ABANDONED_AFTER)
    return old.update(state="unknown", ended_at=now)


def _settle_by(row: Invocation, usage: Usage, day: date, *, known: Usd | None) -> None:
    tokens = usage.input + usage.output
    if known is None:
        priced = cost_of(usage, row.model, day)
        known = priced.cost if priced else None
    charged = _upper(row, usage, day)
    before = row.charged_cost
    if charged is None:
        charged = before  # no rate any more: the worst case stays
    elif known is not None:
        charged = max(charged, known)  # row 156, whatever a bound says
    _charge(row.task, calls=0, tokens=tokens - row.charged_tokens, cost=(charged or ZERO) - (before or ZERO))
    row.charged_tokens, row.charged_cost = tokens, charged
    row.usage = usage_data(usage)
    row.known_cost = known


def _upper(row: Invocation, usage: Usage, day: date) -> Usd | None:
    if row.bound is not None:
        rates = PriceBound(Decimal(row.bound["input"]), Decimal(row.bound["output"]))
        return rates.cost(usage.input, usage.output)
    return upper_cost(usage.input, usage.output, row.model, day)


def _charge(task: ModelTask, *, calls: int, tokens: int, cost: Usd) -> None:
    ModelTask.objects.filter(pk=task.pk).update(
        calls=F("calls") + calls,
        charged_tokens=F("charged_tokens") + tokens,
        charged_cost=F("charged_cost") + cost.micro,
    )


def _locked(invocation_id: UUID) -> Invocation:
    """The attempt with its task locked: the task's row first, always."""
    task_id = Invocation.objects.values_list("task_id", flat=True).get(pk=invocation_id)
    ModelTask.objects.select_for_update().get(pk=task_id)
    row: Invocation = Invocation.objects.select_related("task").get(pk=invocation_id)
    return row


def _in_money(task: ModelTask) -> bool:
    return task.cost_max is not None


def _facts(task: ModelTask) -> AllowanceFacts:
    return AllowanceFacts(
        calls_max=task.calls_max,
        tokens_max=task.tokens_max,
        cost_max=task.cost_max,
        deadline=task.deadline,
        calls=task.calls,
        charged_tokens=task.charged_tokens,
        charged_cost=task.charged_cost,
        cancelled=task.cancelled_at is not None,
    )
