"""Retry, then the next account: a Gateway made of Gateways (rows 111 to 123)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from providers.account import NamedModel
from providers.catalog import PriceCard
from providers.deadlines import WAIT_SECONDS_MAX, Deadline
from providers.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NotSent,
    ProviderError,
    RequestRefused,
    SpendLimited,
    TimedOut,
)
from providers.gateway import Gateway
from providers.messages import ModelReply, ModelRequest
from providers.plans import Policy
from providers.statuses import RETRIED

BACKOFF_SECONDS = 1.0
BACKOFF_SECONDS_MAX = 30.0
# An account whose tries were used up is not asked first again for so long, or for as long as it says itself.
REST_SECONDS = 60.0
HISTORY_MISMATCH = "history_mismatch"
assert BACKOFF_SECONDS_MAX <= WAIT_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Target:
    """A model at an account. `model` empty: the one that is asked for, under the name that `models` has for it."""

    gateway: Gateway
    model: str = ""
    connector: str = ""
    models: Mapping[str, NamedModel] = field(default_factory=dict)

    def asked(self, request: ModelRequest, number: int) -> ModelRequest:
        """The request as this account takes it; `number` is the physical try of the question, from 1."""
        named = NamedModel(self.model) if self.model else self.models.get(request.model)
        if named is not None:
            request = replace(request, model=named.model, thinking=named.thinking or request.thinking)
        return self.gateway.fit(replace(request, labels={**request.labels, "try": str(number)}))


@dataclass(frozen=True, slots=True)
class Again:
    """The same model once more, after so many seconds."""

    wait_seconds: float


@dataclass(frozen=True, slots=True)
class NextModel:
    """This model's tries are used up, or it asks for more patience than a worker has."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nobody is asked again."""


@dataclass(frozen=True, slots=True)
class Retried:
    """One retry event (row 119): the failed call, and how long is waited."""

    connector: str
    model: str
    attempt: int
    kind: str
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class FellBack:
    """One fallback event: not a retry."""

    from_connector: str
    to_connector: str
    from_model: str
    to_model: str
    kind: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """A stand-in that cannot be asked this at all. Its configuration is at fault: the failure before it stands."""

    connector: str
    code: str


Happening = Retried | FellBack | Unfit


class Attempt(Protocol):
    """How one physical request is made: the hook through which each one is admitted.

    `FallbackGateway` never calls `gateway.send` itself. The engine passes its metered
    send: admit and reserve for this account and this request's model, send, settle or
    keep or release, and raise what came. So every physical attempt has a hold of its
    own, and an attempt whose charge is unknown keeps it while the next one is made.
    What is no `ProviderError` (a refused meter, a cancelled run) ends all at once.
    """

    def __call__(self, target: Target, request: ModelRequest, *, seconds_max: float) -> ModelReply: ...


def unmetered(target: Target, request: ModelRequest, *, seconds_max: float) -> ModelReply:
    """The plain hook, for tests and for what is metered elsewhere."""
    return target.gateway.send(request, seconds_max=seconds_max)


def after_failure(
    error: ProviderError, *, tries: int, policy: Policy, chance: float
) -> Again | NextModel | GiveUp:
    """What follows the `tries`-th failed try of a model. `chance` is between 0 and 1: the jitter.

    Spend limits end everything (row 117); only statuses that returned no output are tried
    again (row 112). No worker sleeps through a longer wait than `WAIT_SECONDS_MAX` (C63): the
    next account is asked, and without one the caller schedules the wait.
    """
    if not _may_repeat(error, policy):
        return GiveUp()
    backoff = min(BACKOFF_SECONDS * 2 ** (tries - 1), BACKOFF_SECONDS_MAX) * (0.5 + chance / 2)
    wait = max(backoff, error.retry_after_seconds or 0.0)
    return Again(wait) if tries <= policy.retries_max and wait <= WAIT_SECONDS_MAX else NextModel()


@dataclass
class FallbackGateway:
    """Asks the first account, again and again within limits, then the next one.

    One `send` is one logical request with up to (retries + 1) x accounts physical ones; each goes
    through `attempt`, and `request.labels["try"]` counts them from 1. `latest` gives the request of a
    later try: it may be the last call of its run, and then says so.
    """

    targets: Sequence[Target]
    attempt: Attempt = unmetered
    policy: Policy = field(default_factory=Policy)
    tell: Callable[[Happening], None] = lambda _: None
    latest: Callable[[ModelRequest], ModelRequest] = lambda request: request
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    # By place in the line: until when an account is not asked. Of one run: whoever asks anew begins with none.
    resting: dict[int, float] = field(default_factory=dict)

    @property
    def account(self) -> str:
        return self.targets[0].gateway.account

    @property
    def tries_max(self) -> int:
        return (self.policy.retries_max + 1) * len(self.targets)

    def fit(self, request: ModelRequest) -> ModelRequest:
        return request

    def price(self, model: str) -> PriceCard | None:
        """Of the first account; each try is priced at the one that it asks."""
        return self.targets[0].gateway.price(model)

    def check(self, request: ModelRequest) -> None:
        """Refuses what no account takes, and what the first that takes the history cannot be asked (row 120)."""
        refused: RequestRefused | None = None
        for target in self.targets:
            refused = _mismatch(target, request)
            if refused is None:
                return
        raise refused or RequestRefused("no_model", "no model is configured")

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        deadline = Deadline.after(seconds_max, now=self.clock())
        asking = _Asking(self, request, deadline)
        refused: RequestRefused | None = None
        for place in self._line():
            mismatch = asking.mismatch(place)
            if mismatch is not None:
                refused = mismatch  # row 120: skipped, no IO and no event
                continue
            reply = asking.ask(place)
            if reply is not None:
                return reply
        raise asking.failure or refused or RequestRefused("no_model", "no model is configured")

    def _line(self) -> list[int]:
        """The places to ask, in order: those that do not rest; all of them when none is awake."""
        now = self.clock()
        places = range(len(self.targets))
        return [place for place in places if self.resting.get(place, now) <= now] or list(places)


