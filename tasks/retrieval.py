"""Rows and files become the facts of a Context Packet. Code chooses the scope, never a model (row 207)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from agents.context.packet import (
    ContextFacts,
    CriterionFact,
    FailureFact,
    Item,
    Place,
    StackedFact,
)
from agents.related import Related
from agents.spec import RunCaps
from agents.workspace.git import Store, TreeFile
from budgets.money import Usd
from routing.words import BUDGET, NOT_COUNTED, EndReason, Tier
from tasks.models import Change, ChangeSet, Dependency, Task, TaskRun
from tasks.stack import Layer, closure
from tasks.states import RunState, TaskState

DECLARED_FILES_MAX = 20
# A file is shown up to here; the agent reads on with read_file.
FILE_CHARACTERS_MAX = {Place.DECLARED: 12_000, Place.NEIGHBOUR: 3_000, Place.SEMANTIC: 2_000}
CONVENTION_FILES = ("AGENTS.md", "CLAUDE.md", "CONVENTIONS.md", "CONTRIBUTING.md")
CONVENTION_CHARACTERS_MAX = 6_000
INTENT_CHARACTERS_MAX = 2_000
RELATED_MAX = 30
NOTHING_TO_LEARN = BUDGET | NOT_COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTree:
    """Where an attempt starts: the canonical commit with the dependencies' work merged in."""

    store: Store
    base_commit: str
    start_commit: str
    layers: tuple[Layer, ...] = ()


def needs_of(change: Change) -> dict[UUID, frozenset[UUID]]:
    """Which Tasks each Task of the Change depends on."""
    needs: dict[UUID, set[UUID]] = {}
    for task_id, on_id in Dependency.objects.filter(task__change=change).values_list("task_id", "on_id"):
        needs.setdefault(task_id, set()).add(on_id)
    return {task_id: frozenset(on) for task_id, on in needs.items()}


def layers_of(change: Change) -> dict[UUID, Layer]:
    """The newest published ChangeSet of each done Task."""
    found: dict[UUID, Layer] = {}
    newest_last = ChangeSet.objects.filter(task__change=change, task__state=TaskState.DONE)
    for one in newest_last.order_by("created_at", "pk"):
        found[one.task_id] = Layer(one.task_id, one.pk, one.commit, one.created_at)
    return found


def failed_runs(task: Task) -> list[TaskRun]:
    """The failed attempts of the current window, oldest first (rows 185, 196)."""
    failed = task.runs.filter(state=RunState.FAILED)
    if task.attempts_reset_at is not None:
        failed = failed.filter(started_at__gte=task.attempts_reset_at)
    return list(failed.order_by("attempt"))


def prior_failures(task: Task) -> tuple[FailureFact, ...]:
    """What earlier attempts of the window left behind; a budget or a lost worker ends one without a lesson."""
    return tuple(
        FailureFact(
            attempt=run.attempt, tier=Tier(run.tier).word, end=run.end_reason, log=run.failure_log or run.note
        )
        for run in failed_runs(task)
        if EndReason(run.end_reason) not in NOTHING_TO_LEARN and (run.failure_log or run.note)
    )


def facts_for(
    task: Task,
    *,
    tree: StartTree | None,
    failures: tuple[FailureFact, ...],
    caps: RunCaps,
    budget: Usd | None,
    tools: tuple[str, ...],
    related: Related | None = None,
) -> ContextFacts:
    """Everything that the packet of this attempt may hold. `tree` is None for a project without source."""
    change = task.change
    files = tree.store.tree_files(tree.start_commit) if tree else []
    return ContextFacts(
        change_title=change.title,
        change_goal=change.goal,
        criteria=tuple(CriterionFact(text=one.text, command=one.command) for one in change.criteria.all()),
        invariants=tuple(str(one) for one in change.invariants),
        task_key=task.key,
        task_title=task.title,
        objective=task.objective,
        kind=task.kind,
        size=task.size,
        risk=task.risk,
        resources=tuple(task.resources),
        notes=tuple(str(note) for note in task.notes),
        files=tuple(file.path for file in files),
        conventions=_conventions(tree),
        stacked=_stacked(task, tree),
        failures=failures,
        tools=tools,
        calls_max=caps.calls_max,
        reads_max=caps.reads_max,
        budget=str(budget) if budget is not None else "",
        items=(*_files(task, tree, files, related), *_owners(task), *_intents(task, tree)),
    )


def live_files(tree: StartTree) -> frozenset[str]:
    """The paths of the tree that the attempt starts from: nothing else may be told (row 210)."""
    return frozenset(file.path for file in tree.store.tree_files(tree.start_commit))


def _conventions(tree: StartTree | None) -> str:
    if tree is None:
        return ""
    for name in CONVENTION_FILES:
        content = tree.store.read(tree.start_commit, name)
        if content is not None:
            return content.decode("utf-8", "replace")[:CONVENTION_CHARACTERS_MAX]
    return ""


