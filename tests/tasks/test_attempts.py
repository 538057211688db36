"""Whole attempts through the scripted gateway: begin, run, finish, and what comes after (rows 16 to 36, 185 to 195)."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from agents import archive
from budgets.keys import MeterKind
from budgets.models import Meter, Reservation
from budgets.money import Usd
from routing.words import Area, EndReason, Risk, Size, TaskKind, Tier
from tasks.models import ChangeSet, Claim, Event, Task, TaskRun
from tasks.states import ChangeState, RunState, TaskState
from tenants.models import Project
from tests.factories.tasks import make_failed_run, make_trunk
from tests.tasks.money import give_budget, hold, spend
from tests.tasks.world import DONE, GIVES_UP, World, ends, events, receipts

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World()


def test_a_task_without_source_is_done_with_an_intent_and_no_changeset(world: World) -> None:
    """Row 39; kinds without a workspace produce an intent only."""
    world.play(DONE)
    task = world.task(kind=TaskKind.REVIEW)
    world.run_once(task)
    run = TaskRun.objects.get()
    assert world.fresh(task).state == TaskState.DONE
    assert (run.state, run.end_reason, run.intent) == (RunState.SUCCEEDED, "completed", "said hello")
    assert (run.calls, run.unknown_calls, run.tier) == (1, 0, Tier.HAIKU)
    assert run.cost == Reservation.objects.get().cost != Usd(0)
    assert not ChangeSet.objects.exists()
    assert not Claim.objects.exists()  # row 222: every end releases them
    assert world.fresh_change.not_before == world.clock.now()  # due for composing


def test_a_run_leaves_its_packet_its_receipt_and_its_event(world: World) -> None:
    """Rows 25, 26, 73, 206, 237."""
    world.play(DONE)
    task = world.task()
    world.run_once(task)
    run = TaskRun.objects.get()
    assert run.packet_key == f"context/{world.project.pk}/{world.change.pk}/{task.pk}/{run.context_hash}.json"
    packet = json.loads(archive.get(run.packet_key))
    assert packet["facts"]["objective"] == task.objective
    (receipt,) = receipts(task, "route")
    assert (receipt.decision, receipt.reasons, receipt.run) == ("haiku", ["R4"], run)
    assert receipt.detail["base"] == "haiku"
    (event,) = events("model.route.decided")
    assert (event.run, event.data["by"], event.data["model"]) == (run, "rule", "claude-haiku-5-5")
    assert run.caps["calls_max"] == 16


def test_opus_work_runs_on_sonnet_while_opus_is_off_and_says_so(world: World) -> None:
    """Example 6a; row 23."""
    world.play(DONE)
    task = world.task(destructive_migration=True)
    world.run_once(task)
    run = TaskRun.objects.get()
    assert (run.tier, run.model, run.caps["calls_max"]) == (Tier.OPUS, "claude-sonnet-5-5", 32)
    assert receipts(task, "route")[0].reasons == ["R1", "opus_disabled", "opus_off_in_deployment"]


@pytest.mark.parametrize(
    ("deployment", "project", "model", "reasons"),
    [
        (True, True, "claude-opus-5-5", ["R1"]),
        (True, False, "claude-sonnet-5-5", ["R1", "opus_disabled", "opus_off_in_project"]),
        (
            False,
            False,
            "claude-sonnet-5-5",
            ["R1", "opus_disabled", "opus_off_in_deployment", "opus_off_in_project"],
        ),
    ],
)
def test_opus_runs_only_where_the_deployment_and_the_project_allow_it_and_the_receipt_names_who_does_not(
    world: World, with_plane: object, deployment: bool, project: bool, model: str, reasons: list[str]
) -> None:
    """Rows 77 and 78."""
    with_plane(allow_opus=deployment)  # type: ignore[operator]  # a fixture of the house
    Project.objects.filter(pk=world.project.pk).update(allow_opus=project)
    world.play(DONE)
    task = world.task(destructive_migration=True)
    world.run_once(task)
    assert TaskRun.objects.get().model == model
    assert receipts(task, "route")[0].reasons == reasons


def test_a_project_without_opus_stops_for_a_person_after_sonnet(world: World, with_plane: object) -> None:
    """Row 192, by the project's own word."""
    with_plane(allow_opus=True)  # type: ignore[operator]  # a fixture of the house
    Project.objects.filter(pk=world.project.pk).update(allow_opus=False)
    world.play(GIVES_UP)
    task = world.task()
    world.work()
    assert [each.split()[0] for each in ends(task)] == ["haiku", "haiku", "sonnet", "sonnet"]
    assert world.fresh(task).stop_limit == "max_attempts_per_tier"