@dataclass
class _Asking:
    """One logical request on its way along the line."""

    chain: FallbackGateway
    request: ModelRequest
    deadline: Deadline
    attempts: int = 0
    failure: ProviderError | None = None  # of the account before
    failed: int = 0  # its place

    def mismatch(self, place: int) -> RequestRefused | None:
        """Why this talk cannot go there. A stand-in that is set up wrongly leaves the failure before it standing."""
        target = self.chain.targets[place]
        try:
            return _mismatch(target, self.request)
        except RequestRefused as wrong:
            if self.failure is None:
                raise
            self.chain.tell(Unfit(target.connector, wrong.code))
            raise self.failure from wrong

    def ask(self, place: int) -> ModelReply | None:
        """Its answer; None when its tries are used up. Raises what ends all."""
        target = self.chain.targets[place]
        self._seconds_left()
        if self.failure is not None:
            self._tell_switch(target)
        for tries in range(1, self.chain.policy.retries_max + 2):
            self.attempts += 1
            asked = target.asked(self.chain.latest(self.request), self.attempts)
            try:
                return self.chain.attempt(target, asked, seconds_max=self._seconds_left())
            except ProviderError as error:
                if not self._goes_on(error, asked, place, tries):
                    break
        return None

    def _goes_on(self, error: ProviderError, asked: ModelRequest, place: int, tries: int) -> bool:
        """Waits for the next try here, or leaves the account for the next one; raises when the failure stands."""
        chain, now = self.chain, self.chain.clock()
        match after_failure(error, tries=tries, policy=chain.policy, chance=chain.chance()):
            case GiveUp():
                raise error
            case NextModel():
                self.failure, self.failed = error, place
                chain.resting[place] = now + max(REST_SECONDS, error.retry_after_seconds or 0.0)
                return False
            case Again(wait_seconds=wait):
                if not self.deadline.allows(wait, now=now):  # row 114
                    raise _out_of_time(f"a wait of {wait:.1f} s would pass it", error) from error
                connector = chain.targets[place].connector
                chain.tell(Retried(connector, asked.model, self.attempts, error.kind, wait))
                chain.sleep(wait)
        return True

    def _tell_switch(self, target: Target) -> None:
        assert self.failure is not None, "somebody failed before"
        before = self.chain.targets[self.failed]
        self.chain.tell(
            FellBack(
                before.connector,
                target.connector,
                before.asked(self.request, self.attempts).model,
                target.asked(self.request, self.attempts).model,
                self.failure.kind,
            )
        )

    def _seconds_left(self) -> float:
        left = self.deadline.left(now=self.chain.clock())
        if left <= 0:
            raise _out_of_time("no time is left to ask", self.failure)
        return left


def _mismatch(target: Target, request: ModelRequest) -> RequestRefused | None:
    """The refusal of a talk that belongs elsewhere; any other refusal is raised: it is terminal (row 120)."""
    try:
        target.gateway.check(target.asked(request, 1))
    except RequestRefused as refused:
        if refused.code == HISTORY_MISMATCH:
            return refused
        raise
    return None


def _out_of_time(why: str, error: ProviderError | None) -> DeadlineExceeded:
    """Keeps what the last failure knew, so that its own wait is heeded when the work is scheduled anew."""
    text = f"deadline_exceeded: {why}"
    if error is None:
        return DeadlineExceeded(text)
    return DeadlineExceeded(
        f"{text} after {error.kind}",
        status=error.status,
        retry_after_seconds=error.retry_after_seconds,
        request_id=error.request_id,
    )


def _may_repeat(error: ProviderError, policy: Policy) -> bool:
    if isinstance(error, SpendLimited | RequestRefused | DeadlineExceeded) or error.output_began:
        return False
    if error.status is not None:
        return error.status in RETRIED
    if isinstance(error, NotSent | TimedOut | ConnectionLost):
        return policy.retry_transport
    # A scripted or wrapped failure without a status counts by its class.
    return error.kind in ("rate_limited", "transient")
