"""Retry, then the next model; each physical attempt goes through the hook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from providers.errors import ProviderError, RateLimited, RequestRefused
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.fallback import (
    Again,
    FallbackGateway,
    FellBack,
    GiveUp,
    NextModel,
    Policy,
    Retried,
    Target,
    after_failure,
)
from providers.gateway import Gateway
from providers.messages import AssistantMessage, ModelReply, ModelRequest, UserMessage
from providers.scripted import ScriptedGateway
from tests.providers.conftest import MakeGateway, ask


@dataclass
class Watch:
    """The hook, the events and a clock of a test."""

    attempts: list[tuple[str, str]] = field(default_factory=list)
    told: list[Retried | FellBack] = field(default_factory=list)
    time: float = 0.0

    def attempt(self, gateway: Gateway, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        self.attempts.append((request.model, request.labels["try"]))
        return gateway.send(request, seconds_max=seconds_max)

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
    """Row 114."""
    watch = Watch()
    play = Play(fault="status", status=429, headers={"retry-after": "5"})
    with pytest.raises(RateLimited):
        watch.over(*two(fake, gateway, play)).send(ask("anthropic"), seconds_max=4)
    assert len(fake.seen) == 1
    assert watch.time == 0


def test_what_is_no_provider_error_ends_all(fake: FakeServer, gateway: MakeGateway) -> None:
    """The hook's own refusal, such as a meter's, passes through."""

    def refused(gateway: Gateway, request: ModelRequest, *, seconds_max: float) -> ModelReply:
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
        (RateLimited(status=429, retry_after_seconds=61), 1, GiveUp()),
    ],
)
def test_waits_grow_and_heed_the_provider(error: ProviderError, tries: int, verdict: object) -> None:
    """Row 114; C63: a long wait is the caller's to schedule."""
    assert after_failure(error, tries=tries, policy=Policy(), chance=1.0) == verdict
