"""`manage.py check_connector ORGANIZATION NAME --live`: does this account do what Remit needs? For people with a key.

It spends only with --live, a few cents at most, outside the meters: the operator's own check.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError

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
        self._report(gateway, request)

    def _report(self, gateway: Gateway, request: ModelRequest) -> None:
        failed = 0
        for name, check in CHECKS.items():
            try:
                words = check(gateway, request)
            except ProviderError as error:
                words, failed = f"FAILED {error.kind}: {error}", failed + 1
            except AssertionError as error:
                words, failed = f"FAILED {error}", failed + 1
            self.stdout.write(f"{name:<12} {words}")
        if failed:
            raise CommandError(f"{failed} of {len(CHECKS)} checks failed")


def answers(gateway: Gateway, request: ModelRequest) -> str:
    reply = _send(gateway, request)
    return f"{reply.model} said {reply.text.strip()[:40]!r}; {_usage(reply)}"


def uses_tools(gateway: Gateway, request: ModelRequest) -> str:
    reply = _send(gateway, _with_tool(request))
    assert reply.tool_calls, f"no tool call came, but {reply.text[:60]!r}"
    call = reply.tool_calls[0]
    answer = ToolMessage(call.id, call.name, "sunny")
    talk = (*_with_tool(request).messages, reply.as_message(), answer)
    closing = _send(gateway, replace(_with_tool(request), messages=talk))
    return f"called {call.name}{call.arguments}, then said {closing.text.strip()[:40]!r}; {_usage(closing)}"


def keeps_the_final_step(gateway: Gateway, request: ModelRequest) -> str:
    reply = _send(gateway, replace(_with_tool(request), tool_choice="none"))
    assert not reply.tool_calls, "a tool was called although none was allowed"
    return "tools declared and not called"


def caches(gateway: Gateway, request: ModelRequest) -> str:
    talk = (SystemMessage(LONG_SYSTEM), *request.messages)
    asked = replace(request, messages=talk, cache=CachePlan.SYSTEM)
    first, second = _send(gateway, asked), _send(gateway, asked)
    if first.usage is None or second.usage is None:
        return "usage unknown"
    written = first.usage.cache_write_5m + first.usage.cache_write_1h
    return f"wrote {written:,} tokens, then read {second.usage.cache_read:,}"


def refuses_clearly(gateway: Gateway, request: ModelRequest) -> str:
    try:
        _send(gateway, replace(request, model="no-such-model-remit-check"))
    except Rejected as error:
        return f"{error.status}: {str(error)[:80]}"
    raise AssertionError("a model that does not exist was answered")


CHECKS: dict[str, Callable[[Gateway, ModelRequest], str]] = {
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


def _send(gateway: Gateway, request: ModelRequest) -> ModelReply:
    return gateway.send(request, seconds_max=SECONDS_MAX)


def _usage(reply: ModelReply) -> str:
    if reply.usage is None:
        return "usage unknown"
    return f"{reply.usage.input:,} tokens in ({reply.usage.cache_read:,} cached), {reply.usage.output:,} out"
