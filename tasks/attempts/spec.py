"""What the engine is handed: made from rows and settings, the same way for a start and for going on."""

from __future__ import annotations

from datetime import datetime

from agents.complete import thinking_of
from agents.continuation import Binding, binding_of
from agents.spec import AttemptSpec, RunCaps, SourceTree
from routing.route import floor_of
from routing.tiers import ModelChoice
from routing.words import NOT_COUNTED, TaskKind, Tier
from tasks.attempts.choice import facts_of
from tasks.attempts.failures import prefix_of
from tasks.funding import AGENT, payers_for
from tasks.models import Task, TaskRun
from tasks.retrieval import layers_of, needs_of
from tasks.stack import stack_of
from tenants.access import role_of


def spec_of(
    task: Task,
    run: TaskRun,
    *,
    model: ModelChoice,
    caps: RunCaps,
    prompt: str,
    pauses: int = 0,
    now: datetime,
) -> AttemptSpec:
    """Everything but `prompt` is of the rows and of the project as it is now (rows 230, 235)."""
    change = task.change
    return AttemptSpec(
        run_id=run.pk,
        agent_id=task.agent_id,
        kind=TaskKind(task.kind),
        tier=Tier(run.tier),
        model=model.name,
        thinking=thinking_of(model),
        output_tokens_max=model.output_tokens_max,
        caps=caps,
        budget=run.budget,
        payers=payers_for(
            change,
            purpose=AGENT,
            key=f"run:{run.pk}",
            task=task,
            run=run,
            attempt=_attempt_label(task, run),
            now=now,
        ),
        prompt=prompt,
        packet_hash=run.context_hash,
        source=SourceTree(
            repository_id=change.project_id, base_commit=run.base_commit, start_commit=run.start_commit
        )
        if run.start_commit
        else None,
        changeset_id=run.pk,
        message=f"{task.title}\n\n{change.key}/{task.key}: {change.title}\n",
        committed_at=int(run.started_at.timestamp()),
        trusted=change.project.trusted,
        extra_commands=_patterns(change.project.extra_commands),
        approval_commands=_patterns(change.project.approval_commands),
        pauses=pauses,
        publish_rules=change.project.publish_rules,
        archive_prefix=prefix_of(task),
    )


def binding(task: Task, spec: AttemptSpec, *, stacked_on: list[str]) -> Binding:
    """What a pause binds, and what going on is compared with."""
    author = task.change.author
    role = role_of(author, task.change.organization_id)
    floor = floor_of(facts_of(task))
    return binding_of(
        spec,
        floor=floor.word if floor else "",
        authority=f"{author.pk} as {role.label if role else 'nobody'}, paid by {task.change.project_id}",
        stacked_on=tuple(stacked_on),
    )


def stack_now(task: Task) -> list[str]:
    """The ChangeSets that the Task would be stacked on if it began now."""
    layers = stack_of(task.pk, needs=needs_of(task.change), layers=layers_of(task.change))
    return [str(layer.changeset_id) for layer in layers]


def _patterns(commands: list[list[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(argv) for argv in commands)


def _attempt_label(task: Task, run: TaskRun) -> int:
    """Which attempt this is for scripts: a lost worker was none, so that a replay survives a crash."""
    earlier = task.runs.filter(attempt__lt=run.attempt).exclude(end_reason__in=NOT_COUNTED)
    return earlier.count() + 1