def _stacked(task: Task, tree: StartTree | None) -> tuple[StackedFact, ...]:
    if tree is None or not tree.layers:
        return ()
    ids = [layer.changeset_id for layer in tree.layers]
    rows = {one.pk: one for one in ChangeSet.objects.filter(pk__in=ids).select_related("task")}
    to_integrate = set(task.dependencies.filter(added_by="integrate").values_list("on_id", flat=True))
    return tuple(
        StackedFact(
            task=rows[pk].task.key,
            title=rows[pk].task.title,
            intent=rows[pk].intent[:INTENT_CHARACTERS_MAX],
            files=tuple(rows[pk].own_files),
            integrate=rows[pk].task_id in to_integrate,
        )
        for pk in ids
    )


def _files(
    task: Task, tree: StartTree | None, files: Sequence[TreeFile], related: Related | None
) -> Iterator[Item]:
    """Declared files, their neighbours and similar ones, as they are at the start (rows 202, 208, 210)."""
    if tree is None:
        return
    known: Mapping[str, TreeFile] = {file.path: file for file in files}
    captured = datetime.fromtimestamp(tree.store.commit_time(tree.base_commit), UTC).isoformat()
    wanted = [
        *((path, Place.DECLARED, None) for path in list(dict.fromkeys(task.resources))[:DECLARED_FILES_MAX]),
        *((path, Place.NEIGHBOUR, None) for path in (related.neighbours if related else ())),
        *((match.path, Place.SEMANTIC, match.score) for match in (related.similar if related else ())),
    ]
    for path, place, score in wanted:
        if path in known:
            yield Item(
                item_id=f"file:{path}",
                source=path,
                source_version=known[path].blob,
                captured_at=captured,
                place=place,
                text=_shown(tree.store.read(tree.start_commit, path) or b"", FILE_CHARACTERS_MAX[place]),
                score=score,
            )


def _owners(task: Task) -> Iterator[Item]:
    """Which other Tasks of the Change say that they touch the same resources."""
    mine = set(task.resources)
    others = Task.objects.filter(change_id=task.change_id).exclude(pk=task.pk).order_by("position")
    shared = [(other, sorted(mine & set(other.resources))) for other in others]
    for other, paths in [pair for pair in shared if pair[1]][:RELATED_MAX]:
        yield Item(
            item_id=f"owner:{other.key}",
            source=f"task {other.key}",
            source_version=str(other.pk),
            captured_at=other.created_at.isoformat(),
            place=Place.OWNER,
            text=f"{other.key} {other.title} also works on: {', '.join(paths)}",
        )


def _intents(task: Task, tree: StartTree | None) -> Iterator[Item]:
    """What finished Tasks of the Change say they did, and what failed attempts of others ran into."""
    done = TaskRun.objects.filter(
        task__change_id=task.change_id, task__state=TaskState.DONE, state=RunState.SUCCEEDED
    )
    told = {layer.task_id for layer in tree.layers} if tree else set()  # the stack tells of these already
    newest = {run.task_id: run for run in done.exclude(task=task).exclude(intent="").select_related("task")}
    for run in [run for run in _needed_first(task, newest) if run.task_id not in told][:RELATED_MAX]:
        yield Item(
            item_id=f"intent:{run.task.key}",
            source=f"task {run.task.key}",
            source_version=str(run.pk),
            captured_at=(run.ended_at or run.started_at).isoformat(),
            place=Place.INTENT,
            text=f"{run.task.key} {run.task.title}: {run.intent[:INTENT_CHARACTERS_MAX]}",
        )
    failed = TaskRun.objects.filter(task__change_id=task.change_id, state=RunState.FAILED)
    for run in failed.exclude(task=task).exclude(note="").select_related("task")[:RELATED_MAX]:
        yield Item(
            item_id=f"failure:{run.task.key}:{run.attempt}",
            source=f"task {run.task.key}",
            source_version=str(run.pk),
            captured_at=(run.ended_at or run.started_at).isoformat(),
            place=Place.FAILURE,
            text=f"{run.task.key} attempt {run.attempt} ended {run.end_reason}: {run.note[:INTENT_CHARACTERS_MAX]}",
        )


def _needed_first(task: Task, runs: Mapping[UUID, TaskRun]) -> list[TaskRun]:
    """What this Task builds on, then the rest, each in the order of the plan."""
    needed = closure(task.pk, needs_of(task.change))
    return sorted(runs.values(), key=lambda run: (run.task_id not in needed, run.task.position))


def _shown(content: bytes, characters_max: int) -> str:
    if b"\0" in content[:8000]:
        return "(a binary file)"
    text = content.decode("utf-8", "replace")
    if len(text) <= characters_max:
        return text
    cut = text[:characters_max].rsplit("\n", 1)[0]
    return f"{cut}\n(continues at line {cut.count(chr(10)) + 2}: use read_file)"