def test_billing_is_raised_to_its_floor_without_a_classifier(world: World) -> None:
    """Example 5a."""
    world.play(DONE)
    task = world.task(area=Area.BILLING)
    world.run_once(task)
    (receipt,) = receipts(task, "route")
    assert (receipt.decision, receipt.detail["base"], receipt.detail["floor"]) == (
        "sonnet",
        "haiku",
        "sonnet",
    )
    assert not Reservation.objects.filter(purpose="classifier").exists()


@pytest.mark.parametrize(
    ("haiku", "area", "decision"),
    [
        (0.59, Area.GENERAL, "sonnet"),
        (0.60, Area.GENERAL, "haiku"),
        (0.60, Area.AUTHORIZATION, "sonnet"),
    ],
)
def test_the_classifier_decides_where_no_rule_fits(
    world: World, haiku: float, area: Area, decision: str
) -> None:
    """Example 5b."""
    chances = {"haiku": haiku, "sonnet": 0.30, "opus": round(0.70 - haiku, 2)}
    world.play({"json": chances}, role="classifier")
    world.play(DONE)
    task = world.task(size=Size.SMALL, risk=Risk.MEDIUM, area=area)
    world.run_once(task)
    (receipt,) = receipts(task, "route")
    assert (receipt.decision, receipt.detail["by"]) == (decision, "classifier")
    assert Reservation.objects.filter(purpose="classifier").count() == 1
    day = Meter.objects.get(kind=MeterKind.CLASSIFIER_CALLS)
    assert day.spent_calls == 1


def test_a_classifier_without_allowance_abstains(world: World) -> None:
    """Row 70: the 201st asks nobody, and is an abstention."""
    give_budget(world.change, 0, kind=MeterKind.CLASSIFIER_CALLS)
    world.play({"json": {"haiku": 1, "sonnet": 0, "opus": 0}}, role="classifier")
    world.play(DONE)
    task = world.task(size=Size.SMALL, risk=Risk.MEDIUM)
    world.run_once(task)
    assert receipts(task, "route")[0].decision == "sonnet"
    assert not Reservation.objects.filter(purpose="classifier").exists()


@pytest.mark.parametrize("said", ["no json", '{"haiku": 1}', '{"haiku": 2, "sonnet": 0, "opus": 0}'])
def test_a_strange_answer_of_the_classifier_is_an_abstention(world: World, said: str) -> None:
    world.play({"text": said}, role="classifier")
    world.play(DONE)
    task = world.task(size=Size.SMALL, risk=Risk.MEDIUM)
    world.run_once(task)
    assert receipts(task, "route")[0].reasons == ["R7_abstained"]


def test_two_failures_at_haiku_escalate_once_and_the_next_receipt_says_why(world: World) -> None:
    """Example 24a; rows 190, 195."""
    world.play(GIVES_UP, tier="haiku")
    world.play(DONE, tier="sonnet")
    task = world.task()
    world.work()
    assert ends(task) == ["haiku failed_by_agent", "haiku failed_by_agent", "sonnet completed"]
    (event,) = events("agent.escalated")
    assert event.data == {"from": "haiku", "to": "sonnet", "reason": "two_failures_at_haiku"}
    first, second, third = receipts(task, "route")
    assert third.reasons == ["two_failures_at_haiku"]
    assert "two_failures_at_haiku" not in [*first.reasons, *second.reasons]
    assert world.fresh(task).state == TaskState.DONE


def test_a_retry_comes_five_seconds_later(world: World) -> None:
    world.play(GIVES_UP)
    task = world.task()
    world.run_once(task)
    fresh = world.fresh(task)
    assert (fresh.state, fresh.not_before) == (TaskState.READY, world.clock.now() + timedelta(seconds=5))
    (receipt,) = receipts(task, "retry")
    assert receipt.reasons == ["first_failure"]
    world.run_once(task)  # an early wake
    assert TaskRun.objects.count() == 1


def test_four_failures_stop_for_a_person_with_opus_off(world: World) -> None:
    """Rows 192, 193; example 17a."""
    world.play(GIVES_UP)
    task = world.task()
    behind = world.task(needs=(task,))
    world.work()
    fresh, change = world.fresh(task), world.fresh_change
    assert len(ends(task)) == 4
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "max_attempts_per_tier")
    assert (change.state, change.stop_limit) == (ChangeState.BUDGET_BLOCKED, "max_attempts_per_tier")
    assert world.fresh(behind).blocked_by == task


