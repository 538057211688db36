"""ModelTasks: one allowance, admitted attempt by attempt (rows 148 to 166)."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from budgets.errors import ConflictingReport, PlanRefused
from budgets.model_task_views import snapshot
from budgets.model_tasks import (
    Admitted,
    CallPlan,
    Exhausted,
    PriceBound,
    TaskLimits,
    abandon_old,
    admit,
    cancel_task,
    note_validation,
    open_task,
    refund_attempt,
    report_external,
    settle_attempt,
)
from budgets.money import Usd
from providers.messages import Usage
from tests.factories.budgets import NOON
from tests.factories.tenants import make_organization

pytestmark = pytest.mark.django_db

MINI = CallPlan(model="gpt-4o-mini", input_capacity=128_000, output_tokens_max=256)
LARGE = CallPlan(model="gpt-4.1", input_capacity=1_000_000, output_tokens_max=256)
GEMINI = CallPlan(model="gemini-2.5-flash", input_capacity=1_048_576, output_tokens_max=128, candidates=3)


def task(**limits: object) -> UUID:
    opened = open_task(make_organization().pk, TaskLimits(**limits), now=NOON)  # type: ignore[arg-type]
    assert opened is not None
    return opened


def attempt(task_id: UUID, plan: CallPlan, key: str = "a", **over: object) -> UUID:
    admitted = admit(task_id, plan, key=key, purpose="test", phase="generation", now=NOON, **over)  # type: ignore[arg-type]
    assert isinstance(admitted, Admitted), admitted
    return admitted.invocation_id


def refused(task_id: UUID, plan: CallPlan, key: str = "b", **over: object) -> str:
    given = {"key": key, "purpose": "test", "phase": "generation", "now": NOON} | over
    answer = admit(task_id, plan, **given)  # type: ignore[arg-type]
    assert isinstance(answer, Exhausted), answer
    return answer.dimension


def test_parallel_calls_share_the_tokens_of_one_allowance() -> None:
    """Rows 149, 150, 153; acceptance 14a."""
    shared = task(calls_max=4, tokens_max=3_000_000)
    extract = attempt(shared, MINI, "extract")
    assert snapshot(shared).totals.charged_tokens == 128_256
    settle_attempt(extract, usage=Usage(input_uncached=400, output=12), now=NOON)
    attempt(shared, LARGE, "1")
    attempt(shared, LARGE, "2")
    assert snapshot(shared).totals.charged_tokens == 2_000_924
    assert refused(shared, LARGE, "3") == "tokens"
    assert snapshot(shared).totals.calls == 3


def test_a_failed_attempt_keeps_its_worst_case() -> None:
    """Rows 116, 153, 154; acceptance 14b: a 500 without usage, the retry settles 5,000."""
    one = task(calls_max=9)
    settle_attempt(attempt(one, LARGE, "1", logical="q"), usage=None, http_status=500, now=NOON)
    settle_attempt(
        attempt(one, LARGE, "2", logical="q"), usage=Usage(input_uncached=4_900, output=100), now=NOON
    )
    totals = snapshot(one).totals
    assert (totals.calls, totals.charged_tokens, totals.total_tokens, totals.unknown_charge_attempts) == (
        2,
        1_005_256,
        5_000,
        1,
    )
    assert totals.unknown_usage_invocations == 0, "usage counts once per logical question (row 161)"


def test_the_charge_is_at_the_dearest_rates_and_the_known_cost_at_list_price() -> None:
    """Rows 133 and 156; acceptance 14c: 1,000 in (500 cached), 100 out."""
    one = task(calls_max=9)
    settle_attempt(attempt(one, MINI), usage=Usage(input_uncached=500, cache_read=500, output=100), now=NOON)
    totals = snapshot(one).totals
    assert (totals.charged_cost, totals.known_cost) == (Usd(210), Usd(173))


def test_every_candidate_is_reserved_and_all_of_them_are_charged() -> None:
    """Rows 132, 150, 152; acceptance 14d."""
    one = task(calls_max=9, output_tokens_per_call_max=384)
    call = attempt(one, GEMINI)
    before = snapshot(one).totals
    assert (before.charged_tokens, before.charged_cost) == (1_048_960, Usd(315_533))
    settle_attempt(call, usage=Usage(input_uncached=900, output=270, reasoning=60, candidates=3), now=NOON)
    after = snapshot(one).totals
    assert (after.charged_tokens, after.charged_cost) == (1_170, Usd(945))
    assert before.charged_tokens - after.charged_tokens == 1_047_790


def test_no_limit_at_all_means_no_task() -> None:
    """Row 148."""
    assert open_task(make_organization().pk, TaskLimits(), now=NOON) is None


@pytest.mark.parametrize("bad", [0, -1, 2**53, 1.5, True])
@pytest.mark.parametrize("field", ["input_capacity", "output_tokens_max", "candidates"])
def test_counts_are_positive_and_exact_in_every_reader(field: str, bad: object) -> None:
    """Row 151."""
    given: dict[str, Any] = {"model": "gpt-4.1", "input_capacity": 9, "output_tokens_max": 9, field: bad}
    with pytest.raises(PlanRefused) as problem:
        attempt(task(calls_max=1), CallPlan(**given))
    assert problem.value.code == "bad_count"


def test_candidates_cannot_evade_the_cap_of_a_call() -> None:
    """Row 152: 3 x 128 needs at least 384."""
    with pytest.raises(PlanRefused) as problem:
        attempt(task(calls_max=1, output_tokens_per_call_max=383), GEMINI)
    assert problem.value.code == "output_cap"


def test_money_needs_a_price_or_a_bound() -> None:
    """Row 157: without a limit in money an unknown price is allowed and stays visible."""
    strange = CallPlan(model="house-model-1", input_capacity=100, output_tokens_max=10)
    assert refused(task(cost_max=Usd(10**9)), strange) == "price"
    bound = CallPlan(
        model="house-model-1",
        input_capacity=100,
        output_tokens_max=10,
        price_bound=PriceBound(Decimal(1), Decimal(2)),
    )
    bounded = task(cost_max=Usd(120))
    settle_attempt(attempt(bounded, bound), usage=Usage(input_uncached=10, output=5), now=NOON)
    assert snapshot(bounded).totals.charged_cost == Usd(20)
    free = task(calls_max=1)
    attempt(free, strange)
    assert snapshot(free).invocations[0].charged_cost is None
    assert snapshot(free).totals.unknown_cost_invocations == 1


def test_a_limit_in_money_refuses_what_it_cannot_bound() -> None:
    """Row 158; without the ceiling raw options pass."""
    hosted = CallPlan(model="gpt-4.1", input_capacity=9, output_tokens_max=9, hosted_tools=True)
    priced = CallPlan(model="gpt-4.1", input_capacity=9, output_tokens_max=9, pricing_overrides=True)
    for plan, code in ((hosted, "hosted_tools"), (priced, "price_bound_needed")):
        with pytest.raises(PlanRefused) as problem:
            attempt(task(cost_max=Usd(10**6)), plan)
        assert problem.value.code == code
        attempt(task(calls_max=1), plan)


def test_each_dimension_names_itself_and_nothing_is_dispatched() -> None:
    """Rows 126, 149 and 165."""
    assert refused(task(calls_max=0), MINI) == "calls"
    assert refused(task(tokens_max=128_255), MINI) == "tokens"
    assert refused(task(cost_max=Usd(19_000)), MINI) == "cost"
    attempt(task(tokens_max=128_256), MINI)  # an exact fit
    late = task(deadline=NOON)
    assert refused(late, MINI) == "deadline"
    assert (
        refused(task(deadline=NOON + timedelta(seconds=1)), MINI, now=NOON + timedelta(seconds=1))
        == "deadline"
    )
    stopped = task(calls_max=9)
    cancel_task(stopped, now=NOON)
    assert refused(stopped, MINI) == "cancelled"
    assert snapshot(stopped).invocations == ()


def test_what_never_left_gives_its_slot_back_and_nothing_else_does() -> None:
    """Rows 153 and 155."""
    one = task(calls_max=1)
    refund_attempt(attempt(one, MINI), now=NOON)
    totals = snapshot(one).totals
    assert (totals.calls, totals.charged_tokens, totals.charged_cost) == (0, 0, Usd(0))
    settle_attempt(attempt(one, MINI, "2"), usage=Usage(input_uncached=1, output=0), now=NOON)
    assert refused(one, MINI, "3") == "calls"


def test_the_same_report_is_nothing_and_another_is_a_conflict() -> None:
    """Rows 161 and 164."""
    one = task(calls_max=9)
    call = attempt(one, MINI)
    usage = Usage(input_uncached=10, output=5)
    settle_attempt(call, usage=usage, now=NOON)
    settle_attempt(call, usage=usage, now=NOON)
    settle_attempt(call, usage=None, now=NOON)
    with pytest.raises(ConflictingReport):
        settle_attempt(call, usage=Usage(input_uncached=10, output=6), now=NOON)
    with pytest.raises(ConflictingReport):
        refund_attempt(call, now=NOON)
    with pytest.raises(ConflictingReport):
        attempt(one, MINI)
    assert snapshot(one).totals.total_tokens == 15


def test_all_zero_transport_usage_is_unknown_and_a_late_report_corrects_it() -> None:
    """Rows 134 and 164."""
    one = task(calls_max=9)
    call = attempt(one, MINI)
    cancel_task(one, now=NOON)
    settle_attempt(call, usage=Usage(input_uncached=0, output=0), now=NOON)
    assert snapshot(one).totals.unknown_charge_attempts == 1
    settle_attempt(call, usage=Usage(input_uncached=10, output=0), now=NOON)
    totals = snapshot(one).totals
    assert (totals.unknown_charge_attempts, totals.charged_tokens) == (0, 10)


def test_host_reports_count_once_and_an_explicit_zero_is_known() -> None:
    """Row 162."""
    one = task(tokens_max=1_000)
    zero = Usage(input_uncached=0, output=0)
    for _ in range(2):
        report_external(one, report_id="r1", usage=zero, cost=Usd(0), purpose="tool", now=NOON)
        report_external(
            one,
            report_id="r2",
            usage=Usage(input_uncached=900, output=0),
            cost=None,
            purpose="tool",
            now=NOON,
        )
    totals = snapshot(one).totals
    assert (totals.calls, totals.charged_tokens, totals.unknown_usage_invocations) == (0, 900, 0)
    assert totals.unknown_cost_invocations == 1
    with pytest.raises(ConflictingReport):
        report_external(one, report_id="r1", usage=zero, cost=Usd(1), purpose="tool", now=NOON)


def test_the_snapshot_holds_no_authority_and_no_content() -> None:
    """Rows 160 and 174: metadata only; validation beside a received answer."""
    one = task(calls_max=9)
    call = attempt(one, MINI, connector="main")
    settle_attempt(call, usage=Usage(input_uncached=10, output=5), http_status=200, now=NOON)
    note_validation(call, "failed")
    (view,) = snapshot(one).invocations
    assert (view.state, view.http_status, view.output_validation, view.connector) == (
        "settled",
        200,
        "failed",
        "main",
    )
    assert view.parent == str(one)


def test_an_attempt_whose_worker_died_becomes_unknown_and_stays_charged() -> None:
    one = task(calls_max=9)
    attempt(one, MINI)
    assert abandon_old(NOON + timedelta(minutes=30)) == 0
    assert abandon_old(NOON + timedelta(hours=2)) == 1
    totals = snapshot(one).totals
    assert (totals.charged_tokens, totals.unknown_charge_attempts) == (128_256, 1)
