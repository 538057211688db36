"""The smallest valid rows of the domain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from budgets.models import ModelTask
from routing.words import EndReason, Risk, Size, TaskKind, Tier, failure_class
from tasks.models import (
    Candidate,
    Change,
    ChangeSet,
    Claim,
    Criterion,
    DecisionReceipt,
    Dependency,
    Event,
    HelperQuestion,
    Preflight,
    ProjectImport,
    Task,
    TaskRun,
    Trunk,
)
from tasks.states import ChangeState, RunState, TaskState
from tenants.models import Project
from tests.factories.tenants import make_member, make_project

_numbers = count(1)

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
COMMIT = "0" * 39 + "1"
# Far above what `submit_change` counts to in a test, so that both may make Changes of one organization.
NUMBERS_FROM = 1_000_000


def make_change(project: Project | None = None, **more: Any) -> Change:
    """A Change whose Tasks are worked on; its author is a new member of the organization."""
    number = next(_numbers)
    project = project or make_project()
    fields = {
        "project": project,
        "organization": project.organization,
        "number": NUMBERS_FROM + number,
        "title": f"Change {number}",
        "goal": "Say hello.",
        "state": ChangeState.RUNNING,
    } | more
    if "author" not in fields:
        fields["author"] = make_member(project.organization)
    change: Change = Change.objects.create(**fields)
    return change


def make_criterion(change: Change | None = None, **more: Any) -> Criterion:
    change = change or make_change()
    fields = {"position": change.criteria.count() + 1, "text": "It says hello."} | more
    criterion: Criterion = Criterion.objects.create(change=change, **fields)
    return criterion


def make_task(change: Change | None = None, *, needs: tuple[Task, ...] = (), **more: Any) -> Task:
    """A small Task at low risk, ready at once; pending when it needs others."""
    change = change or make_change()
    position = more.pop("position", change.tasks.count() + 1)
    fields = {
        "key": f"T{position}",
        "title": f"Task {position}",
        "objective": "Write the greeting.",
        "kind": TaskKind.IMPLEMENT,
        "size": Size.SMALL,
        "risk": Risk.LOW,
        "state": TaskState.PENDING if needs else TaskState.READY,
    } | more
    task: Task = Task.objects.create(change=change, position=position, **fields)
    for other in needs:
        make_dependency(task, other)
    return task


def make_dependency(task: Task, on: Task, **more: Any) -> Dependency:
    dependency: Dependency = Dependency.objects.create(task=task, on=on, **more)
    return dependency


def make_stopped_task(change: Change | None = None, limit: str = "change_budget", **more: Any) -> Task:
    """A Task that stopped at a limit, without the Change having followed yet."""
    fields = {"state": TaskState.BLOCKED, "stop_limit": limit, "stop_detail": {"at": NOW.isoformat()}} | more
    return make_task(change, **fields)


def make_run(task: Task | None = None, **more: Any) -> TaskRun:
    """A running attempt; with `end_reason` one that has ended, and a task that is not touched."""
    task = task or make_task(state=TaskState.RUNNING)
    fields: dict[str, Any] = {
        "attempt": task.runs.count() + 1,
        "tier": Tier.HAIKU,
        "model": "claude-haiku-5-5",
        "context_hash": "c" * 64,
        "packet_key": "context/none.json",
        "started_at": NOW,
        "lease_until": NOW + timedelta(minutes=2),
        "state": RunState.RUNNING,
    } | more
    if fields["state"] != RunState.RUNNING:
        fields = {"ended_at": fields["started_at"] + timedelta(minutes=1), **fields}
    run: TaskRun = TaskRun.objects.create(task=task, **fields)
    return run


def make_failed_run(
    task: Task, end: EndReason = EndReason.FAILED_BY_AGENT, *, tier: Tier = Tier.HAIKU, **more: Any
) -> TaskRun:
    fields = {"state": RunState.FAILED, "end_reason": end, "failure_class": failure_class(end)} | more
    return make_run(task, tier=tier, **fields)


def make_changeset(task: Task | None = None, **more: Any) -> ChangeSet:
    """The published work of a done Task, with the run that did it."""
    task = task or make_task(state=TaskState.DONE)
    if "run" not in more:
        more["run"] = make_run(task, state=RunState.SUCCEEDED, end_reason=EndReason.COMPLETED)
    fields = {
        "commit": f"{next(_numbers):040x}",
        "base_commit": COMMIT,
        "start_commit": COMMIT,
        "patch_key": "patches/none.patch",
        "created_at": NOW,
    } | more
    changeset: ChangeSet = ChangeSet.objects.create(task=task, **fields)
    return changeset


def make_claim(run: TaskRun | None = None, resource: str = "src/app.py", **more: Any) -> Claim:
    run = run or make_run()
    fields = {"lease_until": NOW + timedelta(minutes=2), "project": run.task.change.project} | more
    claim: Claim = Claim.objects.create(run=run, resource=resource, **fields)
    return claim


def make_trunk(project: Project | None = None, **more: Any) -> Trunk:
    """A project's main branch, indexed."""
    fields = {"commit": COMMIT, "generation": 1, "indexed_generation": 1} | more
    trunk: Trunk = Trunk.objects.create(project=project or make_project(), **fields)
    return trunk


def make_candidate(change: Change | None = None, **more: Any) -> Candidate:
    change = change or make_change(state=ChangeState.COMPOSING)
    fields = {"number": change.candidates.count() + 1, "base_commit": COMMIT, "generation": 1} | more
    candidate: Candidate = Candidate.objects.create(change=change, **fields)
    return candidate


def make_receipt(change: Change | None = None, **more: Any) -> DecisionReceipt:
    fields = {"kind": "route", "decision": "haiku", "reasons": ["R4"], "at": NOW} | more
    receipt: DecisionReceipt = DecisionReceipt.objects.create(change=change or make_change(), **fields)
    return receipt


def make_event(change: Change | None = None, **more: Any) -> Event:
    change = change or make_change()
    fields = {"kind": "change.running", "at": NOW} | more
    event: Event = Event.objects.create(change=change, organization=change.organization, **fields)
    return event


def make_preflight(project: Project | None = None, **more: Any) -> Preflight:
    """One that waits for a worker."""
    fields = {"created_at": NOW, "not_before": NOW} | more
    preflight: Preflight = Preflight.objects.create(project=project or make_project(), **fields)
    return preflight


def make_import(project: Project | None = None, **more: Any) -> ProjectImport:
    """One that waits for a worker."""
    fields = {"source": "https://git.example.org/app.git", "created_at": NOW, "not_before": NOW} | more
    found: ProjectImport = ProjectImport.objects.create(project=project or make_project(), **fields)
    return found


def make_allowance(project: Project | None = None, **more: Any) -> ModelTask:
    """One of ten calls."""
    project = project or make_project()
    limits = {"calls_max": 10, "created_at": NOW} | more
    made: ModelTask = ModelTask.objects.create(organization=project.organization, project=project, **limits)
    return made


def make_question(allowance: ModelTask | None = None, **more: Any) -> HelperQuestion:
    """One that waits for a worker."""
    allowance = allowance or make_allowance()
    project = allowance.project
    assert project is not None
    fields = {
        "by": more.pop("by", None) or make_member(project.organization),
        "role": "extractor",
        "packet": "Source identifier=ALPHA_6.",
        "created_at": NOW,
        "not_before": NOW,
    }
    made: HelperQuestion = HelperQuestion.objects.create(
        project=project, allowance=allowance, **{**fields, **more}
    )
    return made
