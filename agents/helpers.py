"""The helper roles: one stateless question each, and at most one repair (rows 167 to 174)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry

from agents.calls import Answered, call_model, gateway_for, tries_of
from agents.clock import WALL, Clock
from agents.errors import AllowanceRefused, HelperMisconfigured, HelperOutputError, StopRun
from agents.jsontext import NotFound, extract_object
from agents.prompts import COMPACTOR, EXTRACTOR, JSON_ONLY, REPAIR, VERIFIER
from agents.spec import Payers, Supervisor
from agents.tab import Tab
from budgets.model_tasks import note_validation
from budgets.money import ZERO, Usd
from budgets.prices import tokens_of
from providers.catalog import profile_of
from providers.errors import RequestRefused
from providers.gateway import Gateway
from providers.messages import (
    Message,
    ModelReply,
    ModelRequest,
    StopKind,
    SystemMessage,
    Thinking,
    ThinkingMode,
    UserMessage,
)
from providers.parts import request_characters
from routing.words import EndReason

NO_THINKING = Thinking()
CALLS_PER_HELPER_MAX = 2  # one generation and one repair (row 176)


class HelperRole(StrEnum):
    COMPACTOR = "compactor"
    EXTRACTOR = "extractor"
    VERIFIER = "verifier"


INSTRUCTIONS = {
    HelperRole.COMPACTOR: COMPACTOR,
    HelperRole.EXTRACTOR: EXTRACTOR,
    HelperRole.VERIFIER: VERIFIER,
}
assert INSTRUCTIONS.keys() == set(HelperRole)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperProfile:
    """Which account and model play a role. Trusted configuration, never a model's choice.

    `input_tokens_max` states the capacity of a model that the catalogue does not know (row 95).
    """

    connector: str
    model: str
    output_tokens_max: int
    instructions: str = ""  # empty: the role's own
    thinking: Thinking = NO_THINKING
    input_tokens_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a packet builder is told, once, before it builds."""

    connector: str
    model: str
    input_tokens_max: int
    output_tokens_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of a helper, and whether its output passed. Its charge stands either way (row 174)."""

    phase: str  # generation, repair
    validation: str  # ok, failed
    cost: Usd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Helped:
    """`value` is the object that fits both schemas; None for a helper that was asked for plain text."""

    value: Mapping[str, Any] | None
    text: str
    invocations: tuple[Invocation, ...]

    @property
    def cost(self) -> Usd | None:
        """The exact cost of all calls; None when one of them is unknown."""
        total = ZERO
        for each in self.invocations:
            if each.cost is None:
                return None
            total += each.cost
        return total


Packet = str | Callable[[Allowance], str]


def invoke_helper(
    role: str,
    packet: Packet,
    payers: Payers,
    *,
    profile: HelperProfile,
    schema: Mapping[str, Any] | None = None,
    validation_schema: Mapping[str, Any] | None = None,
    tab: Tab | None = None,
    gateway: Gateway | None = None,
    supervisor: Supervisor | None = None,
    clock: Clock = WALL,
) -> Helped:
    """Asks a helper, on the connector of its profile. `tab` is a host's own allowance of calls and money.

    Payers under a ModelTask have each call admitted there, the repair too, and its validation noted.

    Everything that can be wrong without asking is found before `packet` is built: role, connector,
    capabilities, thinking and both schemas. Raises `HelperMisconfigured`, `HelperOutputError`, or the
    `StopRun` of a refused budget or a broken wire.
    """
    paid = replace(payers, connector=profile.connector, purpose=str(_role(role)), tier="")
    validators = [validator_of(each) for each in (schema, validation_schema) if each is not None]
    asked = gateway or gateway_for(paid)
    native = schema if "native_output" in profile_of(profile.model).can else None
    _check(asked, _request(profile, role, paid, _turns("x", ""), native))
    allowance = _allowance(profile)
    said = packet if isinstance(packet, str) else packet(allowance)
    guidance = "".join(
        f"\n\n{JSON_ONLY}\n{json.dumps(each, sort_keys=True)}"
        for each in (None if native else schema, validation_schema)
        if each is not None
    )
    talk = _Talk(
        turns=_turns(said, guidance),
        allowance=allowance,
        validators=validators,
        tab=tab or Tab(calls_max=CALLS_PER_HELPER_MAX * tries_of(asked)),
        payers=_within(paid, allowance),
        gateway=asked,
        supervisor=supervisor,
        clock=clock,
    )
    return talk.run(lambda turns: _request(profile, role, paid, turns, native))


@dataclass(slots=True, kw_only=True)
class _Talk:
    """One generation, and its repair when the output does not fit."""

    turns: tuple[Message, ...]
    allowance: Allowance
    validators: list[Draft202012Validator]
    tab: Tab
    payers: Payers
    gateway: Gateway
    supervisor: Supervisor | None
    clock: Clock
    done: list[Invocation] = field(default_factory=list)

    def run(self, request_of: Callable[[tuple[Message, ...]], ModelRequest]) -> Helped:
        request = request_of(self.turns)
        self._fits(request, "packet_too_large")
        answered = self._call(request, "generation")
        value, problem = self._read(answered.reply)
        self._book("generation", problem, answered)
        if problem:
            repair = UserMessage.of(REPAIR.format(problem=problem))
            request = request_of((*self.turns, answered.reply.as_message(), repair))
            self._fits(request, "repair_too_large")
            answered = self._repaired(request, problem)
            value, problem = self._read(answered.reply)
            self._book("repair", problem, answered)
        if problem:
            raise HelperOutputError("invalid", problem, calls=len(self.done))
        return Helped(value=value, text=answered.reply.text, invocations=tuple(self.done))

    def _call(self, request: ModelRequest, phase: str) -> Answered:
        answered = call_model(
            request,
            _in_phase(self.payers, phase),
            gateway=self.gateway,
            tab=self.tab,
            supervisor=self.supervisor,
            clock=self.clock,
        )
        ended = _ended_badly(answered.reply)
        if ended:  # row 173: no repair, and no tool is ever run
            self._book(phase, ended, answered)
            raise HelperOutputError(ended, "the helper gave no answer to read", calls=len(self.done))
        return answered

    def _repaired(self, request: ModelRequest, problem: str) -> Answered:
        """The repair; an allowance that is used up fails the helper with what was wrong (example 15b)."""
        try:
            return self._call(request, "repair")
        except StopRun as stop:
            if stop.end not in (EndReason.RUN_CALL_CAP, EndReason.RUN_COST_CAP):
                raise
            dimension = "calls" if stop.end is EndReason.RUN_CALL_CAP else "cost"
            if isinstance(stop, AllowanceRefused):
                dimension = stop.dimension
            raise HelperOutputError(f"budget_exceeded_{dimension}", problem, calls=len(self.done)) from stop

    def _read(self, reply: ModelReply) -> tuple[Mapping[str, Any] | None, str]:
        """The value of an answer, and what is wrong with it; empty when nothing is."""
        if not self.validators:
            return None, "" if reply.text.strip() else "the answer is empty"
        found = extract_object(reply.text)
        if isinstance(found, NotFound):
            return None, str(found)
        for validator in self.validators:  # both must pass (row 171)
            error = best_match(validator.iter_errors(found.value))
            if error is not None:
                where = ".".join(str(part) for part in error.absolute_path)
                return None, f"{where or 'the object'}: {error.message[:300]}"
        return found.value, ""

    def _book(self, phase: str, problem: str, answered: Answered) -> None:
        if answered.invocation_id is not None:
            note_validation(answered.invocation_id, "failed" if problem else "passed")
        self.done.append(
            Invocation(phase=phase, validation="failed" if problem else "ok", cost=answered.cost)
        )

    def _fits(self, request: ModelRequest, code: str) -> None:
        """Nothing is trimmed: what does not fit is not sent (row 172)."""
        tokens = tokens_of(request_characters(request))
        if tokens > self.allowance.input_tokens_max:
            text = f"{tokens} of {self.allowance.input_tokens_max} tokens"
            raise HelperOutputError(code, text, calls=len(self.done))


def _role(role: str) -> HelperRole:
    if role not in set(HelperRole):
        raise HelperMisconfigured(
            "unknown_role", f"a helper is one of {', '.join(HelperRole)}, not {role[:40]!r}"
        )
    return HelperRole(role)


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """A compiled schema of this call alone. It may refer to itself, to nothing else (row 171)."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise HelperMisconfigured("invalid_schema", error.message[:300]) from error
    outside = [ref for ref in _references(schema) if not ref.startswith("#")]
    if outside:
        raise HelperMisconfigured(
            "invalid_schema", f"a schema may only refer to itself, not to {outside[0][:100]!r}"
        )
    return Draft202012Validator(schema, registry=Registry(), format_checker=FormatChecker())


