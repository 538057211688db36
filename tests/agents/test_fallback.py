"""A connector's plan on the meters: each physical try is admitted, held and closed by itself (rows 111 to 123)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from agents.attempt import run_attempt
from agents.calls import Answered, call_model, gateway_for
from agents.errors import CallFailed, StopRun
from agents.models import ModelCall
from agents.prompts import LAST_CALL
from agents.spec import Noted, Payers
from agents.tab import Tab
from budgets.keys import MeterKind
from budgets.meters import ensure_meters, meter_key
from budgets.model_task_views import snapshot
from budgets.model_tasks import Admitted, CallPlan, TaskLimits, admit, open_task, settle_attempt
from budgets.models import Meter, Reservation
from budgets.money import ZERO, Usd
from providers.errors import ProviderError
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.fallback import FallbackGateway, Happening, Target
from providers.messages import ModelReply, ModelRequest, Thinking, ThinkingMode, Usage
from providers.models import Connector
from providers.scenarios import read_step
from routing.words import EndReason
from tenants.models import Organization, Project
from tests.factories.agents import NOON, Onlooker, TestClock, make_payers, make_request, make_spec
from tests.factories.providers import make_connector
from tests.factories.tenants import make_project

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "sk-test-only-0123456789abcdef"
OFF = {"claude-haiku-5-5": {"model": "gpt-4o-mini", "thinking": "off"}}
ANSWER = Play(usage=Usage(input_uncached=400, output=50, cache_read=2_000))
SPEND_LIMIT = {
    "error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}
}


@pytest.fixture
def fake(server: FakeServer) -> FakeServer:
    server.reset()
    server.provider.key = KEY
    return server


@pytest.fixture
def project(fake: FakeServer) -> Project:
    """Its account is at one provider, and one at another stands in."""
    project = make_project()
    accounts(project.organization, fake)
    return project


def accounts(organization: Organization, fake: FakeServer, **plan: Any) -> None:
    plan = {"connectors": [{"connector": "spare", "models": OFF}], **plan}
    make_connector(
        organization, kind="anthropic", base_url=fake.url("anthropic"), key=KEY, config={}, fallback=plan
    )
    make_connector(organization, name="spare", kind="openai", base_url=fake.url("openai"), key=KEY, config={})


def status(*codes: int, **more: Any) -> list[Play]:
    return [Play(fault="status", status=code, **more) for code in codes]


def ask(payers: Payers, *, tab: Tab | None = None, noted: list[Noted] | None = None, **over: Any) -> Answered:
    given: dict[str, Any] = {"clock": TestClock(), "tab": tab or Tab(calls_max=16), **over}
    request = make_request(model="claude-haiku-5-5", thinking=Thinking(ThinkingMode.ADAPTIVE, "low"))
    tell = (noted if noted is not None else []).append
    return call_model(request, payers, gateway=gateway_for(payers), tell=tell, **given)


def ends() -> list[tuple[str, str]]:
    return list(Reservation.objects.order_by("pk").values_list("connector", "state"))


def account_meter(payers: Payers, name: str) -> Meter:
    key = meter_key(MeterKind.PROVIDER, payers.organization_id, name, now=NOON)
    return Meter.objects.get(name=key.name)


def test_each_try_has_a_hold_of_its_own_paid_by_the_account_that_is_asked(
    fake: FakeServer, project: Project
) -> None:
    """Worked example 10a (rows 111, 112, 116, 119, 123) on every meter: four physical calls, one answer."""
    fake.push(*status(503, 503, 503), ANSWER)
    payers, tab, clock, noted = make_payers(project), Tab(calls_max=16), TestClock(), list[Noted]()
    answered = ask(payers, tab=tab, clock=clock, noted=noted)
    assert answered.reply.model == "gpt-4o-mini"
    assert len(fake.seen) == tab.calls == ModelCall.objects.count() == 4
    assert ends() == [("main", "refunded")] * 3 + [("spare", "settled")]
    assert Counter(one.kind for one in noted) == {"model.retry": 2, "model.fallback": 1}
    assert noted[2].data == {
        "call": 3,
        "from": "main",
        "to": "spare",
        "from_model": "claude-haiku-5-5",
        "to_model": "gpt-4o-mini",
        "because": "transient",
    }
    assert len({one.key for one in noted}) == 3
    assert 1.5 <= sum(clock.slept) <= 3, "1 s, then 2 s, with jitter"
    # gpt-4o-mini: 400 uncached at 0.15, 2,000 read at 0.075 and 50 out at 0.60 a million: 60 + 150 + 30 µ$.
    assert answered.cost == tab.cost == Usd(240)
    assert (account_meter(payers, "main").spent_usd, account_meter(payers, "main").held_usd) == (ZERO, ZERO)
    assert account_meter(payers, "spare").spent_usd == Usd(240)
    first = payers.meters[0]
    assert Meter.objects.get(name=first.name).spent_usd == Usd(240)
    assert [call.connector for call in ModelCall.objects.order_by("pk")] == ["main"] * 3 + ["spare"]


def test_one_question_is_four_calls_of_a_model_task_and_three_of_them_stay_charged(
    fake: FakeServer, project: Project
) -> None:
    """Worked example 10a (rows 116, 154): ModelTask calls 4, unknownChargeAttempts 3, one logical request."""
    fake.push(*status(503, 503, 503), ANSWER)
    task = open_task(project.organization_id, TaskLimits(calls_max=4), now=NOON)
    assert task is not None
    tried: list[str] = []

    def counted(target: Target, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        plan = CallPlan(model=request.model, input_capacity=100_000, output_tokens_max=256)
        tried.append(f"{target.connector}:{len(tried)}")
        admitted = admit(task, plan, key=tried[-1], purpose="test", phase="generation", now=NOON, logical="q")
        assert isinstance(admitted, Admitted)
        try:
            reply = target.gateway.send(request, seconds_max=seconds_max)
        except ProviderError as error:
            settle_attempt(admitted.invocation_id, usage=error.usage, http_status=error.status, now=NOON)
            raise
        settle_attempt(admitted.invocation_id, usage=reply.usage, now=NOON)
        return reply

    line = gateway_for(make_payers(project))
    assert isinstance(line, FallbackGateway)
    told: list[Happening] = []
    request = make_request(model="claude-haiku-5-5", thinking=Thinking(ThinkingMode.ADAPTIVE, "low"))
    replace(line, attempt=counted, tell=told.append, sleep=lambda _: None).send(request, seconds_max=100)
    view = snapshot(task)
    assert (view.totals.calls, view.totals.unknown_charge_attempts) == (4, 3)
    assert [one.http_status for one in view.invocations] == [503, 503, 503, None]
    assert len({one.logical for one in view.invocations}) == 1
    assert view.totals.unknown_usage_invocations == 0
    assert len(fake.seen) == len(tried) == 4
    assert Counter(type(event).__name__ for event in told) == {"Retried": 2, "FellBack": 1}


def test_two_that_stand_in_for_each_other_are_asked_in_one_line(fake: FakeServer, project: Project) -> None:
    """The stand-in's own plan is not followed: its failure ends the call, and nothing goes round."""
    back = {"connectors": [{"connector": "main", "models": {}}]}
    Connector.objects.filter(organization=project.organization, name="spare").update(fallback=back)
    fake.push(*status(529, 529, 529, 503, 503, 503))
    with pytest.raises(CallFailed):
        ask(make_payers(project))
    assert [call.connector for call in ModelCall.objects.order_by("pk")] == ["main"] * 3 + ["spare"] * 3


