"""Shortens the logs of failed attempts for the next one: a metered question at haiku, or their end as it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agents.calls import Tell
from agents.clock import WALL, Clock
from agents.complete import CALLS_PER_QUESTION_MAX, Question, ask
from agents.context.compile import CHARACTERS_PER_TOKEN, tokens_in
from agents.context.fence import fence
from agents.errors import StopRun
from agents.prompts import COMPACTOR
from agents.spec import Payers
from agents.tab import Tab
from budgets.money import ZERO, Usd
from providers.gateway import Gateway
from routing.words import BUDGET, EndReason, Tier

LOG_TOKENS_MAX = 6_000
SUMMARY_TOKENS_MAX = 2_000
# What is asked about: the ends of the logs, where the reasons of the failures stand.
ASKED_CHARACTERS_MAX = 400_000
assert SUMMARY_TOKENS_MAX < LOG_TOKENS_MAX

# These end the start of the run; any other failure of the question leaves the logs as they are (row 20).
STOPS = BUDGET | {EndReason.CANCELLED, EndReason.WORKER_LOST}


class Compaction(StrEnum):
    """What became of the logs; a column of the run."""

    NONE = ""  # short enough
    DONE = "done"
    FALLBACK = "fallback"  # the last tokens verbatim


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The known cost and the unknown calls belong to the run that is being started (row 21)."""

    text: str
    how: Compaction
    cost: Usd = ZERO
    unknown_calls: int = 0


def compact_log(
    log: str,
    payers: Payers,
    *,
    gateway: Gateway | None = None,
    clock: Clock = WALL,
    tell: Tell = lambda _: None,
) -> Compacted:
    """The log of earlier failures, at most `LOG_TOKENS_MAX` long. Exactly that many tokens are left as they are.

    Raises `StopRun` when a budget refuses the question, or only held money does (note `held`).
    """
    if tokens_in(log) <= LOG_TOKENS_MAX:
        return Compacted(text=log, how=Compaction.NONE)
    question = Question(
        role="compactor",
        system=COMPACTOR,
        prompt=f"The logs, oldest first:\n{fence('logs', log[-ASKED_CHARACTERS_MAX:])}",
        tier=Tier.HAIKU,
        output_tokens_max=SUMMARY_TOKENS_MAX,
    )
    tab = Tab(calls_max=CALLS_PER_QUESTION_MAX)
    try:
        answer = ask(question, payers, gateway=gateway, clock=clock, tab=tab, tell=tell)
        usable = not answer.cut_off and 0 < tokens_in(answer.text.strip()) <= LOG_TOKENS_MAX
    except StopRun as stop:
        if stop.end in STOPS:
            raise
        usable = False
    return Compacted(
        text=answer.text.strip() if usable else _tail(log),
        how=Compaction.DONE if usable else Compaction.FALLBACK,
        cost=tab.cost,
        unknown_calls=tab.unknown_calls,
    )


def _tail(log: str) -> str:
    return log[-LOG_TOKENS_MAX * CHARACTERS_PER_TOKEN :]
