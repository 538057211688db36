"""Processor time of one call: our path (adapter, meters, log of calls) and its parts, against raw httpx in one run.

The path is `call_model` on SQLite, to the same fake provider, with the meters of a Task's call and one million spare
dollars on each. Its parts are measured one by one, so that they say what the whole is spent on; what they leave is
that nothing is warm any more after a wait for the disk, which raw httpx after two bare commits shows, too.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from agents.calls import call_model
from agents.models import CallState, ModelCall
from agents.spec import Payers
from agents.tab import Tab
from bench.ledger import USAGE, database_swapped
from bench.measured import Measured, Skipped
from budgets import rows
from budgets.decisions import Amount
from budgets.meters import ensure_meters, payer_meters
from budgets.models import Meter
from budgets.money import Usd
from budgets.prices import cost_of, usage_data, worst_case
from budgets.reservations import CallContext, Held, reserve, settle
from providers.account import Account, read_options
from providers.anthropic import AnthropicGateway
from providers.fake.server import FakeServer
from providers.messages import (
    AssistantMessage,
    CachePlan,
    Message,
    ModelRequest,
    SystemMessage,
    Thinking,
    ThinkingMode,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from providers.parts import request_characters
from tenants.models import Organization

CALLS = 100
ROUNDS = 5
TURNS = 12
RESULT_CHARACTERS = 3_000


def measure() -> Iterable[Measured]:
    """A talk of 12 tool turns and 8 tools, about 45 kB, as the loop sends it late in a run."""
    request = _late_request()
    with FakeServer() as fake, _sqlite():
        payers = _payers()
        for name, stream in (("buffered", False), ("streamed", True)):
            account = Account(
                name="bench",
                base_url=fake.url("anthropic"),
                key="k",
                options=read_options({"stream": stream}),
            )
            gateway = AnthropicGateway(account)
            body = gateway.ask(request, stream=stream)[1]
            with httpx.Client(timeout=60) as client:
                raw = partial(_raw, client, fake.url("anthropic") + "/v1/messages", body)
                ways = _ways(gateway, request, payers)
                bare = ways["of that: two bare commits"]
                ways["beside it: raw httpx after two bare commits"] = partial(_both, bare, raw)
                yield from _against(raw, name, ways)


def _ways(
    gateway: AnthropicGateway, request: ModelRequest, payers: Payers
) -> dict[str, Callable[[], object]]:
    """The whole, and what it consists of."""
    tab = Tab(calls_max=1_000_000)
    return {
        "the whole path": lambda: call_model(
            request, replace(payers, key=uuid4().hex), gateway=gateway, tab=tab
        ),
        "of it: adapter": lambda: gateway.send(request, seconds_max=60),
        "of it: size and worst case": lambda: worst_case(
            request_characters(request), request.output_tokens_max, request.model
        ),
        "of it: meters and log of calls": partial(_hold_and_settle, payers),
        "of that: two bare commits": _commits(),
    }


def _against(
    raw: Callable[[], object], name: str, ways: dict[str, Callable[[], object]]
) -> Iterable[Measured]:
    """Medians, taken in turns, so that a busy moment of the machine falls on all of them."""
    seconds: dict[str, list[float]] = {what: [] for what in ("raw", *ways)}
    for _ in range(ROUNDS):
        for what, act in {"raw": raw, **ways}.items():
            seconds[what].append(_processor_seconds(act))
    theirs = median(seconds.pop("raw"))
    for what, taken in seconds.items():
        whole = not what.startswith(("of ", "beside "))
        yield Measured(
            what=f"one {name} call, {what}" if whole else f"  {what}",
            ours=f"{median(taken) * 1000:.2f} ms",
            theirs=f"{theirs * 1000:.2f} ms raw httpx",
            ratio=median(taken) / theirs,
            aim="at most 3" if whole else "",
        )


def _both(first: Callable[[], object], second: Callable[[], object]) -> None:
    first()
    second()


def _raw(client: httpx.Client, url: str, body: dict[str, Any]) -> None:
    """What somebody writes who calls the provider without us: the body as JSON, and the reply read."""
    reply = client.post(url, json=body, headers={"x-api-key": "k"})
    if "event-stream" not in reply.headers["content-type"]:
        reply.json()


def _processor_seconds(act: Callable[[], object]) -> float:
    """Of this thread alone: the fake provider runs in another."""
    started = time.thread_time()
    for _ in range(CALLS):
        act()
    return (time.thread_time() - started) / CALLS


@contextmanager
def _sqlite() -> Iterator[None]:
    """A database of its own, set up as a deployment's."""
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        default = settings.DATABASES["default"]
        if default["ENGINE"] != "django.db.backends.sqlite3":
            raise Skipped("DATABASE_URL names another database than SQLite")
        with database_swapped({**default, "NAME": str(Path(folder) / "calls.sqlite3")}):
            call_command("migrate", verbosity=0)
            yield


