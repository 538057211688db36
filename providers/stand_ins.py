"""May these connectors stand in for that one? Asked when a plan is saved, so that nobody finds out in an outage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.conf import settings

from providers.catalog import price_card
from providers.connectors import gateway_of
from providers.errors import RequestRefused
from providers.fallback import Target
from providers.messages import (
    CachePlan,
    ModelRequest,
    SystemMessage,
    Thinking,
    ThinkingMode,
    ToolSpec,
    UserMessage,
)
from providers.models import Connector, ConnectorKind
from providers.plans import Plan, StandIn, read_plan
from routing.tiers import ModelChoice, model_for, model_for_question
from routing.words import Tier
from tenants.errors import InvalidInput
from tenants.models import Organization

# A question that any role may ask: short enough for every model.
QUESTION_OUTPUT_TOKENS = 1_000


def check_plan(organization: Organization, name: str, plan: Plan | None) -> None:
    """Raises InvalidInput at `fallback`, naming the entry and the remedy; looks at this organization's rows alone."""
    if plan is None or not plan.stand_ins:
        return
    rows = {row.name: row for row in Connector.objects.of_organization(organization.pk)}
    for index, stand_in in enumerate(plan.stand_ins):
        place = f"connectors[{index}]"
        row = _row(rows, name, stand_in, place)
        if row.kind != ConnectorKind.SCRIPTED:  # a script answers to labels, whatever the model
            _check_models(row, stand_in, place)


def standing_in_for(connector: Connector) -> list[str]:
    """The names of those connectors that this one stands in for."""
    rows = Connector.objects.of_organization(connector.organization_id).exclude(fallback={}).order_by("name")
    return [row.name for row in rows if connector.name in _named_by(row)]


def _row(rows: Mapping[str, Connector], name: str, stand_in: StandIn, place: str) -> Connector:
    said = stand_in.connector
    if said == name:
        raise _wrong(f"{place} names this connector itself", "Name another connector of the organization.")
    if said not in rows:
        others = ", ".join(sorted(set(rows) - {name})) or "none yet"
        raise _wrong(
            f"{place}: this organization has no connector named {said[:63]!r}",
            f"Make it first, or name one that is there: {others}.",
            code="connector_not_found",
        )
    if not rows[said].enabled:
        raise _wrong(
            f"{place}: {said} is disabled", "Enable it first, or take it out.", code="connector_disabled"
        )
    return rows[said]


def _named_by(row: Connector) -> list[str]:
    plan = read_plan(row.fallback)
    return [] if plan is None else [stand_in.connector for stand_in in plan.stand_ins]


def _check_models(row: Connector, stand_in: StandIn, place: str) -> None:
    """What Remit asks of its tiers can be asked there, too, and has a price there."""
    try:
        target = Target(gateway_of(row), connector=row.name, models=stand_in.models)
    except RequestRefused as refused:
        raise _wrong(f"{place}: {row.name}: {refused}", "Correct that connector first.") from None
    for request in _asked_of_tiers():
        asked = target.asked(request, 1)
        try:
            target.gateway.check(asked)
        except RequestRefused as refused:
            raise _wrong(
                f"{place}: {row.name} cannot be asked {_ways(request)}: {refused}",
                f"Say in its models what {request.model} is called there and how it thinks, such as "
                f'{{"{request.model}": {{"model": "gpt-4.1", "thinking": "off"}}}}.',
                code="unsupported",
            ) from None
        price = target.gateway.price(asked.model) or price_card(asked.model)
        if price is None or not price.bounds_a_call:
            raise _wrong(
                f"{place}: nobody knows the price of {asked.model}, so every limit in dollars would refuse it",
                "Name another model, state its price in that connector's options, or have the operator do so.",
                code="no_known_price",
            )


def _asked_of_tiers() -> Iterator[ModelRequest]:
    """What the loop and the questions send, for each tier."""
    allow_opus = settings.PLANE.allow_opus
    tool = ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {}})
    for tier in Tier:
        yield _sample(model_for(tier, allow_opus=allow_opus), CachePlan.AGENT, (tool,))
        choice = model_for_question(tier, allow_opus=allow_opus, output_tokens_max=QUESTION_OUTPUT_TOKENS)
        yield _sample(choice, CachePlan.SYSTEM, ())


def _sample(choice: ModelChoice, cache: CachePlan, tools: tuple[ToolSpec, ...]) -> ModelRequest:
    return ModelRequest(
        model=choice.name,
        messages=(SystemMessage("You write code."), UserMessage.of("Go on.")),
        output_tokens_max=choice.output_tokens_max,
        tools=tools,
        thinking=Thinking(ThinkingMode(choice.thinking), effort=choice.effort),
        cache=cache,
    )


def _ways(request: ModelRequest) -> str:
    tools = "with tools" if request.tools else "a question"
    return f"for {request.model} ({tools}, thinking {request.thinking.mode})"


def _wrong(problem: str, remedy: str, *, code: str = "invalid") -> InvalidInput:
    return InvalidInput("fallback", problem, remedy, code=code)