@pytest.mark.parametrize(
    ("play", "end", "note"),
    [
        (Play(fault="status", status=429, body=SPEND_LIMIT), EndReason.SPEND_LIMITED, "provider_spend_limit"),
        (Play(fault="status", status=402), EndReason.SPEND_LIMITED, "provider_spend_limit"),
        (Play(fault="status", status=400), EndReason.BAD_REQUEST, "Rejected with status 400"),
        (Play(fault="drop"), EndReason.TRANSIENT, "ConnectionLost"),
    ],
)
def test_what_is_terminal_is_asked_once_and_nowhere_else(
    fake: FakeServer, project: Project, play: Play, end: EndReason, note: str
) -> None:
    """Worked examples 10b and 10c; rows 112, 113, 117, 118."""
    fake.push(play)
    noted: list[Noted] = []
    with pytest.raises(CallFailed) as failed:
        ask(make_payers(project), noted=noted)
    assert (failed.value.end, failed.value.note, failed.value.again) == (end, note, False)
    assert len(fake.seen) == 1
    assert noted == []


def test_a_gateways_error_keeps_its_hold_while_the_next_try_is_made(
    fake: FakeServer, project: Project
) -> None:
    """Row 123: a 502 may have been billed, a 503 was not; both go on."""
    fake.push(*status(502, 503))
    tab = Tab(calls_max=16)
    ask(make_payers(project), tab=tab)
    assert [state for _, state in ends()] == ["unknown", "refunded", "settled"]
    assert tab.unknown_calls == 1
    assert tab.unknown_at_worst > ZERO


def test_a_lost_connection_is_tried_again_where_the_plan_says_so(fake: FakeServer) -> None:
    """Row 113, C64: the charge of the lost one stays."""
    project = make_project()
    accounts(project.organization, fake, retry_transport=True, max_retries=0)
    fake.push(Play(fault="drop"), ANSWER)
    assert ask(make_payers(project)).reply.model == "gpt-4o-mini"
    assert ends() == [("main", "unknown"), ("spare", "settled")]