def _payers() -> Payers:
    """The six meters of a Task's call, with limits that nothing reaches."""
    organization: Organization = Organization.objects.create(name="Bench", slug="bench")
    project, user, change, now = uuid4(), uuid4(), uuid4(), timezone.now()
    meters = payer_meters(
        organization_id=organization.pk,
        project_id=project,
        user_id=user,
        change_id=change,
        connector="main",
        counts_daily=True,
        now=now,
    )
    ensure_meters(meters)
    Meter.objects.update(limit_usd=Usd.dollars("1000000"), limit_calls=None)
    return Payers(
        organization_id=organization.pk,
        project_id=project,
        user_id=user,
        connector="main",
        meters=meters,
        purpose="agent",
        key="bench",
        change_id=change,
        task_id=uuid4(),
        run_id=uuid4(),
        tier="haiku",
    )


def _hold_and_settle(payers: Payers) -> None:
    """With the row of the call, which is written in the same two transactions."""
    context = CallContext(organization_id=payers.organization_id, purpose="agent", model="claude-haiku-5-5")
    amount = Amount(usd=Usd(6_000), tokens=20_000, calls=1)
    call = ModelCall(
        organization_id=payers.organization_id,
        project_id=payers.project_id,
        change_id=payers.change_id,
        task_id=payers.task_id,
        run_id=payers.run_id,
        key=uuid4().hex,
        purpose="agent",
        connector="main",
        model="claude-haiku-5-5",
        held=amount.usd,
        started_at=timezone.now(),
    )
    held = reserve(
        key=call.key,
        meters=payers.meters,
        amount=amount,
        context=context,
        owner="bench",
        lease_seconds=60,
        beside=partial(rows.insert, call),
    )
    assert isinstance(held, Held), held
    priced = cost_of(USAGE, "claude-haiku-5-5", timezone.now().date())
    assert priced is not None
    call.state, call.ended_at, call.usage = CallState.ANSWERED, timezone.now(), usage_data(USAGE)
    settle(
        held.reservation_id,
        cost=priced.cost,
        usage=USAGE,
        rates=priced.rates,
        beside=partial(rows.update, call, ("state", "ended_at", "usage", "cost", "rates", "stop")),
    )


def _commits() -> Callable[[], object]:
    """What the disk's promise alone takes: two transactions of one small row each, in bare sqlite3."""
    path = Path(str(settings.DATABASES["default"]["NAME"])).parent / f"bare-{uuid4().hex}.sqlite3"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode=WAL")
    file.execute("PRAGMA synchronous=FULL")
    file.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")

    def twice() -> None:
        for _ in range(2):
            file.execute("INSERT INTO t (b) VALUES (?)", ("x" * 500,))

    return twice


def _late_request() -> ModelRequest:
    talk: list[Message] = [SystemMessage("You write code. " * 60), UserMessage.of("The packet. " * 300)]
    for turn in range(TURNS):
        call = ToolCall(f"toolu_{turn}", "read_file", json.dumps({"path": f"src/module_{turn}.py"}))
        talk += [
            AssistantMessage("I read on.", (call,)),
            ToolMessage(call.id, call.name, "x = 1\n" * (RESULT_CHARACTERS // 6)),
        ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = tuple(
        ToolSpec(name, f"The tool {name}.", schema)
        for name in ("read_file", *(f"tool_{n}" for n in range(7)))
    )
    return ModelRequest(
        model="claude-haiku-5-5",
        messages=tuple(talk),
        output_tokens_max=8_000,
        tools=tools,
        thinking=Thinking(ThinkingMode.ADAPTIVE, "low"),
        cache=CachePlan.AGENT,
    )