def _references(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [ref for value in schema.values() for ref in _references(value)]
    if isinstance(schema, list):
        return [ref for value in schema for ref in _references(value)]
    return []


def _check(gateway: Gateway, request: ModelRequest) -> None:
    thinking = request.thinking
    if thinking.mode is ThinkingMode.BUDGET and (thinking.budget_tokens or 0) >= request.output_tokens_max:
        raise HelperMisconfigured(
            "thinking_budget", "the thinking budget must be smaller than the output cap"
        )
    try:
        gateway.check(gateway.fit(request))
    except RequestRefused as refused:
        raise HelperMisconfigured(refused.code, str(refused)) from refused


def _allowance(profile: HelperProfile) -> Allowance:
    capacity = profile.input_tokens_max or profile_of(profile.model).input_tokens
    if capacity is None:
        raise HelperMisconfigured(
            "unknown_capacity", f"nobody knows how much {profile.model!r} takes; state it"
        )
    return Allowance(
        connector=profile.connector,
        model=profile.model,
        input_tokens_max=capacity,
        output_tokens_max=profile.output_tokens_max,
    )


def _within(payers: Payers, allowance: Allowance) -> Payers:
    """The same, where an allowance has to know how much the model takes."""
    if payers.allowance is None:
        return payers
    return replace(payers, allowance=replace(payers.allowance, input_capacity=allowance.input_tokens_max))


def _in_phase(payers: Payers, phase: str) -> Payers:
    if payers.allowance is None:
        return payers
    return replace(payers, allowance=replace(payers.allowance, phase=phase))


def _request(
    profile: HelperProfile,
    role: str,
    payers: Payers,
    turns: tuple[Message, ...],
    schema: Mapping[str, Any] | None,
) -> ModelRequest:
    """No tools, no cache, no history: the role's words and the packet (rows 109, 167)."""
    return ModelRequest(
        model=profile.model,
        messages=(SystemMessage(profile.instructions or INSTRUCTIONS[_role(role)]), *turns),
        output_tokens_max=profile.output_tokens_max,
        output_schema=schema,
        thinking=profile.thinking,
        labels={**payers.labels, "purpose": payers.purpose, "role": role},
    )


def _turns(packet: str, guidance: str) -> tuple[Message, ...]:
    return (UserMessage.of(packet + guidance),)


def _ended_badly(reply: ModelReply) -> str:
    if reply.tool_calls:
        return "tool_request"
    return {StopKind.REFUSED: "refused", StopKind.LENGTH: "incomplete"}.get(reply.stop, "")
