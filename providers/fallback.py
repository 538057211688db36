"""Retry, then the next model: a Gateway made of Gateways (rows 111 to 123)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from providers.deadlines import WAIT_SECONDS_MAX, Deadline
from providers.errors import ConnectionLost, NotSent, ProviderError, RequestRefused, SpendLimited, TimedOut
from providers.gateway import Gateway
from providers.messages import ModelReply, ModelRequest
from providers.statuses import RETRIED

RETRIES_MAX = 2  # of each model: three tries
BACKOFF_SECONDS = 1.0
BACKOFF_SECONDS_MAX = 30.0
assert BACKOFF_SECONDS_MAX <= WAIT_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Target:
    """A model at an account."""

    gateway: Gateway
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`retry_transport`: are lost connections and timeouts tried again, too? They may be paid twice (C64)."""

    retries_max: int = RETRIES_MAX
    retry_transport: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """The same model once more, after so many seconds."""

    wait_seconds: float


@dataclass(frozen=True, slots=True)
class NextModel:
    """This model's tries are used up."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nobody is asked again."""


@dataclass(frozen=True, slots=True)
class Retried:
    """One retry event (row 119)."""

    model: str
    attempt: int
    kind: str
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class FellBack:
    """One fallback event: not a retry."""

    from_model: str
    to_model: str
    kind: str


class Attempt(Protocol):
    """How one physical request is made: the hook through which each one is admitted.

    `FallbackGateway` never calls `gateway.send` itself. The engine passes its metered
    send: admit and reserve for this gateway's account and this request's model, send,
    settle or keep or release, and raise what came. So every physical attempt has a hold
    of its own, and an attempt whose charge is unknown keeps it while the next one is
    made. What is no `ProviderError` (a refused meter, a cancelled run) ends all at once.
    """

    def __call__(self, gateway: Gateway, request: ModelRequest, *, seconds_max: float) -> ModelReply: ...


def unmetered(gateway: Gateway, request: ModelRequest, *, seconds_max: float) -> ModelReply:
    """The plain hook, for tests and for what is metered elsewhere."""
    return gateway.send(request, seconds_max=seconds_max)


def after_failure(
    error: ProviderError, *, tries: int, policy: Policy, chance: float
) -> Again | NextModel | GiveUp:
    """What follows the `tries`-th failed try of a model. `chance` is between 0 and 1: the jitter.

    Spend limits end everything (row 117); only statuses that returned no output are tried
    again (row 112); a wait longer than a worker should sleep is left to the caller (C63).
    """
    if not _may_repeat(error, policy):
        return GiveUp()
    if tries > policy.retries_max:
        return NextModel()
    backoff = min(BACKOFF_SECONDS * 2 ** (tries - 1), BACKOFF_SECONDS_MAX) * (0.5 + chance / 2)
    wait = max(backoff, error.retry_after_seconds or 0.0)
    return Again(wait) if wait <= WAIT_SECONDS_MAX else GiveUp()


@dataclass
class FallbackGateway:
    """Asks the first model, again and again within limits, then the next one.

    One `send` is one logical request with up to (retries + 1) x models physical ones;
    each goes through `attempt`. `request.labels["try"]` counts them from 1.
    """

    targets: Sequence[Target]
    attempt: Attempt = unmetered
    policy: Policy = field(default_factory=Policy)
    tell: Callable[[Retried | FellBack], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    @property
    def account(self) -> str:
        return self.targets[0].gateway.account

    def fit(self, request: ModelRequest) -> ModelRequest:
        return request

    def check(self, request: ModelRequest) -> None:
        self._fitting(request)

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        deadline = Deadline.after(seconds_max, now=self.clock())
        targets = self._fitting(request)
        attempts = 0
        for place, target in enumerate(targets):
            tries = 0
            while True:
                attempts, tries = attempts + 1, tries + 1
                asked = _asked(request, target, attempts)
                try:
                    return self.attempt(target.gateway, asked, seconds_max=deadline.left(now=self.clock()))
                except ProviderError as error:
                    if not self._goes_on(
                        error,
                        target,
                        following=targets[place + 1 :],
                        tries=tries,
                        attempts=attempts,
                        deadline=deadline,
                    ):
                        raise
                    if tries > self.policy.retries_max:
                        break
        raise AssertionError("the last model's failure is raised")

    def _goes_on(
        self,
        error: ProviderError,
        target: Target,
        *,
        following: Sequence[Target],
        tries: int,
        attempts: int,
        deadline: Deadline,
    ) -> bool:
        """Wait for the next try, or announce the next model; False when the failure stands."""
        match after_failure(error, tries=tries, policy=self.policy, chance=self.chance()):
            case Again(wait_seconds=wait):
                if not deadline.allows(wait, now=self.clock()):
                    return False  # row 114: the wait would pass the deadline
                self.tell(Retried(target.model, attempts, error.kind, wait))
                self.sleep(wait)
                return True
            case NextModel():
                if not following or deadline.left(now=self.clock()) <= 0:
                    return False
                self.tell(FellBack(target.model, following[0].model, error.kind))
                return True
            case GiveUp():
                return False
            case unknown:
                assert_never(unknown)

    def _fitting(self, request: ModelRequest) -> list[Target]:
        """The models whose preflight takes this talk; another refusal than of its history is terminal (row 120)."""
        fitting: list[Target] = []
        mismatch: RequestRefused | None = None
        for target in self.targets:
            try:
                target.gateway.check(_asked(request, target, 1))
            except RequestRefused as refused:
                if refused.code != "history_mismatch":
                    raise
                mismatch = refused
            else:
                fitting.append(target)
        if not fitting:
            raise mismatch or RequestRefused("no_model", "no model is configured")
        return fitting


def _asked(request: ModelRequest, target: Target, attempt: int) -> ModelRequest:
    labels = {**request.labels, "try": str(attempt)}
    return replace(request, model=target.model or request.model, labels=labels)


def _may_repeat(error: ProviderError, policy: Policy) -> bool:
    if isinstance(error, SpendLimited | RequestRefused) or error.output_began:
        return False
    if error.status is not None:
        return error.status in RETRIED
    if isinstance(error, NotSent | TimedOut | ConnectionLost):
        return policy.retry_transport
    # A scripted or wrapped failure without a status counts by its class.
    return error.kind in ("rate_limited", "transient")