def test_opus_gets_its_two_attempts_when_it_is_on(world: World, with_plane: object) -> None:
    with_plane(allow_opus=True)  # type: ignore[operator]  # a fixture of the house
    world.play(GIVES_UP, tier=["haiku", "sonnet"])
    world.play(DONE, tier="opus")
    task = world.task()
    world.work()
    assert ends(task)[-1] == "opus completed"
    assert TaskRun.objects.get(tier=Tier.OPUS).model == "claude-opus-5-5"


def test_a_second_transport_failure_fails_the_task(world: World) -> None:
    """Row 188: it does not stop, and never escalates."""
    world.play({"fails": "transient"})
    task = world.task()
    world.work()
    fresh = world.fresh(task)
    assert ends(task) == ["haiku transient", "haiku transient"]
    assert (fresh.state, fresh.failure) == (TaskState.FAILED, "second_transport_failure")
    assert world.fresh_change.state == ChangeState.FAILED
    assert receipts(task, "failure")[0].reasons == ["second_transport_failure"]


def test_a_provider_that_asks_for_patience_is_asked_again_later_and_no_worker_waits(world: World) -> None:
    """C63."""
    world.play({"fails": "rate_limited", "retry_after": 90}, attempt=1)
    world.play(DONE, attempt=2)
    task = world.task()
    world.run_once(task)
    assert world.fresh(task).not_before == world.clock.now() + timedelta(seconds=90)
    world.clock.pass_by(90)
    world.run_once(task)
    assert ends(task) == ["haiku rate_limited", "haiku completed"]


def test_a_budget_stop_in_the_middle_of_a_run_stops_at_once(world: World) -> None:
    """Rows 186, 197: no retry, and the run will not count."""
    give_budget(world.change, 1, kind=MeterKind.DAILY_CALLS)
    world.play({"text": "let me think"}, DONE)
    task = world.task()
    world.run_once(task)
    fresh = world.fresh(task)
    assert ends(task) == ["haiku daily_call_cap"]
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "daily_call_cap")
    (refusal,) = fresh.stop_detail["refusals"]
    assert (refusal["limit"], refusal["spent"], refusal["amount"]) == (1, 1, 1)
    assert events("spend_limited")


def test_a_providers_spend_limit_is_a_monthly_stop(world: World) -> None:
    """Row 118, example 10b."""
    world.play({"fails": "spend_limited"})
    task = world.task()
    world.work()
    assert ends(task) == ["haiku spend_limited"]
    assert world.fresh(task).stop_limit == "monthly_budget"


# -- the steps before the first call: each refusal names its reason, and no run row exists


def test_a_spent_budget_stops_the_start(world: World) -> None:
    """Example 2c: blocked, budget_blocked, no packet, no call."""
    world.budget("1.00")
    spend(world.change, Usd.dollars("1.00"), run_id=world.change.pk)
    calls = Reservation.objects.count()
    task = world.task()
    world.run_once(task)
    fresh = world.fresh(task)
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, "change_budget")
    assert world.fresh_change.stop_limit == "change_budget"
    assert receipts(task, "stop")[0].reasons == ["budget_spent"]
    assert (TaskRun.objects.count(), Reservation.objects.count()) == (0, calls)


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (MeterKind.CHANGE, "change_budget"),
        (MeterKind.PROJECT, "project_budget"),
        (MeterKind.USER, "user_budget"),
        (MeterKind.ORGANIZATION, "monthly_budget"),
        (MeterKind.DAILY_CALLS, "daily_call_cap"),
    ],
)
def test_a_meter_without_room_for_the_first_call_names_the_stop(
    world: World, kind: MeterKind, limit: str
) -> None:
    """Row 22. A limit of 0 means no calls."""
    give_budget(world.change, 0 if kind is MeterKind.DAILY_CALLS else Usd(0), kind=kind)
    task = world.task()
    world.run_once(task)
    fresh = world.fresh(task)
    assert (fresh.state, fresh.stop_limit) == (TaskState.BLOCKED, limit)
    assert fresh.stop_detail["refusals"][0]["kind"] == kind
    assert not TaskRun.objects.exists()


