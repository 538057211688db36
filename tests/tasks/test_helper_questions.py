"""Allowances and questions, as a client meets them over REST, with the job that asks (rows 148 to 174)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import IntegrityError, connections
from django.test import Client
from django.utils import timezone

from agents.models import ModelCall
from budgets.keys import MeterKind
from budgets.limits import set_limit
from budgets.models import Invocation, ModelTask, Reservation
from budgets.money import Usd, exact
from budgets.reservations import refund
from routing.tiers import model_for_question
from tasks import helper_questions
from tasks.errors import LostRace
from tasks.helper_failures import OF_DIMENSION
from tasks.helper_questions import LOST_MAX, SCHEMA_DEPTH_MAX, wake_due_questions
from tasks.jobs import ask_helper, sweep
from tasks.models import HelperQuestion
from tenants.models import AuditEntry, Project, Role, User
from tests.factories.providers import make_connector
from tests.factories.tasks import make_allowance, make_change, make_question
from tests.factories.tenants import bearer, make_member, make_organization, make_project, make_token
from tests.tasks.money import hold
from tests.tasks.threads import in_threads

pytestmark = pytest.mark.django_db(transaction=True)

WINDOW = 1_000_000  # what haiku takes; each call reserves it whole (row 150)
CAP = 2_000
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
GOOD, BAD = {"json": {"answer": "ALPHA_6"}}, {"json": {"answer": 5}}
ASKED = {"role": "extractor", "packet": "Source identifier=ALPHA_6.", "schema": SCHEMA}


def used(input_tokens: int, output: int = 0, **more: int) -> dict[str, Any]:
    return {"usage": {"input": input_tokens, "output": output, **more}}


class Door:
    """A project whose connector plays these steps, and a member who asks."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        self.project = make_project(make_organization())
        self.connector = make_connector(self.project.organization, steps=list(steps) or [GOOD])
        self.member = make_member(self.project.organization, Role.MEMBER)
        self.client = signed_in(self.member)

    def play(self, *steps: dict[str, Any]) -> None:
        self.connector.config = {"inline": [{"steps": list(steps)}]}
        self.connector.version += 1  # as a saved connector: workers build it anew
        self.connector.save()

    def open(self, **limits: Any) -> str:
        answer = self.post(f"projects/{self.project.pk}/allowances", limits or {"calls_max": 4})
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    def ask(self, allowance: str, **more: Any) -> str:
        answer = self.post(f"allowances/{allowance}/questions", ASKED | more)
        assert answer.status_code == 202, answer.content
        return str(answer.json()["id"])

    def worked(self, allowance: str, **more: Any) -> dict[str, Any]:
        question = self.ask(allowance, **more)
        ask_helper(question)
        return self.question(question)

    def question(self, question: str) -> dict[str, Any]:
        return self.get(f"questions/{question}")

    def allowance(self, allowance: str) -> dict[str, Any]:
        return self.get(f"allowances/{allowance}")

    def get(self, path: str) -> dict[str, Any]:
        answer = self.client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, answer.content
        return dict(answer.json())

    def post(self, path: str, body: Any = None, **headers: Any) -> Any:
        return self.client.post(f"/api/v1/{path}", body or {}, content_type="application/json", **headers)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def sent() -> int:
    return ModelCall.objects.count()


# ---- asking


def test_a_question_is_answered_by_a_worker() -> None:
    """Rows 167, 171, 175: stateless, validated, with its call and what it cost."""
    door = Door({**GOOD, **used(1_000, 100)})
    allowance = door.open(calls_max=4, tokens_max=3_000_000, cost_max_usd="20.00")
    question = door.ask(allowance)
    waiting = door.question(question)
    assert (waiting["state"], waiting["invocations"], waiting["failure"]) == ("queued", [], None)
    ask_helper(question)
    found = door.question(question)
    assert (found["state"], found["value"]) == ("answered", {"answer": "ALPHA_6"})
    (call,) = found["invocations"]
    assert (call["phase"], call["validation"], call["state"]) == ("generation", "passed", "settled")
    assert (call["purpose"], call["connector"], call["model"]) == ("extractor", "main", "claude-haiku-5-5")
    assert call["parent"] == question
    paid = ModelCall.objects.get()
    assert (paid.purpose, paid.project_id) == ("extractor", door.project.pk)
    assert paid.cost is not None
    assert call["known_usd"] == exact(paid.cost)
    held = Reservation.objects.get()
    assert (held.state, held.user_id, held.project_id) == ("settled", door.member.pk, door.project.pk)
    assert HelperQuestion.objects.get().packet == "", "a packet lives no longer than the work"


