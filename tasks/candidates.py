"""A Candidate: the work of a Change merged on the newest main, checked by Remit, and perhaps promoted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max
from django.utils import timezone

from agents import archive
from agents.errors import MergeConflict, StopRun
from agents.workspace.git import Store, store_for
from tasks.asking import stop_work
from tasks.checks import Evidence, ask_judge, run_checks
from tasks.conflicts import collision_between, integrate
from tasks.events import record, write_receipt
from tasks.fence import WorkHold
from tasks.models import Candidate, Change, ChangeSet, Dependency, Task
from tasks.promotion import promote, settle_trunk
from tasks.protected import protected_among
from tasks.reopening import ReopenedOften, reopen_done, was_reopened
from tasks.stack import Layer, in_order
from tasks.states import CandidateState, ChangeState, TaskState
from tasks.transitions import move_candidate, move_change
from tenants.models import Promotion

NOTE_OUTPUT_CHARACTERS_MAX = 3_000


def compose(hold: WorkHold) -> None:
    """Merge, check, decide. Work that does not merge or does not pass goes back to its Task, or to a person."""
    now = timezone.now()
    change: Change = Change.objects.select_related("project").get(pk=hold.change_id)
    store = store_for(change.project_id)
    layers = changesets_in_order(change)
    candidate = _begin(hold, layers, now=now)
    try:
        commit = store.stack(candidate.base_commit, [one.commit for one in layers], _date(change))
    except MergeConflict as conflict:
        _conflict(hold, candidate, layers, conflict, now=timezone.now())
        return
    store.keep_ref("candidates", candidate.pk, commit)
    _merged(hold, candidate, store, commit, now=timezone.now())
    try:
        evidence = run_checks(hold, candidate, store)
        vetoed = ask_judge(hold, candidate, store) if evidence.passed else ""
    except StopRun as stop:
        _put_aside(hold, candidate, now=timezone.now())
        stop_work(hold, "composing", stop, now=timezone.now())
        return
    if evidence.passed and not vetoed:
        _passed(hold, candidate, evidence, now=timezone.now())
    else:
        _failed(hold, candidate, layers, evidence, vetoed, now=timezone.now())


def changesets_in_order(change: Change) -> list[ChangeSet]:
    """The newest ChangeSet of every done Task, dependencies first (rows 213, 218)."""
    tasks = list(change.tasks.filter(state=TaskState.DONE))
    newest: dict[UUID, ChangeSet] = {}
    rows = ChangeSet.objects.filter(task__in=tasks).select_related("task")
    for row in rows.order_by("created_at", "pk"):
        newest[row.task_id] = row
    needs: dict[UUID, set[UUID]] = {task.pk: set() for task in tasks}
    for edge in Dependency.objects.filter(task__in=tasks, on__in=tasks):
        needs[edge.task_id].add(edge.on_id)
    layers = {task_id: Layer(task_id, row.pk, row.commit, row.created_at) for task_id, row in newest.items()}
    ordered = in_order(
        frozenset(needs), needs={task: frozenset(on) for task, on in needs.items()}, layers=layers
    )
    return [newest[layer.task_id] for layer in ordered]


@dataclass(frozen=True, slots=True)
class Routed:
    """Who does the work again after a criterion failed: the last Task, put on top of all others."""

    task: Task
    onto: tuple[Task, ...]


def _begin(hold: WorkHold, layers: list[ChangeSet], *, now: datetime) -> Candidate:
    """Read the newest main first; a candidate that a killed worker left behind is stale."""
    change: Change = Change.objects.get(pk=hold.change_id)
    trunk = settle_trunk(change.project_id, now=now)
    with hold.writing() as held:
        open_states = (CandidateState.COMPOSING, CandidateState.CHECKING, CandidateState.PASSED)
        for left in held.candidates.filter(state__in=open_states):
            move_candidate(left, CandidateState.STALE, because="composed_anew", now=now)
        number = (held.candidates.aggregate(last=Max("number"))["last"] or 0) + 1
        candidate: Candidate = Candidate.objects.create(
            change=held,
            number=number,
            base_commit=trunk.commit,
            generation=trunk.generation,
            changesets=[str(layer.pk) for layer in layers],
        )
        data = {"candidate": number, "generation": trunk.generation, "changesets": len(layers)}
        record("candidate.composing", change=held, data=data, now=now)
    return candidate


def _date(change: Change) -> int:
    """Fixed for the Change, so that the same work on the same main gives the same commit."""
    return int(change.created_at.timestamp())


def _merged(hold: WorkHold, candidate: Candidate, store: Store, commit: str, *, now: datetime) -> None:
    files = store.changed_files(candidate.base_commit, commit)
    flagged = protected_among(files)
    prefix = f"candidates/{candidate.change.project_id}/{candidate.change_id}"
    patch_key = archive.put_by_hash(prefix, store.patch(candidate.base_commit, commit), ".patch")
    with hold.writing():
        also = {
            "commit": commit,
            "files": list(files),
            "flagged_files": list(flagged),
            "patch_key": patch_key,
        }
        move_candidate(candidate, CandidateState.CHECKING, because="merged", now=now, also=also)


def _conflict(
    hold: WorkHold, candidate: Candidate, layers: list[ChangeSet], conflict: MergeConflict, *, now: datetime
) -> None:
    losing = next(layer for layer in layers if layer.commit == conflict.at)
    merged = layers[: layers.index(losing)]
    paths = tuple(conflict.paths)
    report = {
        "changeset": str(losing.pk),
        "task": losing.task.key,
        "paths": list(paths),
        "messages": list(conflict.messages),
    }
    with hold.writing():
        move_candidate(
            candidate,
            CandidateState.CONFLICT,
            because="merge_conflict",
            now=now,
            also={"conflicts": [report]},
        )
    integrate(hold, collision_between(losing, merged, paths))


def _put_aside(hold: WorkHold, candidate: Candidate, *, now: datetime) -> None:
    """A question could not be asked: what was checked so far is not a verdict."""
    with hold.writing():
        move_candidate(candidate, CandidateState.STALE, because="question_stopped", now=now)


def _passed(hold: WorkHold, candidate: Candidate, evidence: Evidence, *, now: datetime) -> None:
    """Ready for a person; or promoted at once where the project says so and Remit itself proved everything."""
    with hold.writing() as change:
        move_candidate(candidate, CandidateState.PASSED, because="criteria_passed", now=now)
        auto = change.project.promotion == Promotion.AUTO
        why = evidence.why_a_person_decides()
        detail = {"candidate": candidate.number, "commit": candidate.commit}
        if not auto or why:
            also = {"work_key": "", "not_before": None, "work_delays": 0}
            because = why or "criteria_passed"
            move_change(change, ChangeState.READY, because=because, now=now, also=also)
            write_receipt("promotion", "ready", change=change, reasons=[because], detail=detail, now=now)
            return
    promote(candidate, by=None, now=now)


def _failed(
    hold: WorkHold,
    candidate: Candidate,
    layers: list[ChangeSet],
    evidence: Evidence,
    vetoed: str,
    *,
    now: datetime,
) -> None:
    """The last Task is done again once, on top of all others and with the evidence; then a person decides."""
    because = "invariant_broken" if vetoed else "criterion_failed"
    problem = "the integration judge says that an invariant is broken" if vetoed else evidence.problem
    with hold.writing() as change:
        move_candidate(candidate, CandidateState.FAILED, because=because, now=now, also={"problem": problem})
        again = _who_again(layers)
        if again is not None and not was_reopened(again.task, "criterion:1"):
            for task in again.onto:
                Dependency.objects.get_or_create(task=again.task, on=task, defaults={"added_by": "integrate"})
            try:
                reopen_done(
                    change,
                    again.task,
                    key="criterion:1",
                    because=because,
                    note=_note(evidence, vetoed),
                    now=now,
                )
            except ReopenedOften:
                pass
            else:
                detail = {"candidate": candidate.number, "task": again.task.key}
                write_receipt(
                    "retry",
                    "reopened",
                    change=change,
                    task=again.task,
                    reasons=[because],
                    detail=detail,
                    now=now,
                )
                return
        also = {"failure": problem, "work_key": "", "not_before": None, "work_delays": 0}
        move_change(change, ChangeState.FAILED, because=because, now=now, also=also)
        detail = {"candidate": candidate.number, "commit": candidate.commit}
        write_receipt("failure", because, change=change, detail=detail, now=now)


def _who_again(layers: list[ChangeSet]) -> Routed | None:
    """The last in merge order sees all others' work once it also depends on those that nobody builds on yet."""
    if not layers:
        return None
    last = layers[-1].task
    others = [layer.task for layer in layers[:-1]]
    built_on = set(Dependency.objects.filter(task__in=[*others, last]).values_list("on_id", flat=True))
    return Routed(last, tuple(task for task in others if task.pk not in built_on))


def _note(evidence: Evidence, vetoed: str) -> str:
    if vetoed:
        return (
            f"The whole change was put together, and the integration judge found a broken invariant: {vetoed}"
        )
    output = evidence.output[-NOTE_OUTPUT_CHARACTERS_MAX:]
    said = f"The whole change was put together, and this criterion failed: {evidence.problem}."
    return f"{said} Mend it in the workspace, which holds everybody's work. The end of the output:\n{output}"
