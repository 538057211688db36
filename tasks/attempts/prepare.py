"""Steps 2 to 7 of a start, in order: each finds something out or refuses with its reason (rows 17 to 30)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max
from uuid_utils.compat import uuid7

from agents import archive
from agents.calls import gateway_for
from agents.clock import Clock
from agents.context.compile import PacketTooLarge, compile_packet
from agents.context.packet import ContextPacket
from agents.errors import MergeConflict, StopRun
from agents.index import index_of
from agents.pricing import prices_at
from agents.related import Related, related_files
from agents.spec import RunCaps
from agents.tools.finish import FINISH_TOOLS
from agents.tools.toolbox import ALL_TOOLS
from agents.workspace.git import store_for
from budgets.meters import refusals
from budgets.money import Usd
from routing.escalate import Policy
from routing.tiers import ModelChoice, model_for
from routing.words import EndReason, Tier
from tasks.admission import WAITS_FOR_HELD_MONEY
from tasks.attempts.choice import Choice, choose
from tasks.attempts.failures import Told, failures_for, prefix_of
from tasks.attempts.refusal import (
    CONNECTOR_NOT_FOUND,
    DEPENDENCY_MERGE_CONFLICT,
    PACKET_TOO_LARGE,
    Failed,
    NotStarted,
    Stopped,
    Waits,
)
from tasks.dispatch import HELD_WAIT_SECONDS
from tasks.funding import AGENT, RETRIEVAL, is_spent, payers_for, share_of
from tasks.models import Task, Trunk
from tasks.opus import opus_rule
from tasks.retrieval import StartTree, facts_for, layers_of, live_files, needs_of
from tasks.stack import stack_of
from tenants.caps import caps_of

INDEX_WAITS_MAX = 6
INDEX_WAIT_SECONDS = 2
# After these the start has failed and is delivered again, like a wake (row 30).
INDEX_RETRY_SECONDS = 30
# The first call's request beside the Task's own texts: system prompt, tools, file list.
FIRST_CALL_CHARACTERS = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the steps before the batch have found out."""

    run_id: UUID
    attempt: int
    share: Usd | None
    choice: Choice
    model: ModelChoice
    caps: RunCaps
    told: Told
    tree: StartTree | None
    packet: ContextPacket
    packet_key: str


def prepare(task: Task, *, clock: Clock) -> Prepared:
    """Steps 2 to 7; step 1, admission, took the Task. Nothing here writes a row of the Task. Raises `NotStarted`."""
    now = clock.now()
    run_id = uuid7()
    _check_connector(task, now=now)
    trunk = _indexed_trunk(task)
    share = _share(task)
    allow_opus = opus_rule(task.change.project).allowed
    choice = choose(task, run_id=run_id, policy=Policy(allow_opus), now=now)
    told = failures_for(task, run_id=run_id, clock=clock)
    model = model_for(choice.tier, allow_opus=allow_opus)
    _check_room(task, told, model, now=clock.now())
    tree = _start_tree(task, trunk)
    caps = _caps(task, choice.tier)
    related = _related(task, tree, run_id=run_id, clock=clock)
    packet = _packet(task, tree=tree, told=told, caps=caps, share=share, related=related)
    return Prepared(
        run_id=run_id,
        attempt=(task.runs.aggregate(last=Max("attempt"))["last"] or 0) + 1,
        share=share,
        choice=choice,
        model=model,
        caps=caps,
        told=told,
        tree=tree,
        packet=packet,
        packet_key=archive.put(f"{prefix_of(task)}/{packet.hash}.json", packet.as_json()),
    )


def _check_connector(task: Task, *, now: datetime) -> None:
    """The account must be there before anything is built; never another tenant's (row 3)."""
    payers = payers_for(task.change, purpose=AGENT, key="account", task=task, now=now)
    try:
        gateway_for(payers)
    except StopRun as missing:
        detail = {"connector": payers.connector, "problem": missing.note}
        raise NotStarted(Failed(reason=CONNECTOR_NOT_FOUND, detail=detail)) from missing


def _indexed_trunk(task: Task) -> Trunk | None:
    """A Task that starts between a promotion and its index waits for the index (row 30); first, as it costs nothing."""
    trunk: Trunk | None = Trunk.objects.filter(project_id=task.change.project_id).first()
    if trunk is None or trunk.indexed_generation >= trunk.generation:
        return trunk
    detail = {"generation": trunk.generation, "indexed": trunk.indexed_generation}
    if task.index_waits < INDEX_WAITS_MAX:
        waits = task.index_waits + 1
        raise NotStarted(
            Waits(waiting_for="index", seconds=INDEX_WAIT_SECONDS, detail=detail, index_waits=waits)
        )
    raise NotStarted(Waits(waiting_for="index_missing", seconds=INDEX_RETRY_SECONDS, detail=detail))