def test_the_first_full_meter_in_order_names_the_stop_and_all_are_shown(world: World) -> None:
    give_budget(world.change, Usd(0), kind=MeterKind.USER)
    give_budget(world.change, Usd(0), kind=MeterKind.PROJECT)
    task = world.task()
    world.run_once(task)
    detail = world.fresh(task).stop_detail
    assert world.fresh(task).stop_limit == "project_budget"
    assert [refusal["kind"] for refusal in detail["refusals"]] == ["project", "user"]


def test_held_money_in_the_way_is_waited_for_and_stops_nothing(world: World) -> None:
    """decisions.md: it waits, and is woken when a hold ends; C55."""
    world.budget("0.02")
    hold(world.change, Usd.dollars("0.019"))
    task = world.task()
    world.run_once(task)
    fresh = world.fresh(task)
    assert (fresh.state, fresh.waiting_for, fresh.owner) == (TaskState.READY, "held_money:change", "")
    assert fresh.not_before == world.clock.now() + timedelta(seconds=10)
    assert world.fresh_change.state == ChangeState.RUNNING
    (receipt,) = receipts(task, "refusal")
    assert receipt.decision == "wait"
    assert receipt.detail["refusals"][0]["held"] == 19_000


def test_a_missing_connector_fails_the_task_before_anything_is_built(world: World) -> None:
    """Row 3, example 1a."""
    world.connector.delete()
    task = world.task()
    world.run_once(task)
    assert (world.fresh(task).state, world.fresh(task).failure) == (TaskState.FAILED, "connector_not_found")
    assert not Reservation.objects.exists()


def test_a_start_waits_for_the_index_six_times_and_is_then_delivered_again(world: World) -> None:
    """Row 30: not failed, no attempt, never "no source repository"."""
    make_trunk(world.project, generation=2, indexed_generation=1)
    task = world.task()
    for waits in range(1, 7):
        world.run_once(task)
        fresh = world.fresh(task)
        assert (fresh.waiting_for, fresh.index_waits) == ("index", waits)
        world.clock.pass_by(2)
    world.run_once(task)
    fresh = world.fresh(task)
    assert (fresh.state, fresh.waiting_for, fresh.index_waits) == (TaskState.READY, "index_missing", 0)
    assert not TaskRun.objects.exists()
    assert len(receipts(task, "refusal")) == 2  # one for each reason, not for each wait


def test_a_fault_of_ours_at_the_start_is_tried_again_and_then_told(world: World) -> None:
    """Its repository is gone, say. Nobody waits for the lease of a start that broke, and nobody for ever."""
    make_trunk(world.project)
    task = world.task()
    for faults, seconds in enumerate((5, 10, 20, 40, 80), start=1):
        world.run_once(task)
        fresh = world.fresh(task)
        assert (fresh.state, fresh.owner) == (TaskState.READY, "")
        assert fresh.waiting_for == f"internal_fault:{faults}"
        assert fresh.not_before == world.clock.now() + timedelta(seconds=seconds)
        world.clock.pass_by(seconds)
    world.run_once(task)
    assert (world.fresh(task).state, world.fresh(task).failure) == (TaskState.FAILED, "internal_fault")
    assert world.fresh_change.state == ChangeState.FAILED
    assert not TaskRun.objects.exists()
    (failure,) = receipts(task, "failure")
    assert failure.detail["faults"] == 6
    assert [one.reasons for one in receipts(task, "refusal")] == [["internal_fault"]] * 5


def test_a_packet_that_cannot_fit_fails_the_task(world: World) -> None:
    """Row 25."""
    task = world.task(objective="x" * 60_000)
    world.run_once(task)
    assert world.fresh(task).failure == "packet_too_large"
    assert not TaskRun.objects.exists()


def test_long_failure_logs_are_shortened_and_the_run_pays(world: World) -> None:
    """Rows 20, 21."""
    world.play({"text": "It broke at line 7."}, role="compactor")
    world.play(DONE)
    task = world.task()
    make_failed_run(task, failure_log="x" * 24_100, started_at=world.clock.now())
    world.run_once(task)
    run = TaskRun.objects.get(attempt=2)
    packet = json.loads(archive.get(run.packet_key))
    assert run.compaction == "done"
    assert packet["facts"]["failures"][-1]["log"] == "It broke at line 7."
    assert run.cost == sum((one.cost for one in Reservation.objects.all()), Usd(0))
    assert Reservation.objects.filter(run_id=run.pk, purpose="compactor").count() == 1


