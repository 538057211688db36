"""Retry, then the next model; each physical attempt goes through the hook."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from providers.account import NamedModel
from providers.errors import (
    DeadlineExceeded,
    ProviderError,
    RateLimited,
    Rejected,
    RequestRefused,
    SpendLimited,
    TimedOut,
    Unavailable,
)
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.fallback import (
    Again,
    FallbackGateway,
    FellBack,
    GiveUp,
    Happening,
    NextModel,
    Retried,
    Target,
    Unfit,
    after_failure,
)
from providers.messages import AssistantMessage, ModelReply, ModelRequest, Thinking, ToolMessage, UserMessage
from providers.plans import Policy
from providers.scenarios import read_step
from providers.scripted import ScriptedGateway
from tests.providers.conftest import ADAPTIVE, EDIT, MakeGateway, ask

CALLS = read_step({"tools": [{"name": "edit_file", "arguments": '{"path":  "a.py"}'}]}, field_name="step")


@dataclass
class Watch:
    """The hook, the events and a clock of a test."""

    attempts: list[tuple[str, str]] = field(default_factory=list)
    told: list[Happening] = field(default_factory=list)
    time: float = 0.0

    def attempt(self, target: Target, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        self.attempts.append((request.model, request.labels["try"]))
        return target.gateway.send(request, seconds_max=seconds_max)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def over(self, *targets: Target, policy: Policy | None = None) -> FallbackGateway:
        return FallbackGateway(
            targets,
            attempt=self.attempt,
            policy=policy or Policy(),
            tell=self.told.append,
            sleep=self.sleep,
            clock=lambda: self.time,
            chance=lambda: 1.0,
        )

    def events(self, kind: type) -> int:
        return sum(isinstance(one, kind) for one in self.told)


def two(fake: FakeServer, gateway: MakeGateway, *plays: Play) -> tuple[Target, Target]:
    fake.push(*plays)
    return Target(gateway("anthropic"), "claude-haiku-5-5"), Target(gateway("openai"), "gpt-4o-mini")


def status(*codes: int) -> Sequence[Play]:
    return [Play(fault="status", status=code) for code in codes]


def test_three_tries_then_the_next_model(fake: FakeServer, gateway: MakeGateway) -> None:
    """Acceptance 10a: P 503, 503, 503, then B answers: 4 attempts, 2 retry events, 1 fallback event."""
    watch = Watch()
    reply = watch.over(*two(fake, gateway, *status(503, 503, 503))).send(ask("anthropic"), seconds_max=100)
    assert reply.model == "gpt-4o-mini"
    assert len(fake.seen) == 4
    assert [label for _, label in watch.attempts] == ["1", "2", "3", "4"]
    assert (watch.events(Retried), watch.events(FellBack)) == (2, 1)


def test_a_spend_limit_ends_everything_at_once(fake: FakeServer, gateway: MakeGateway) -> None:
    """Acceptance 10b; row 117: never again and never elsewhere."""
    body = {"error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}}
    watch = Watch()
    with pytest.raises(ProviderError) as caught:
        watch.over(*two(fake, gateway, Play(fault="status", status=429, body=body))).send(
            ask("anthropic"), seconds_max=9
        )
    assert caught.value.kind == "spend_limited"
    assert len(fake.seen) == 1
    assert not watch.told


def test_a_wrong_request_is_never_sent_again(fake: FakeServer, gateway: MakeGateway) -> None:
    """Acceptance 10c; C65: the same for a 413."""
    for code in (400, 413):
        fake.reset()
        watch = Watch()
        with pytest.raises(ProviderError):
            watch.over(*two(fake, gateway, *status(code))).send(ask("anthropic"), seconds_max=9)
        assert len(fake.seen) == 1


def test_when_all_fail_the_last_error_is_raised(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 111."""
    watch = Watch()
    with pytest.raises(RateLimited):
        watch.over(*two(fake, gateway, *status(503, 503, 503, 500, 500, 429))).send(
            ask("anthropic"), seconds_max=100
        )
    assert len(fake.seen) == 6