def test_plain_text_needs_no_schema() -> None:
    found = Door({"text": "All is well."})
    asked = found.worked(found.open(), schema=None, role="verifier")
    assert (asked["state"], asked["text"], asked["value"]) == ("answered", "All is well.", None)


def test_an_answer_that_does_not_fit_is_repaired_under_the_same_allowance() -> None:
    """Worked example 15a (rows 172, 174): two calls, both on the allowance, the first noted as failed."""
    door = Door(BAD, GOOD)
    allowance = door.open()
    found = door.worked(allowance)
    assert (found["state"], found["value"]) == ("answered", {"answer": "ALPHA_6"})
    calls = [(each["phase"], each["validation"]) for each in found["invocations"]]
    assert calls == [("generation", "failed"), ("repair", "passed")]
    assert door.allowance(allowance)["totals"]["calls"] == 2


def test_an_allowance_of_one_call_has_none_for_the_repair() -> None:
    """Worked example 15b."""
    door = Door(BAD, GOOD)
    found = door.worked(door.open(calls_max=1))
    assert (found["state"], sent()) == ("failed", 1)
    assert (found["failure"]["dimension"], found["failure"]["at_least"]) == ("calls", "2")
    assert "answer: 5 is not of type" in found["failure"]["detail"]
    assert [each["validation"] for each in found["invocations"]] == ["failed"]