def _share(task: Task) -> Usd | None:
    """Step 2 (rows 17, 18)."""
    if is_spent(task.change):
        raise NotStarted(Stopped(limit=EndReason.CHANGE_BUDGET, reason="budget_spent"))
    return share_of(task)


def _check_room(task: Task, told: Told, model: ModelChoice, *, now: datetime) -> None:
    """Step 5 (row 22): every meter has room for the first call; the first full one in order names the stop."""
    change = task.change
    payers = payers_for(change, purpose=AGENT, key="room", task=task, now=now)
    texts = (change.goal, task.objective, *(one.log for one in told.failures))
    characters = FIRST_CALL_CHARACTERS + sum(map(len, texts))
    prices = prices_at(change.organization_id, change.project.connector)
    amount = prices.worst_case(characters, model.output_tokens_max, model.name)
    refused = refusals(payers.meters, amount, now=now)
    if not refused:
        return
    data = tuple(one.as_data() for one in refused)
    if all(one.waits for one in refused):
        waiting_for = f"{WAITS_FOR_HELD_MONEY}{refused[0].kind}"
        raise NotStarted(
            Waits(waiting_for=waiting_for, seconds=HELD_WAIT_SECONDS, detail={"refusals": list(data)})
        )
    first = next(one for one in refused if not one.waits)
    raise NotStarted(Stopped(limit=first.stop, reason="no_room_for_the_first_call", refusals=data))


def _start_tree(task: Task, trunk: Trunk | None) -> StartTree | None:
    """Step 6 (rows 24, 213): canonical source with the work of all dependencies merged in."""
    if trunk is None:
        return None
    layers = stack_of(task.pk, needs=needs_of(task.change), layers=layers_of(task.change))
    store = store_for(task.change.project_id)
    try:
        start = store.stack(trunk.commit, [layer.commit for layer in layers], store.commit_time(trunk.commit))
    except MergeConflict as conflict:
        detail = {
            "at": conflict.at,
            "paths": list(conflict.paths),
            "messages": list(conflict.messages),
            "stacked_on": [str(layer.changeset_id) for layer in layers],
        }
        raise NotStarted(Failed(reason=DEPENDENCY_MERGE_CONFLICT, detail=detail)) from conflict
    return StartTree(store=store, base_commit=trunk.commit, start_commit=start, layers=layers)


def _related(task: Task, tree: StartTree | None, *, run_id: UUID, clock: Clock) -> Related | None:
    """What the index of the canonical tree adds: neighbours of the declared files (rows 202, 208 to 210)."""
    index = index_of(task.change.project_id, tree.base_commit) if tree is not None else None
    if tree is None or index is None:
        return None
    payers = payers_for(
        task.change, purpose=RETRIEVAL, key=f"retrieval:{run_id}", task=task, run_id=run_id, now=clock.now()
    )
    return related_files(
        index,
        payers,
        declared=task.resources,
        question=f"{task.title}\n{task.objective}",
        live=live_files(tree),
        clock=clock,
    )


def _caps(task: Task, tier: Tier) -> RunCaps:
    """The caps of this run (rows 50, 54 to 56), as an owner may have set them for the project."""
    caps = caps_of(task.change.project.caps)
    return RunCaps(
        calls_max=caps[f"calls_{tier.word}"],
        reads_max=caps["reads"],
        read_characters_max=caps["read_characters"],
        command_seconds_max=caps["command_seconds"],
        output_characters_max=caps["output_characters"],
        sandboxes_max=caps["sandboxes"],
    )


def _packet(
    task: Task,
    *,
    tree: StartTree | None,
    told: Told,
    caps: RunCaps,
    share: Usd | None,
    related: Related | None,
) -> ContextPacket:
    """Step 7 (row 25)."""
    offered = FINISH_TOOLS if tree is None else ALL_TOOLS
    facts = facts_for(
        task,
        tree=tree,
        failures=told.failures,
        caps=caps,
        budget=share,
        tools=tuple(tool.name for tool in offered),
        related=related,
    )
    packet = compile_packet(facts)
    if isinstance(packet, PacketTooLarge):
        detail = {"tokens": packet.tokens, "tokens_max": packet.tokens_max}
        raise NotStarted(Failed(reason=PACKET_TOO_LARGE, detail=detail))
    return packet
