"""ask(): one question, one answer. Planner, intake, reviews, classifier and the acceptance check ask here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from agents.calls import Answered, Tell, call_model, gateway_for
from agents.clock import WALL, Clock
from agents.errors import StopRun
from agents.prompts import JSON_ONLY
from agents.repetition import ask_again_once, retried
from agents.spec import CALL_SECONDS_MAX, Payers, Supervisor
from agents.tab import Tab
from budgets.money import Usd
from providers.gateway import Gateway
from providers.messages import (
    CachePlan,
    Message,
    ModelRequest,
    StopKind,
    SystemMessage,
    Thinking,
    ThinkingMode,
    UserMessage,
)
from providers.plans import TRIES_MAX
from routing.tiers import ModelChoice, model_for_question
from routing.words import EndReason, Tier

# The question and its one repetition after a passing error, or all the tries of a connector's plan.
CALLS_PER_QUESTION_MAX = max(2, TRIES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of which role. `schema` is told to the model; whoever asked checks the answer.

    `earlier` are the turns before, for a follow-up: whole turns, thinking blocks included (row 81).
    """

    role: str
    system: str
    prompt: str
    tier: Tier
    output_tokens_max: int
    schema: Mapping[str, Any] | None = None
    earlier: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`stop` is LENGTH for an answer that was cut off: never complete. `cost` None is unknown."""

    text: str
    stop: StopKind
    cost: Usd | None
    model: str
    unknown_calls: int = 0
    turns: tuple[Message, ...] = ()  # the question and the whole answer, for a follow-up's `earlier`

    @property
    def cut_off(self) -> bool:
        return self.stop is StopKind.LENGTH


def ask(
    question: Question,
    payers: Payers,
    *,
    gateway: Gateway | None = None,
    supervisor: Supervisor | None = None,
    clock: Clock = WALL,
    tab: Tab | None = None,
    seconds_max: float = CALL_SECONDS_MAX,
    tell: Tell = lambda _: None,
) -> Answer:
    """One metered question, asked a second time after a passing error. `payers.key` must be new for each question.

    `tab` lets a caller see what a question cost that failed; `tell` hears of retries and of stand-ins.
    Raises `StopRun`: a refused budget with its refusals; held money in the way with the note `held`;
    transport errors with their names; a refusal of the model as `refused`.
    """
    asked = gateway or gateway_for(payers)
    choice = model_for_question(
        question.tier, allow_opus=settings.PLANE.allow_opus, output_tokens_max=question.output_tokens_max
    )
    tab = tab or Tab(calls_max=CALLS_PER_QUESTION_MAX)

    def build(number: int) -> ModelRequest:
        if number > 1:
            tell(retried(payers, tab, model=choice.name))
        return _request(question, choice, payers, number)

    def call(request: ModelRequest) -> Answered:
        return call_model(
            request,
            payers,
            gateway=asked,
            tab=tab,
            supervisor=supervisor,
            clock=clock,
            seconds_max=seconds_max,
            tell=tell,
        )

    answered = ask_again_once(build, call, tab=tab, supervisor=supervisor, clock=clock)
    if answered.reply.stop is StopKind.REFUSED:
        raise StopRun(EndReason.REFUSED, f"the model refused the question of the {question.role}")
    return Answer(
        text=answered.reply.text,
        stop=answered.reply.stop,
        cost=None if tab.unknown_calls else tab.cost,
        model=answered.reply.model,
        unknown_calls=tab.unknown_calls,
        turns=(*_turns(question), answered.reply.as_message()),
    )


def told_schema(prompt: str, schema: Mapping[str, Any] | None) -> str:
    """The prompt with the schema that its answer must fit."""
    if schema is None:
        return prompt
    return f"{prompt}\n\n{JSON_ONLY}\n{json.dumps(schema, sort_keys=True)}"


def thinking_of(choice: ModelChoice) -> Thinking:
    mode = ThinkingMode(choice.thinking)
    return Thinking(mode, effort=choice.effort if mode is not ThinkingMode.OFF else "")


def _request(question: Question, choice: ModelChoice, payers: Payers, number: int) -> ModelRequest:
    labels = {
        **payers.labels,
        "role": question.role,
        "purpose": payers.purpose,
        "tier": question.tier.word,
        "try": str(number),
    }
    return ModelRequest(
        model=choice.name,
        messages=(SystemMessage(question.system), *_turns(question)),
        output_tokens_max=choice.output_tokens_max,
        thinking=thinking_of(choice),
        cache=CachePlan.SYSTEM,
        labels=labels,
    )


def _turns(question: Question) -> tuple[Message, ...]:
    return (*question.earlier, UserMessage.of(told_schema(question.prompt, question.schema)))
