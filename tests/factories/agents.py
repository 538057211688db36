"""The smallest valid things of the engine, and stand-ins for what is above it and around it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

from agents.clock import Clock
from agents.context.packet import ContextFacts, CriterionFact, Item, Place
from agents.models import Approval, CallState, Continuation, IndexedFile, ModelCall, ToolCall, TreeIndex
from agents.spec import AttemptSpec, Outcome, Paused, Payers, RunCaps, SourceTree
from agents.workspace.git import store_for
from agents.workspace.trees import commit_files
from budgets.meters import MeterKind, ensure_meters, payer_meters
from budgets.models import Meter
from budgets.money import Usd
from providers.messages import ModelRequest, Thinking, UserMessage
from routing.words import TaskKind, Tier
from tenants.models import Organization, Project
from tests.factories.tenants import make_project, make_user

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
_numbers = count(1)


class TestClock(Clock):
    """A clock that only moves when somebody sleeps, and remembers for how long."""

    __test__ = False

    def __init__(self, now: datetime = NOON) -> None:
        self.time = now
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    def seconds(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += timedelta(seconds=seconds)


class Onlooker:
    """A supervisor that counts its beats, and may end the run at one of them. `left`: seconds to the deadline."""

    def __init__(self, *, ends_at: int = 0, end: Exception | None = None, left: float = math.inf) -> None:
        self.beats = 0
        self.left = left
        self._ends_at = ends_at
        self._end = end

    def beat(self) -> None:
        self.beats += 1
        if self._end is not None and self.beats >= self._ends_at:
            raise self._end

    def seconds_left(self) -> float:
        return self.left


def ended(outcome: Outcome | Paused) -> Outcome:
    """The end of an attempt that did not pause."""
    assert isinstance(outcome, Outcome), outcome
    return outcome


def make_payers(
    project: Project | None = None, *, limits: dict[MeterKind, object] | None = None, **over: Any
) -> Payers:
    """Payers of a project; `limits` are those of their meters: `Usd`, or a number of calls."""
    project = project or make_project()
    user_id = over.pop("user_id", None) or make_user().pk
    change_id = over.get("change_id")
    meters = payer_meters(
        organization_id=project.organization_id,
        project_id=project.pk,
        user_id=user_id,
        change_id=change_id,
        connector="main",
        counts_daily=True,
        now=NOON,
    )
    ensure_meters(meters)
    for key in meters:
        limit = (limits or {}).get(key.kind)
        if limit is not None:
            column = "limit_usd" if isinstance(limit, Usd) else "limit_calls"
            Meter.objects.filter(name=key.name).update(**{column: limit})
    payers = Payers(
        organization_id=project.organization_id,
        project_id=project.pk,
        user_id=user_id,
        connector="main",
        meters=meters,
        purpose="agent",
        key=f"test:{next(_numbers)}",
        tier="haiku",
    )
    return replace(payers, **over)


def make_request(characters: int = 100, **over: Any) -> ModelRequest:
    """A request that sends exactly so many characters."""
    request = ModelRequest(
        model="claude-sonnet-5-5", messages=(UserMessage.of("x" * characters),), output_tokens_max=1_000
    )
    return replace(request, **over)


def make_model_call(payers: Payers | None = None, **over: Any) -> ModelCall:
    payers = payers or make_payers()
    row = ModelCall(
        organization_id=payers.organization_id,
        project_id=payers.project_id,
        run_id=payers.run_id,
        key=f"{payers.key}:{next(_numbers)}",
        purpose=payers.purpose,
        connector=payers.connector,
        model="claude-haiku-5-5",
        state=CallState.ANSWERED,
        started_at=NOON,
        ended_at=NOON,
    )
    for name, value in over.items():
        setattr(row, name, value)
    row.save()
    return row


def make_tool_call(model_call: ModelCall | None = None, /, **over: Any) -> ToolCall:
    model_call = model_call or make_model_call()
    columns = {
        "organization_id": model_call.organization_id,
        "run_id": model_call.run_id or model_call.pk,
        "position": next(_numbers),
        "model_call": 1,
        "name": "read_file",
        "outcome": "ok",
        "characters_in": 17,
        "characters_out": 40,
        "started_at": NOON,
        "ended_at": NOON,
    }
    row: ToolCall = ToolCall.objects.create(**{**columns, **over})
    return row


def make_approval(organization: Organization, **over: Any) -> Approval:
    """One that waits, of a paused attempt: give project_id, change_id, task_id and run_id of rows that there are."""
    ids = {name: over.pop(name, None) or uuid4() for name in ("project_id", "change_id", "task_id", "run_id")}
    record = Continuation.objects.create(
        organization=organization,
        snapshot_key="context/none.json",
        budget_ms=900_000,
        remaining_ms=880_000,
        paused_at=NOON,
        patch_key=over.pop("patch_key", ""),
        **ids,
    )
    columns = {
        "revision": 1,
        "argv": ["make", "release"],
        "why": "It must be released.",
        "payload_hash": "a" * 64,
        "asked_at": NOON,
    }
    row: Approval = Approval.objects.create(
        organization=organization, continuation=record, **{**columns, **over}
    )
    return row


def make_tree_index(project: Project | None = None, **over: Any) -> TreeIndex:
    columns = {
        "project": project or make_project(),
        "commit": f"{next(_numbers):040x}",
        "commit_time": int(NOON.timestamp()),
        "files_total": 1,
        "built_at": NOON,
    }
    row: TreeIndex = TreeIndex.objects.create(**{**columns, **over})
    return row


def make_indexed_file(index: TreeIndex | None = None, **over: Any) -> IndexedFile:
    number = next(_numbers)
    columns = {
        "index": index or make_tree_index(),
        "path": f"file_{number}.py",
        "blob": f"{number:040x}",
        "size_bytes": 10,
    }
    row: IndexedFile = IndexedFile.objects.create(**{**columns, **over})
    return row


def make_item(**over: Any) -> Item:
    item = Item(
        item_id="file:a.py",
        source="a.py",
        source_version="v1",
        captured_at="2026-11-01T00:00:00Z",
        place=Place.DECLARED,
        text="print('a')\n",
    )
    return replace(item, **over)


def make_facts(**over: Any) -> ContextFacts:
    facts = ContextFacts(
        change_title="Greet people",
        change_goal="The program greets people by name.",
        criteria=(CriterionFact(text="the tests pass", command="pytest"),),
        invariants=(),
        task_key="T1",
        task_title="Add a greeting",
        objective="Write greet().",
        kind="implement",
        size="small",
        risk="low",
        resources=("greet.py",),
        calls_max=16,
        reads_max=12,
    )
    return replace(facts, **over)


def make_caps(**over: Any) -> RunCaps:
    caps = RunCaps(
        calls_max=16,
        reads_max=12,
        read_characters_max=40_000,
        command_seconds_max=60,
        output_characters_max=12_000,
        sandboxes_max=4,
    )
    return replace(caps, **over)


def make_spec(
    project: Project | None = None, *, files: dict[str, bytes] | None = None, **over: Any
) -> AttemptSpec:
    """An attempt at a small implement Task. `files` are those of its repository; without them it has no source.

    `calls_max` and the other caps may be given by their own names.
    """
    project = project or make_project()
    run_id = uuid4()
    source = None
    if files is not None:
        store = store_for(project.pk).init()
        commit = commit_files(store, files, message="Start", at=int(NOON.timestamp()))
        source = SourceTree(repository_id=project.pk, base_commit=commit, start_commit=commit)
    caps = {name: over.pop(name) for name in list(over) if name in RunCaps.__dataclass_fields__}
    payers = over.pop("payers", None) or make_payers(project, change_id=uuid4())
    spec = AttemptSpec(
        run_id=run_id,
        agent_id="agt_1",
        kind=TaskKind.IMPLEMENT,
        tier=Tier.HAIKU,
        model="claude-haiku-5-5",
        thinking=Thinking(),
        output_tokens_max=8_000,
        caps=make_caps(**caps),
        budget=None,
        payers=replace(payers, run_id=run_id, key=f"run:{run_id}"),
        prompt="Do the Task.",
        packet_hash="0" * 64,
        source=source,
        changeset_id=uuid4(),
        message="Do the Task",
        committed_at=int(NOON.timestamp()) + 60,
        archive_prefix=f"context/{project.pk}/change/task",
    )
    return replace(spec, **over)