def test_the_deadline_of_the_run_bounds_tries_and_waits(fake: FakeServer, project: Project) -> None:
    """Rows 114, 126: a wait that would pass it is not begun."""
    fake.push(*status(429, headers={"retry-after": "30"}))
    with pytest.raises(CallFailed) as failed:
        ask(make_payers(project), supervisor=Onlooker(left=29))
    assert (failed.value.end, failed.value.note) == (EndReason.TIMEOUT, "deadline_exceeded")
    assert failed.value.retry_after_seconds == 30
    assert len(fake.seen) == 1


def test_a_single_call_ends_with_its_run(fake: FakeServer) -> None:
    """Row 126, worked example 11a: the deadline that is left is shorter than the silence that is allowed."""
    project = make_project()
    make_connector(project.organization, kind="anthropic", base_url=fake.url("anthropic"), key=KEY, config={})
    fake.push(Play(fault="hang", seconds=20))
    with pytest.raises(CallFailed) as failed:
        ask(make_payers(project), supervisor=Onlooker(left=0.3))
    assert (failed.value.end, failed.value.note) == (EndReason.TIMEOUT, "TimedOut")
    assert Reservation.objects.get().state == "unknown"


def test_a_meter_that_says_no_ends_all_of_it(fake: FakeServer, project: Project) -> None:
    """Row 118: a refused reservation is a spend limit of ours; the account that stands in has a meter of its own."""
    fake.push(*status(503, 503, 503))
    payers = make_payers(project)
    spare = meter_key(MeterKind.PROVIDER, project.organization_id, "spare", now=NOON)
    ensure_meters([spare])
    Meter.objects.filter(name=spare.name).update(limit_usd=Usd(1))
    with pytest.raises(StopRun) as stop:
        ask(payers)
    assert (stop.value.end, stop.value.refusals[0]["kind"]) == (EndReason.MONTHLY_BUDGET, "provider")
    assert len(fake.seen) == 3


def test_a_cancelled_run_waits_for_nobody(fake: FakeServer, project: Project) -> None:
    fake.push(*status(429, headers={"retry-after": "50"}))
    cancelled = Onlooker(ends_at=3, end=StopRun(EndReason.CANCELLED))
    clock = TestClock()
    with pytest.raises(StopRun, match="cancelled"):
        ask(make_payers(project), supervisor=cancelled, clock=clock)
    assert sum(clock.slept) <= 15
    assert len(fake.seen) == 1


def test_no_try_is_made_beyond_the_calls_of_the_run(fake: FakeServer, project: Project) -> None:
    """Row 116: a try is a call. The run ends as what the provider did, and not as used up."""
    fake.push(*status(503, 503, 503))
    with pytest.raises(CallFailed) as failed:
        ask(make_payers(project), tab=Tab(calls_max=2))
    assert (failed.value.end, len(fake.seen)) == (EndReason.TRANSIENT, 2)


def test_a_try_that_is_the_last_call_of_a_run_says_so(fake: FakeServer, project: Project) -> None:
    """Rows 225, 227: the instruction is decided for each physical request."""
    done = Play(
        step=read_step({"tools": [{"name": "complete_task", "arguments": {"intent": "x"}}]}, field_name="s")
    )
    fake.push(*status(503), done)
    outcome = run_attempt(
        make_spec(project, calls_max=2, thinking=Thinking(ThinkingMode.ADAPTIVE, "low"), files={"a": b"b"}),
        Onlooker(),
    )
    first, second = fake.seen
    assert LAST_CALL not in str(first.body)
    assert LAST_CALL in str(second.body)
    assert [one.kind for one in outcome.noted] == ["model.retry"]


def test_a_disabled_or_unreadable_stand_in_is_left_out(fake: FakeServer, project: Project) -> None:
    """It must not stop the account that it would only replace; and nobody calls through a disabled one."""
    for broken in ({"enabled": False}, {"sealed_key": "nonsense"}):
        Connector.objects.filter(name="spare").update(**{"enabled": True, **broken})
        fake.reset()
        assert ask(make_payers(project)).reply.text == "hello"
        fake.push(*status(503, 503, 503))
        with pytest.raises(CallFailed, match="Unavailable with status 503"):
            ask(make_payers(project))
        assert {seen.wire for seen in fake.seen} == {"anthropic"}


def test_another_organizations_account_of_that_name_never_stands_in(fake: FakeServer) -> None:
    """Row 3."""
    project = make_project()
    plan = {"connectors": ["spare"]}
    make_connector(
        project.organization,
        kind="anthropic",
        base_url=fake.url("anthropic"),
        key=KEY,
        config={},
        fallback=plan,
    )
    make_connector(
        make_project().organization, name="spare", kind="openai", base_url=fake.url("openai"), key=KEY
    )
    fake.push(*status(503, 503, 503))
    with pytest.raises(CallFailed):
        ask(make_payers(project))
    assert {seen.wire for seen in fake.seen} == {"anthropic"}
