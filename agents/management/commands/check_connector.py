"""`manage.py check_connector ORGANIZATION NAME --live`: does this account do what Remit needs? For people with a key.

It spends only with --live, a few cents at most. Each question is held and settled on the meters of the
organization's month, of its day and of the account, as any other call is.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from agents.calls import call_model
from agents.errors import StopRun
from agents.spec import Payers
from agents.tab import Tab
from budgets.meters import payer_meters
from providers.catalog import PriceCard
from providers.connectors import connector_for
from providers.errors import ProviderError, Rejected
from providers.gateway import Gateway
from providers.messages import (
    CachePlan,
    ModelReply,
    ModelRequest,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from providers.models import Connector
from providers.saving import smallest_request
from tenants.models import Organization

SECONDS_MAX = 60.0
OUTPUT_TOKENS_MAX = 512
CALLS_MAX = 10
NO_SUCH_MODEL = "no-such-model-remit-check"
TOOL = ToolSpec(
    "report_weather",
    "Report the weather of one city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
LONG_SYSTEM = "You report the weather with the tool. " + "Answer in few words, plainly and politely. " * 600


class Command(BaseCommand):
    help = (
        "Checks tools, the final step, caching, usage and errors of a connector; asks nothing without --live."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("organization", help="its short name")
        parser.add_argument("name", help="of the connector")
        parser.add_argument(
            "--model", default="", help="the id to ask; the cheapest known one when not given"
        )
        parser.add_argument(
            "--live", action="store_true", help="really ask; this spends money at the provider"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        organization = Organization.objects.filter(slug=options["organization"]).first()
        if organization is None:
            raise CommandError(f"no organization has the short name {options['organization']!r}")
        connector = Connector.objects.of_organization(organization.pk).filter(name=options["name"]).first()
        if connector is None:
            raise CommandError(f"{organization.slug} has no connector named {options['name']!r}")
        request = smallest_request(connector)
        try:
            gateway = connector_for(organization.pk, connector.name)
            request = gateway.fit(replace(request, model=options["model"] or request.model))
            gateway.check(request)
        except ProviderError as error:
            raise CommandError(f"{error.kind}: {error}") from None
        if not options["live"]:
            self.stdout.write(
                f"{connector}: would ask {request.model}. Add --live to ask; it spends money at the provider."
            )
            return
        self._report(Meter(gateway, connector, Tab(calls_max=CALLS_MAX)), request)

    def _report(self, meter: Meter, request: ModelRequest) -> None:
        failed = 0
        for name, check in CHECKS.items():
            try:
                words = check(meter, request)
            except StopRun as end:
                words, failed = f"FAILED {_why(end)}", failed + 1
            except AssertionError as error:
                words, failed = f"FAILED {error}", failed + 1
            self.stdout.write(f"{name:<12} {words}")
        if failed:
            raise CommandError(f"{failed} of {len(CHECKS)} checks failed")


@dataclass(frozen=True, slots=True)
class Meter:
    """The account behind the one metered door."""

    gateway: Gateway
    connector: Connector
    tab: Tab

    def ask(self, request: ModelRequest, *, gateway: Gateway | None = None) -> ModelReply:
        """Raises `StopRun`; its cause is what the provider said."""
        payers = Payers(
            organization_id=self.connector.organization_id,
            project_id=None,
            user_id=None,
            connector=self.connector.name,
            meters=payer_meters(
                organization_id=self.connector.organization_id,
                project_id=None,
                user_id=None,
                change_id=None,
                connector=self.connector.name,
                counts_daily=True,
                now=timezone.now(),
            ),
            purpose="connector_test",
            key=f"check_connector:{self.connector.pk}:{uuid4().hex}",
        )
        return call_model(
            request, payers, gateway=gateway or self.gateway, tab=self.tab, seconds_max=SECONDS_MAX
        ).reply


@dataclass(frozen=True, slots=True)
class Misnaming:
    """Sends a name that no provider has. It is priced as the model that was asked for, so that a limit lets it pass."""

    gateway: Gateway

    @property
    def account(self) -> str:
        return self.gateway.account

    def fit(self, request: ModelRequest) -> ModelRequest:
        return self.gateway.fit(request)

    def price(self, model: str) -> PriceCard | None:
        return self.gateway.price(model)

    def check(self, request: ModelRequest) -> None:
        self.gateway.check(request)

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        return self.gateway.send(replace(request, model=NO_SUCH_MODEL), seconds_max=seconds_max)


def answers(meter: Meter, request: ModelRequest) -> str:
    reply = meter.ask(request)
    return f"{reply.model} said {reply.text.strip()[:40]!r}; {_usage(reply)}"


def uses_tools(meter: Meter, request: ModelRequest) -> str:
    reply = meter.ask(_with_tool(request))
    assert reply.tool_calls, f"no tool call came, but {reply.text[:60]!r}"
    call = reply.tool_calls[0]
    answer = ToolMessage(call.id, call.name, "sunny")
    talk = (*_with_tool(request).messages, reply.as_message(), answer)
    closing = meter.ask(replace(_with_tool(request), messages=talk))
    return f"called {call.name}{call.arguments}, then said {closing.text.strip()[:40]!r}; {_usage(closing)}"


def keeps_the_final_step(meter: Meter, request: ModelRequest) -> str:
    reply = meter.ask(replace(_with_tool(request), tool_choice="none"))
    assert not reply.tool_calls, "a tool was called although none was allowed"
    return "tools declared and not called"


def caches(meter: Meter, request: ModelRequest) -> str:
    talk = (SystemMessage(LONG_SYSTEM), *request.messages)
    asked = replace(request, messages=talk, cache=CachePlan.SYSTEM)
    first, second = meter.ask(asked), meter.ask(asked)
    if first.usage is None or second.usage is None:
        return "usage unknown"
    written = first.usage.cache_write_5m + first.usage.cache_write_1h
    return f"wrote {written:,} tokens, then read {second.usage.cache_read:,}"


def refuses_clearly(meter: Meter, request: ModelRequest) -> str:
    try:
        meter.ask(request, gateway=Misnaming(meter.gateway))
    except StopRun as end:
        if isinstance(end.__cause__, Rejected):
            return f"{end.__cause__.status}: {str(end.__cause__)[:80]}"
        raise
    raise AssertionError("a model that does not exist was answered")


CHECKS: dict[str, Callable[[Meter, ModelRequest], str]] = {
    "answers": answers,
    "tools": uses_tools,
    "final step": keeps_the_final_step,
    "caching": caches,
    "errors": refuses_clearly,
}


def _with_tool(request: ModelRequest) -> ModelRequest:
    talk = (
        SystemMessage("You report the weather with the tool."),
        UserMessage.of("Report the weather of Lisbon."),
    )
    return replace(request, messages=talk, tools=(TOOL,), output_tokens_max=OUTPUT_TOKENS_MAX)


def _why(end: StopRun) -> str:
    """What the provider said, or the limit that refused."""
    if isinstance(end.__cause__, ProviderError):
        return f"{end.__cause__.kind}: {end.__cause__}"
    return f"{end.end} {end.note}".strip()


def _usage(reply: ModelReply) -> str:
    if reply.usage is None:
        return "usage unknown"
    return f"{reply.usage.input:,} tokens in ({reply.usage.cache_read:,} cached), {reply.usage.output:,} out"