def test_a_lost_connection_is_retried_only_when_told(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 113, C64."""
    for retry, requests in ((False, 1), (True, 2)):
        fake.reset()
        targets = two(fake, gateway, Play(fault="drop"))
        chain = Watch().over(*targets, policy=Policy(retry_transport=retry))
        if retry:
            assert chain.send(ask("anthropic"), seconds_max=9).text == "hello"
        else:
            with pytest.raises(ProviderError):
                chain.send(ask("anthropic"), seconds_max=9)
        assert len(fake.seen) == requests


def test_a_stream_that_has_begun_is_not_asked_again(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 115."""
    for fault, requests in (("stream_error", 1), ("first_error", 2)):
        fake.reset()
        chain = Watch().over(
            *two(fake, gateway, Play(fault=fault, status=529)), policy=Policy(retry_transport=True)
        )
        if requests == 1:
            with pytest.raises(ProviderError):
                chain.send(ask("anthropic"), seconds_max=9)
        else:
            chain.send(ask("anthropic"), seconds_max=9)
        assert len(fake.seen) == requests


def test_a_wait_that_would_pass_the_deadline_is_not_begun(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 114: deadline_exceeded, and nobody is asked any more; what the provider asked for is not lost."""
    watch = Watch()
    play = Play(fault="status", status=429, headers={"retry-after": "5"})
    with pytest.raises(DeadlineExceeded, match="deadline_exceeded") as caught:
        watch.over(*two(fake, gateway, play)).send(ask("anthropic"), seconds_max=4)
    assert len(fake.seen) == 1
    assert watch.time == 0
    assert (caught.value.kind, caught.value.retry_after_seconds) == ("timeout", 5)
    assert isinstance(caught.value.__cause__, RateLimited)


def test_what_is_no_provider_error_ends_all(fake: FakeServer, gateway: MakeGateway) -> None:
    """The hook's own refusal, such as a meter's, passes through."""

    def refused(target: Target, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        raise LookupError("no room on the meter")

    with pytest.raises(LookupError):
        FallbackGateway(two(fake, gateway), attempt=refused).send(ask("anthropic"), seconds_max=9)
    assert not fake.seen


def test_a_model_that_cannot_take_the_history_is_skipped(fake: FakeServer, gateway: MakeGateway) -> None:
    """Row 120: no IO, no retry event; when none can, the request fails."""
    strict = Target(gateway("openrouter", foreign_history="reject"), "anthropic/claude-haiku-5.5")
    talk = ask("anthropic", AssistantMessage("hi"), UserMessage.of("on"))
    watch = Watch()
    reply = watch.over(strict, Target(gateway("anthropic"), "claude-haiku-5-5")).send(talk, seconds_max=9)
    assert reply.model == "claude-haiku-5-5"
    assert len(fake.seen) == 1
    assert not watch.told
    with pytest.raises(RequestRefused) as caught:
        watch.over(strict).check(talk)
    assert caught.value.code == "history_mismatch"


def test_a_scripted_failure_ends_with_a_later_try() -> None:
    script = ScriptedGateway.playing({"fails": "rate_limited", "times": 2, "text": "at last"})
    watch = Watch()
    reply = watch.over(Target(script, "")).send(ask("anthropic"), seconds_max=100)
    assert reply.text == "at last"
    assert len(watch.attempts) == 3


@pytest.mark.parametrize(
    ("error", "tries", "verdict"),
    [
        (RateLimited(status=429), 1, Again(1.0)),
        (RateLimited(status=429), 2, Again(2.0)),
        (RateLimited(status=429), 3, NextModel()),
        (RateLimited(status=429, retry_after_seconds=20), 1, Again(20)),
        (RateLimited(status=429, retry_after_seconds=61), 1, NextModel()),
        (SpendLimited(status=429), 1, GiveUp()),
        (Rejected(status=400), 1, GiveUp()),
        (TimedOut(), 1, GiveUp()),
    ],
)
def test_waits_grow_and_heed_the_provider(error: ProviderError, tries: int, verdict: object) -> None:
    """Row 114; C63: no worker sleeps through a long wait, and where nobody stands in, its caller schedules it."""
    assert after_failure(error, tries=tries, policy=Policy(), chance=1.0) == verdict


def test_both_forms_of_retry_after_are_heeded(fake: FakeServer, gateway: MakeGateway) -> None:
    """C63: seconds and a date. Waited is what the provider says, never less."""
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    for said, least, most in (("7", 7, 7), (at, 25, 30)):
        fake.reset()
        watch = Watch()
        play = Play(fault="status", status=429, headers={"retry-after": said})
        watch.over(*two(fake, gateway, play)).send(ask("anthropic"), seconds_max=100)
        assert least <= watch.time <= most
        assert [one.wait_seconds for one in watch.told if isinstance(one, Retried)] == [watch.time]


def test_who_asks_for_hours_is_left_for_the_next_account(fake: FakeServer, gateway: MakeGateway) -> None:
    """C63: an account that is shut for an hour is what a stand-in is for."""
    watch = Watch()
    hour = Play(fault="status", status=429, headers={"retry-after": "3600"})
    assert watch.over(*two(fake, gateway, hour)).send(ask("anthropic"), seconds_max=9).model == "gpt-4o-mini"
    assert (len(fake.seen), watch.time) == (2, 0)
    alone = Target(gateway("anthropic"), "claude-haiku-5-5")
    fake.push(hour)
    with pytest.raises(RateLimited) as caught:
        watch.over(alone).send(ask("anthropic"), seconds_max=9)
    assert caught.value.retry_after_seconds == 3600


def test_an_account_that_used_up_its_tries_rests(fake: FakeServer, gateway: MakeGateway) -> None:
    """The next question of a run begins where the last one was answered, and comes back after a while."""
    watch = Watch()
    chain = watch.over(*two(fake, gateway, *status(503, 503, 503)))
    for _ in range(2):
        assert chain.send(ask("anthropic"), seconds_max=100).model == "gpt-4o-mini"
    assert [seen.wire for seen in fake.seen] == ["anthropic"] * 3 + ["openai"] * 2
    assert watch.events(FellBack) == 1, "nobody switched again"
    watch.time += 60
    assert chain.send(ask("anthropic"), seconds_max=100).model == "claude-haiku-5-5"


def test_a_stand_in_is_asked_under_its_own_names(fake: FakeServer, gateway: MakeGateway) -> None:
    """Each has a model map of its own, before the names of its account."""
    named = {"claude-haiku-5-5": NamedModel("gpt-4o-mini", Thinking())}
    first = Target(gateway("anthropic"), connector="main")
    second = Target(gateway("openai"), connector="spare", models=named)
    fake.push(*status(503, 503, 503))
    watch = Watch()
    watch.over(first, second).send(ask("anthropic", thinking=ADAPTIVE), seconds_max=100)
    assert [seen.body["model"] for seen in fake.seen] == ["claude-haiku-5-5"] * 3 + ["gpt-4o-mini"]
    assert watch.told[-1] == FellBack("main", "spare", "claude-haiku-5-5", "gpt-4o-mini", "transient")


def test_a_stand_in_that_is_set_up_wrongly_leaves_the_failure_standing(
    fake: FakeServer, gateway: MakeGateway
) -> None:
    """Row 120: a configuration error is terminal when its turn comes; the first account is not its hostage."""
    wrong = Target(gateway("openai"), connector="spare")  # no name for the model, which thinks
    watch = Watch()
    chain = watch.over(Target(gateway("anthropic"), connector="main"), wrong)
    assert chain.send(ask("anthropic", tools=(EDIT,), thinking=ADAPTIVE), seconds_max=9).text == "hello"
    fake.push(*status(503, 503, 503))
    with pytest.raises(Unavailable):
        chain.send(ask("anthropic", tools=(EDIT,), thinking=ADAPTIVE), seconds_max=100)
    assert watch.told[-1] == Unfit("spare", "unsupported")
    assert watch.events(FellBack) == 0


def test_a_switch_takes_text_and_tool_calls_along_and_nothing_else(
    fake: FakeServer, gateway: MakeGateway
) -> None:
    """Row 121: signatures stay with their route, and arguments stay exact; at home nothing is lost."""
    first, second = two(fake, gateway, Play(step=CALLS, thinking="secret thought"))
    asked = ask("anthropic", tools=(EDIT,), thinking=ADAPTIVE)
    reply = first.gateway.send(asked, seconds_max=9)
    answer = ToolMessage(reply.tool_calls[0].id, EDIT.name, "done")
    talk = replace(asked, messages=(*asked.messages, reply.as_message(), answer))
    alone = first.gateway.ask(talk, stream=False)[1]  # type: ignore[attr-defined]  # of a wire
    fake.push(*status(503, 503, 503))
    elsewhere = replace(second, models={"claude-haiku-5-5": NamedModel("gpt-4o-mini", Thinking())}, model="")
    Watch().over(Target(first.gateway), elsewhere).send(talk, seconds_max=100)
    *home, abroad = fake.seen[1:]
    assert [{**seen.body, "stream": None} for seen in home] == [{**alone, "stream": None}] * 3
    assert "signature" in str(alone)
    said = json.dumps(abroad.body)
    assert "signature" not in said
    assert "thinking" not in said
    call = abroad.body["messages"][2]["tool_calls"][0]["function"]
    assert call["arguments"] == '{"path":  "a.py"}'