def test_both_schemas_must_fit() -> None:
    """Row 171."""
    door = Door(GOOD, GOOD)
    stricter = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 3}}}
    found = door.worked(door.open(), validation_schema=stricter)
    assert (found["state"], found["failure"]["code"]) == ("failed", "invalid")
    assert [each["validation"] for each in found["invocations"]] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"stop": "refused"}, "refused"),
        ({**GOOD, "stop": "length"}, "incomplete"),
        ({"tools": [{"name": "x"}]}, "tool_request"),
    ],
)
def test_what_is_no_answer_is_not_repaired(step: dict[str, Any], code: str) -> None:
    """Row 173."""
    found = (door := Door(step, GOOD)).worked(door.open())
    assert (found["state"], found["failure"]["code"], sent()) == ("failed", code, 1)
    assert [each["validation"] for each in found["invocations"]] == ["failed"]


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"role": "planner"}, "role", ""),
        ({"packet": ""}, "packet", ""),
        ({"packet": "a\0b"}, "packet", ""),
        ({"schema": {"type": "nothing"}}, "schema", "invalid_schema"),
        ({"schema": ["x"]}, "schema", ""),
        ({"schema": {"const": "a\0b"}}, "schema", ""),
        ({"schema": {"enum": ["x" * 20_001]}}, "schema", ""),
        ({"validation_schema": {"minLength": -1}}, "validation_schema", "invalid_schema"),
        ({"schema": {"properties": {"a": {"pattern": "(a+)+$"}}}}, "schema", "unsafe_schema"),
        ({"schema": {"$ref": "https://example.com/schema.json"}}, "schema", "unsafe_schema"),
        ({"schema": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "schema", "unsafe_schema"),
        ({"tools": []}, "tools", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said_at_once(body: dict[str, Any], field: str, code: str) -> None:
    """Rows 167, 169, 171: before anything is queued."""
    door = Door()
    answer = door.post(f"allowances/{door.open()}/questions", ASKED | body)
    assert answer.status_code == 400, answer.content
    said = answer.json()
    assert field in (said.get("field"), *(each.get("field") for each in said.get("errors", ())))
    assert code in ("", said["code"])
    assert not HelperQuestion.objects.exists()


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    door = Door()
    deep: Any = {}
    for _ in range(SCHEMA_DEPTH_MAX):
        deep = {"not": deep}
    answer = door.post(f"allowances/{door.open()}/questions", ASKED | {"schema": deep})
    assert (answer.status_code, answer.json()["field"]) == (400, "schema")


def test_the_same_key_asks_once() -> None:
    door = Door()
    allowance = door.open()
    path = f"allowances/{allowance}/questions"
    first = door.post(path, ASKED, headers={"Idempotency-Key": "one"})
    again = door.post(path, ASKED, headers={"Idempotency-Key": "one"})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    other = door.post(path, ASKED | {"packet": "Another."}, headers={"Idempotency-Key": "one"})
    assert other.status_code == 409
    assert HelperQuestion.objects.count() == 1


# ---- the allowance


def test_limits_are_any_subset_and_at_least_one() -> None:
    """Row 148."""
    door = Door()
    path = f"projects/{door.project.pk}/allowances"
    assert door.post(path, {}).status_code == 400
    past = (timezone.now() - timedelta(seconds=1)).isoformat()
    assert door.post(path, {"deadline": past}).json()["field"] == "deadline"
    for wrong in ({"calls_max": -1}, {"tokens_max": 2**53}, {"cost_max_usd": 1.5}, {"calls": 3}):
        assert door.post(path, wrong).status_code == 400, wrong
    assert not ModelTask.objects.exists()
    made = door.post(path, {"cost_max_usd": "2.50"}).json()
    assert made["limits"] == {
        "calls_max": None,
        "tokens_max": None,
        "cost_max_usd": "2.500000",
        "output_tokens_per_call_max": None,
        "deadline": None,
    }
    assert (made["state"], made["by"], made["invocations"]) == ("open", door.member.email, [])
    assert AuditEntry.objects.filter(action="allowance.opened").count() == 1


def test_reservations_are_whole_windows_and_what_was_used_stays() -> None:
    """Worked example 14a (rows 149, 150, 153), with haiku's window: 412 and two whole ones fit, a third does not."""
    door = Door({**GOOD, **used(400, 12)})
    allowance = door.open(calls_max=4, tokens_max=3_000_000)
    assert door.worked(allowance)["state"] == "answered"
    assert door.allowance(allowance)["charged_tokens"] == 412
    door.play({"fails": "timeout"})  # sent, and nobody knows what it used
    for _ in range(2):
        assert door.worked(allowance)["failure"]["code"] == "timeout"
    assert door.allowance(allowance)["charged_tokens"] == 412 + 2 * (WINDOW + CAP)
    refused = door.worked(allowance)
    assert refused["failure"]["dimension"] == "tokens"
    assert refused["failure"]["at_least"] == str(412 + 3 * (WINDOW + CAP))
    assert (refused["invocations"], sent()) == ([], 3)
    assert door.allowance(allowance)["calls"] == 3


def test_a_failure_without_usage_keeps_its_worst_case_beside_what_is_known() -> None:
    """Worked example 14b (rows 153, 154): 5,000 known, one window unknown, two calls."""
    door = Door({"fails": "transient"})
    allowance = door.open(calls_max=4)
    assert door.worked(allowance)["failure"]["code"] == "transient"
    door.play({**GOOD, **used(4_900, 100)})
    assert door.worked(allowance)["state"] == "answered"
    totals = door.allowance(allowance)["totals"]
    assert (totals["calls"], totals["total_tokens"]) == (2, 5_000)
    assert totals["charged_tokens"] == WINDOW + CAP + 5_000
    assert (totals["unknown_charge_attempts"], totals["unknown_cost_invocations"]) == (1, 1)


def test_the_charge_is_at_upper_rates_and_the_cost_is_what_it_was() -> None:
    """Worked example 14c (row 156), at haiku's rates: half of the prompt came from the cache."""
    door = Door({**GOOD, **used(500, 100, cache_read=500)})
    allowance = door.open(cost_max_usd="20.00")
    (call,) = door.worked(allowance)["invocations"]
    paid = ModelCall.objects.get()
    assert Usd.dollars(call["known_usd"]) == paid.cost
    assert Usd.dollars(call["charged_usd"]) > Usd.dollars(call["known_usd"])


def test_nothing_is_sent_without_room_in_money() -> None:
    """Rows 149, 157; example 14d's reservation is what counts, not the small prompt."""
    door = Door()
    found = door.worked(door.open(cost_max_usd="0.01"))
    assert (found["state"], found["failure"]["dimension"], sent()) == ("failed", "cost", 0)
    assert Usd.dollars(found["failure"]["at_least"]) > Usd.dollars("0.01")


def test_a_call_that_never_left_gives_its_slot_back() -> None:
    """Row 155."""
    door = Door({"fails": "not_sent"})
    allowance = door.open(calls_max=1)
    assert door.worked(allowance)["failure"]["code"] == "transient"
    assert (door.allowance(allowance)["calls"], door.allowance(allowance)["charged_tokens"]) == (0, 0)
    door.play(GOOD)
    assert door.worked(allowance)["state"] == "answered"


def test_a_meter_that_refuses_gives_the_slot_back_and_says_what_would_lift_it() -> None:
    """Rows 155, 186: the stop names the meter, its figures and every way out."""
    door = Door()
    allowance = door.open(calls_max=1)
    limit_project(door.project, Usd(1))
    found = door.worked(allowance)
    assert (found["state"], found["failure"]["code"], sent()) == ("failed", "project_budget", 0)
    stop = found["failure"]["stop"]
    assert [each["kind"] for each in stop["refusals"]] == ["project"]
    assert {"raise", "wait"} >= {each["act"] for each in stop["ways_out"]} >= {"raise"}
    assert (door.allowance(allowance)["calls"], found["invocations"]) == (0, [])
    limit_project(door.project, Usd.dollars("50"))
    assert door.worked(allowance)["state"] == "answered"


def test_held_money_in_the_way_is_waited_for() -> None:
    """C12's kind: while it would fit once the hold ends, the question waits and nothing is spent."""
    door = Door()
    allowance = door.open(calls_max=1)
    slow = door.ask(allowance)
    limit_project(door.project, Usd(20_000))
    row = HelperQuestion.objects.get()

    held = hold(make_change(door.project), Usd(19_999))
    ask_helper(slow)
    row.refresh_from_db()
    assert (row.state, row.work_key, row.lost) == ("queued", "", 0)
    assert row.packet
    assert door.allowance(allowance)["calls"] == 0
    refund(held.reservation_id, reason="a test")
    HelperQuestion.objects.update(not_before=timezone.now())
    ask_helper(slow)
    assert door.question(slow)["state"] == "answered"


def with_a_stand_in(door: Door) -> None:
    """The project's own account lets nothing through; another one of the organization answers."""
    door.play({"fails": "transient"})
    door.connector.fallback = {"connectors": ["spare"], "max_retries": 0}
    door.connector.version += 1
    door.connector.save()
    make_connector(door.project.organization, name="spare", steps=[{**GOOD, **used(400, 12)}])


def test_each_try_of_a_plan_is_admitted_and_the_question_counts_once() -> None:
    """Rows 149, 154, 161: a slot for each physical call, one logical question."""
    door = Door()
    with_a_stand_in(door)
    allowance = door.open(calls_max=4)
    found = door.worked(allowance)
    assert found["state"] == "answered", found["failure"]
    tries = [(each["connector"], each["state"]) for each in found["invocations"]]
    assert tries == [("main", "unknown"), ("spare", "settled")]
    assert len({each["logical"] for each in found["invocations"]}) == 1
    totals = door.allowance(allowance)["totals"]
    assert (totals["calls"], totals["unknown_usage_invocations"]) == (2, 0)
    assert totals["charged_tokens"] == WINDOW + CAP + 412


def test_a_stand_in_is_not_asked_without_a_call_left() -> None:
    door = Door()
    with_a_stand_in(door)
    found = door.worked(door.open(calls_max=1))
    assert (found["state"], found["failure"]["dimension"], sent()) == ("failed", "calls", 1)
    assert [each["connector"] for each in found["invocations"]] == ["main"]


def test_the_cap_of_a_call_bounds_what_a_helper_may_say() -> None:
    """Row 152."""
    door = Door()
    allowance = door.open(output_tokens_per_call_max=256)
    assert door.worked(allowance)["state"] == "answered"
    assert Invocation.objects.get().held_tokens == WINDOW + 256


def test_a_cancelled_or_late_allowance_admits_nothing() -> None:
    """Row 165; a second cancelling changes nothing."""
    door = Door()
    allowance, late = door.open(), door.open(deadline=(timezone.now() + timedelta(hours=1)).isoformat())
    for _ in range(2):
        answer = door.post(f"allowances/{allowance}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert AuditEntry.objects.filter(action="allowance.cancelled").count() == 1
    ModelTask.objects.filter(pk=late).update(deadline=timezone.now())
    assert door.allowance(late)["state"] == "expired"
    assert door.worked(allowance)["failure"]["dimension"] == "cancelled"
    assert door.worked(late)["failure"]["dimension"] == "deadline"
    assert sent() == 0


def test_a_model_that_nobody_prices_is_not_asked_under_a_limit_in_money(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row 157: without that limit it may be asked, and its charge stays visible as unknown."""
    door = Door()

    def strange(*args: Any, **more: Any) -> Any:
        return replace(model_for_question(*args, **more), name="house-model-1")

    monkeypatch.setattr(helper_questions, "model_for_question", strange)
    found = door.worked(door.open(cost_max_usd="20.00"))
    assert (found["state"], found["failure"]["code"]) == ("failed", "unknown_capacity")
    assert sent() == 0


def test_every_dimension_has_its_words() -> None:
    assert set(OF_DIMENSION) == {"cancelled", "deadline", "calls", "tokens", "cost", "price"}


# ---- what the host reports


def test_reported_usage_counts_once_and_another_of_the_same_name_is_a_conflict() -> None:
    """Rows 161, 162, 163: an explicit zero is known; no call's slot is taken."""
    door = Door({**GOOD, **used(400, 12)})
    allowance = door.open(calls_max=2)
    door.worked(allowance)
    report = {"id": "nightly-7", "usage": {"input_uncached": 1_000, "output": 100}, "cost_usd": "0.25"}
    for _ in range(2):
        answer = door.post(f"allowances/{allowance}/reports", report)
        assert answer.status_code == 200, answer.content
    totals = answer.json()["totals"]
    assert (totals["calls"], totals["total_tokens"], totals["charged_tokens"]) == (1, 1_512, 1_512)
    other = report | {"usage": {"input_uncached": 1_000, "output": 101}}
    conflict = door.post(f"allowances/{allowance}/reports", other)
    assert (conflict.status_code, conflict.json()["code"]) == (409, "conflicting_report")
    zero = {"id": "free", "usage": {"input_uncached": 0, "output": 0}, "cost_usd": "0"}
    totals = door.post(f"allowances/{allowance}/reports", zero).json()["totals"]
    assert (totals["unknown_usage_invocations"], totals["total_tokens"]) == (0, 1_512)


@pytest.mark.parametrize(
    "wrong",
    [
        {"usage": {"input_uncached": -1, "output": 0}},
        {"usage": {"input_uncached": 1, "output": 1, "reasoning": 2}},
        {"usage": {"input_uncached": 10**9, "output": 10**9}},
        {"usage": {"input_uncached": 1}},
        {"cost_usd": 0.5},
        {"id": ""},
    ],
)
def test_a_report_that_cannot_be_true_is_refused(wrong: dict[str, Any]) -> None:
    door = Door()
    allowance = door.open()
    report = {"id": "r", "usage": {"input_uncached": 1, "output": 1}} | wrong
    assert door.post(f"allowances/{allowance}/reports", report).status_code == 400
    assert not Invocation.objects.exists()


# ---- who may


def test_a_viewer_reads_and_a_token_needs_the_scope_of_changes() -> None:
    door = Door()
    allowance = door.open()
    question = door.ask(allowance)
    viewer = signed_in(make_member(door.project.organization, Role.VIEWER))
    assert viewer.get(f"/api/v1/allowances/{allowance}").status_code == 200
    assert viewer.get(f"/api/v1/questions/{question}").status_code == 200
    for scopes, code in ((["read"], 403), (["read", "changes:write"], 202)):
        _, plain = make_token(door.member, door.project.organization, scopes=scopes)
        asked = Client().post(
            f"/api/v1/allowances/{allowance}/questions",
            ASKED,
            content_type="application/json",
            **bearer(plain),
        )
        assert asked.status_code == code, asked.content


def test_an_allowance_of_the_plane_itself_is_nobodys_to_open() -> None:
    door = Door()
    own = ModelTask.objects.create(
        organization=door.project.organization, calls_max=1, created_at=timezone.now()
    )
    assert door.client.get(f"/api/v1/allowances/{own.pk}").status_code == 404


# ---- workers that die, twice and at once


def test_a_question_is_asked_once_however_often_its_message_comes() -> None:
    door = Door()
    question = door.ask(door.open())
    in_threads(3, lambda _: ask_helper(question))
    ask_helper(question)
    assert (door.question(question)["state"], sent()) == ("answered", 1)


def test_two_questions_cannot_both_have_the_last_call() -> None:
    """Rows 149, 163: across workers, by the lock of the allowance's row."""
    door = Door({**GOOD, "seconds": 0.2})
    allowance = door.open(calls_max=1)
    questions = [door.ask(allowance) for _ in range(2)]
    in_threads(2, lambda number: ask_helper(questions[number]))
    ends = sorted(door.question(each)["state"] for each in questions)
    assert (ends, sent()) == (["answered", "failed"], 1)
    assert door.allowance(allowance)["calls"] == 1


def test_two_questions_cannot_both_have_the_last_tokens() -> None:
    door = Door({**GOOD, "seconds": 0.2})
    allowance = door.open(tokens_max=WINDOW + CAP)
    questions = [door.ask(allowance) for _ in range(2)]
    barrier = threading.Barrier(2)

    def act(number: int) -> None:
        barrier.wait(10)
        ask_helper(questions[number])

    in_threads(2, act)
    states = [door.question(each)["state"] for each in questions]
    assert "answered" in states
    admitted = Invocation.objects.exclude(state="refunded").count()
    assert admitted == sent() == states.count("answered")


def lose_its_worker(question: str) -> None:
    """As if the process that holds it had been killed: its pid is nobody's."""
    machine = HelperQuestion.objects.get(pk=question).work_key.rsplit(":", 3)[0]
    HelperQuestion.objects.filter(pk=question).update(work_key=f"{machine}:4194999:1:x")


def test_a_question_whose_worker_died_before_anything_was_sent_is_asked_again() -> None:
    door = Door()
    question = door.ask(door.open())
    for lost in range(1, LOST_MAX):
        assert helper_questions._take(HelperQuestion.objects.get().pk, now=timezone.now()) is not None
        assert wake_due_questions(timezone.now()) == 0
        lose_its_worker(question)
        assert wake_due_questions(timezone.now()) == 1
        assert HelperQuestion.objects.get().lost == lost - 1
    ask_helper(question)
    assert (door.question(question)["state"], sent()) == ("answered", 1)


def test_one_that_kills_its_workers_ends() -> None:
    door = Door()
    question = door.ask(door.open())
    for _ in range(LOST_MAX):
        assert helper_questions._take(HelperQuestion.objects.get().pk, now=timezone.now()) is not None
        lose_its_worker(question)
        wake_due_questions(timezone.now())
    ask_helper(question)
    assert door.question(question)["failure"]["code"] == "workers_died"
    assert sent() == 0


def test_a_worker_that_lost_its_question_sends_nothing() -> None:
    door = Door()
    question = door.ask(door.open())
    old = helper_questions._take(HelperQuestion.objects.get().pk, now=timezone.now())
    assert old is not None
    lose_its_worker(question)
    sweep()
    ask_helper(question)
    with pytest.raises(LostRace):
        helper_questions._ask(old)
    assert sent() == 1


@pytest.mark.parametrize("dies_in", ["send", "hold"])
def test_a_killed_worker_leaves_a_failed_question_and_an_unknown_charge(dies_in: str) -> None:
    """kill -9 while the provider answers, or between the allowance and the meters: never sent a second time."""
    door = Door({**GOOD, "seconds": 30})
    allowance = door.open(calls_max=2)
    question = door.ask(allowance)
    worker = killed_worker(question, dies_in)
    try:
        wait_for(lambda: Invocation.objects.exists() and (dies_in == "hold" or ModelCall.objects.exists()))
        time.sleep(0.2)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert door.question(question)["state"] == "running"
    door.play(GOOD)
    assert wake_due_questions(timezone.now()) == 1
    ask_helper(question)
    found = door.question(question)
    assert (found["state"], found["failure"]["code"]) == ("failed", "worker_lost")
    assert [each["state"] for each in found["invocations"]] == ["unknown"]
    totals = door.allowance(allowance)["totals"]
    assert (totals["calls"], totals["charged_tokens"]) == (1, WINDOW + CAP)
    assert totals["unknown_charge_attempts"] == 1
    assert door.worked(allowance)["state"] == "answered", "the rest of the allowance is there"


def killed_worker(question: str, dies_in: str) -> subprocess.Popen[bytes]:
    """A process of its own that asks; with `hold` it hangs before the meters are asked."""
    database = connections["default"].settings_dict["NAME"]
    hang = (
        "import agents.metered as m, time\nm._hold = lambda *a, **k: time.sleep(60)\n"
        if dies_in == "hold"
        else ""
    )
    program = (
        "import django; django.setup()\n"
        "from dataclasses import replace\nfrom pathlib import Path\n"
        "from django.conf import settings\nfrom django.db import connections\n"
        f"settings.DATABASES['default']['NAME'] = {database!r}\n"
        f"connections['default'].settings_dict['NAME'] = {database!r}\n"
        f"settings.PLANE = replace(settings.PLANE, data_dir=Path({str(django_settings.PLANE.data_dir)!r}))\n"
        f"{hang}"
        f"from tasks.jobs import ask_helper; ask_helper({question!r})\n"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=django_settings.BASE_DIR)


def wait_for(reached: Callable[[], bool], seconds: float = 40) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


def test_a_fault_of_ours_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door()

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(helper_questions, "invoke_helper", broken)
    found = door.worked(door.open())
    assert (found["state"], found["failure"]["code"]) == ("failed", "internal_error")
    assert "ZeroDivisionError" in found["failure"]["problem"]


def test_a_project_without_a_connector_is_told_so() -> None:
    door = Door()
    door.connector.delete()
    found = door.worked(door.open())
    assert (found["state"], found["failure"]["code"]) == ("failed", "bad_request")
    assert "connector_not_found" in found["failure"]["detail"]


def test_the_database_keeps_no_packet_past_the_end() -> None:
    question = make_question(make_allowance())
    with pytest.raises(IntegrityError):
        HelperQuestion.objects.filter(pk=question.pk).update(state="failed", ended_at=timezone.now())


def limit_project(project: Project, to: Usd) -> None:
    set_limit(
        organization_id=project.organization_id,
        kind=MeterKind.PROJECT,
        subject=str(project.pk),
        to=to,
        by=None,
        reason="a test",
        key=uuid4().hex,
        now=timezone.now(),
    )