def test_logs_that_nobody_can_shorten_are_told_from_their_end(world: World) -> None:
    world.play({"fails": "bad_request"}, role="compactor")
    world.play(DONE)
    task = world.task()
    make_failed_run(task, failure_log="a" * 30_000 + "the end", started_at=world.clock.now())
    world.run_once(task)
    run = TaskRun.objects.get(attempt=2)
    assert run.compaction == "fallback"
    assert json.loads(archive.get(run.packet_key))["facts"]["failures"][-1]["log"].endswith("the end")


def test_a_compaction_that_a_budget_refuses_stops_the_start(world: World) -> None:
    task = world.task()
    make_failed_run(task, failure_log="x" * 24_100, started_at=world.clock.now())
    give_budget(world.change, 0, kind=MeterKind.DAILY_CALLS)
    world.run_once(task)
    assert world.fresh(task).stop_limit == "daily_call_cap"
    assert receipts(task, "stop")[0].reasons == ["compaction_refused"]


def test_the_next_attempt_is_told_what_the_last_one_ran_into(world: World) -> None:
    """Row 11: only through the packet."""
    world.play(GIVES_UP, attempt=1)
    world.play(DONE, attempt=2)
    world.task()
    world.work()
    run = TaskRun.objects.get(attempt=2)
    failures = json.loads(archive.get(run.packet_key))["facts"]["failures"]
    assert [one["end"] for one in failures] == ["failed_by_agent"]
    assert "cannot see how" in failures[0]["log"]


def test_the_share_of_a_task_is_the_cap_of_its_run(world: World) -> None:
    """Rows 17, 51."""
    world.play(DONE)
    world.budget("3.00")
    task = world.task()
    world.task(not_before=world.clock.now() + timedelta(hours=1))
    world.run_once(task)
    assert TaskRun.objects.get().budget == Usd.dollars("1.50")


def test_a_run_over_its_share_ends_as_run_cost_cap_and_the_last_one_names_the_stop(world: World) -> None:
    """Example 17b; row 194."""
    task = world.task(size=Size.MEDIUM)
    world.budget("0.05")  # a sonnet call may cost more than its share
    for _ in range(2):
        make_failed_run(task, EndReason.RUN_CALL_CAP, started_at=world.clock.now())
    world.play(DONE)
    world.run_once(task)
    assert world.fresh(task).stop_limit == "change_budget"


def test_claims_of_two_runs_on_one_resource_contend_and_block_nobody(world: World) -> None:
    """Rows 27, 220."""
    world.play(DONE)
    first, second = world.task(resources=["api.py"]), world.task(resources=["api.py"])
    from tests.factories.tasks import make_claim, make_run

    Task.objects.filter(pk=first.pk).update(state=TaskState.RUNNING)
    run = make_run(first, lease_until=world.clock.now() + timedelta(hours=1))
    make_claim(run, "api.py", lease_until=world.clock.now() + timedelta(seconds=60))
    world.run_once(second)
    assert world.fresh(second).state == TaskState.DONE
    assert Event.objects.get(kind="claim.contended").data["resource"] == "api.py"


def test_a_doubled_delivery_runs_once(world: World) -> None:
    """Row 13."""
    world.play(DONE)
    task = world.task()
    for _ in range(3):
        world.run_once(task)
    assert ends(task) == ["haiku completed"]


def test_a_whole_chain_is_done_in_order(world: World) -> None:
    world.play(DONE)
    first = world.task()
    second = world.task(needs=(first,))
    third = world.task(needs=(first, second))
    world.work()
    starts = [run.task_id for run in TaskRun.objects.order_by("started_at")]
    assert starts == [first.pk, second.pk, third.pk]
    assert world.fresh_change.not_before is not None


def test_what_a_task_without_a_workspace_found_out_reaches_those_that_build_on_it(world: World) -> None:
    """Row 202: an architecture Task leaves words, and its dependents read them before any others."""
    world.play({"tools": [{"name": "complete_task", "arguments": {"intent": "use one table"}}]}, task="T1")
    world.play({"tools": [{"name": "complete_task", "arguments": {"intent": "unrelated"}}]}, task="T2")
    world.play(DONE, task="T3")
    design = world.task(kind=TaskKind.ARCHITECTURE)
    world.task()
    last = world.task(needs=(design,))
    world.work(rounds=10)
    packet = json.loads(archive.get(TaskRun.objects.get(task=last).packet_key))
    intents = [item["text"] for item in packet["facts"]["items"] if item["item_id"].startswith("intent:")]
    assert intents == ["T1 Task 1: use one table", "T2 Task 2: unrelated"]
