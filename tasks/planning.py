"""A Change becomes Tasks: one question to the planner, at most one repair, perhaps a person's word."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.complete import Answer
from agents.errors import StopRun
from agents.pricing import prices_at
from agents.workspace.git import store_for
from budgets.money import Usd
from routing.words import Tier
from tasks.asking import Role, ask_role, facts_of, source_of, stop_work
from tasks.errors import IllegalMove
from tasks.estimates import range_of
from tasks.events import record, write_receipt
from tasks.fence import WorkHold, make_due
from tasks.models import Change, Dependency, Task
from tasks.opus import opus_rule
from tasks.plan import Plan, PlannedTask, PlanRefused, plan_of
from tasks.questions import PLANNER_SYSTEM, planner_prompt, repair_prompt
from tasks.states import ChangeState, TaskState
from tasks.transitions import locked_change, move_change, move_task
from tasks.verdicts import read_plan
from tasks.wake import wake_task
from tenants.audit import note
from tenants.errors import InvalidInput
from tenants.models import User

# One question and one repair; then a person decides (C87: there is no fallback plan).
PLAN_ANSWERS_MAX = 2
PLANNER = Role(name="planner", system=PLANNER_SYSTEM, tier=Tier.SONNET, output_tokens_max=8_000)


def plan_change(hold: WorkHold) -> None:
    """Ask for a plan and start it, or put it before a person. Nothing starts from an answer that was refused."""
    change: Change = Change.objects.select_related("project").get(pk=hold.change_id)
    prompt = planner_prompt(facts_of(change), _files_of(change))
    wanted, refused = prompt, PlanRefused(())
    for attempt in range(1, PLAN_ANSWERS_MAX + 1):
        try:
            answer = ask_role(change, PLANNER, wanted, now=timezone.now(), hold=hold, attempt=attempt)
        except StopRun as stop:
            stop_work(hold, "planning", stop, now=timezone.now())
            return
        plan = read_plan(answer.text, cut_off=answer.cut_off)
        if isinstance(plan, Plan):
            _accept(hold, plan, answer, now=timezone.now())
            return
        refused = plan
        _note_refusal(hold, refused, now=timezone.now())
        wanted = repair_prompt(prompt, answer.text, refused.problems)
    _give_up(hold, refused, now=timezone.now())


@transaction.atomic
def approve_plan(
    change: Change, *, by: User, now: datetime, edited: Mapping[str, Any] | str | None = None
) -> None:
    """Start the plan that waits for a person, as it stands or as they edited it.

    Raises InvalidInput("plan", ...) with every problem of an edited plan; nothing is started then.
    """
    locked = locked_change(change.pk)
    if locked.state != ChangeState.AWAITING_APPROVAL:
        raise IllegalMove(locked, ChangeState.RUNNING)
    plan = _plan_from(locked.plan if edited is None else edited)
    reasons = ["approved" if edited is None else "approved_edited"]
    write_receipt("plan", "approved", change=locked, reasons=reasons, detail={"by": str(by.pk)}, now=now)
    note(locked.organization, by, "plan.approved", locked.key, before=locked.plan, after=plan.as_data())
    start_tasks(locked, plan, now)
    change.refresh_from_db()


@transaction.atomic
def plan_again(change: Change, *, by: User, reason: str = "", now: datetime) -> None:
    """Throw away a plan that waits for approval and ask the planner once more."""
    locked = locked_change(change.pk)
    if locked.state != ChangeState.AWAITING_APPROVAL:
        raise IllegalMove(locked, ChangeState.PLANNING)
    move_change(locked, ChangeState.PLANNING, because="plan_rejected", now=now, also={"plan": None})
    note(locked.organization, by, "plan.rejected", locked.key, reason=reason)
    make_due(locked, now=now)
    change.refresh_from_db()


def estimate_plan(change: Change, plan: Plan) -> tuple[Usd, Usd] | None:
    """What the plan will probably cost, low and high: shown before a person approves it. None: nobody knows."""
    prices = prices_at(change.organization_id, change.project.connector)
    return range_of(plan, allow_opus=opus_rule(change.project).allowed, estimate=prices.estimate)


def plan_on(change: Change) -> Plan | None:
    """The plan that the Change carries, or None when it has none."""
    plan = plan_of(change.plan) if change.plan is not None else None
    return plan if isinstance(plan, Plan) else None


@transaction.atomic
def start_tasks(change: Change, plan: Plan, now: datetime) -> list[Task]:
    """The rows of a plan: Tasks, edges, and the first wakes. The Change runs from here on."""
    also = {"plan": plan.as_data(), "plan_problem": "", "work_key": "", "not_before": None, "work_delays": 0}
    move_change(change, ChangeState.RUNNING, because="planned", now=now, also=also)
    rows = Task.objects.bulk_create(
        _row_of(change, planned, position) for position, planned in enumerate(plan.tasks, start=1)
    )
    tasks = {task.key: task for task in rows}
    Dependency.objects.bulk_create(
        Dependency(task=tasks[planned.id], on=tasks[wanted])
        for planned in plan.tasks
        for wanted in planned.depends_on
    )
    for planned in plan.tasks:
        if not planned.depends_on:
            task = tasks[planned.id]
            move_task(task, TaskState.READY, because="planned", now=now)
            wake_task(task.pk)
    return list(rows)


def _accept(hold: WorkHold, plan: Plan, answer: Answer, *, now: datetime) -> None:
    with hold.writing() as change:
        figures = {
            "tasks": len(plan.tasks),
            "cost": answer.cost.micro if answer.cost else None,
            "model": answer.model,
        }
        write_receipt("plan", "accepted", change=change, reasons=["readable"], detail=figures, now=now)
        record("change.planned", change=change, data=figures, now=now)
        if not (change.plan_needs_approval or change.project.plan_needs_approval):
            start_tasks(change, plan, now)
            return
        move_change(
            change,
            ChangeState.AWAITING_APPROVAL,
            because="plan_needs_approval",
            now=now,
            also={
                "plan": plan.as_data(),
                "plan_problem": "",
                "work_key": "",
                "not_before": None,
                "work_delays": 0,
            },
        )


def _note_refusal(hold: WorkHold, refused: PlanRefused, *, now: datetime) -> None:
    with hold.writing() as change:
        Change.objects.filter(pk=change.pk).update(plan_problem=refused.text)
        record("change.plan.refused", change=change, data={"problems": len(refused.problems)}, now=now)


def _give_up(hold: WorkHold, refused: PlanRefused, *, now: datetime) -> None:
    with hold.writing() as change:
        move_change(
            change,
            ChangeState.FAILED,
            because="plan_refused",
            now=now,
            also={"failure": "plan_refused", "work_key": "", "not_before": None, "work_delays": 0},
        )
        detail = {"answers": PLAN_ANSWERS_MAX, "problems": len(refused.problems)}
        write_receipt("plan", "refused", change=change, reasons=["unreadable"], detail=detail, now=now)


def _plan_from(data: object) -> Plan:
    plan = read_plan(data) if isinstance(data, str) else plan_of(data)
    if isinstance(plan, PlanRefused):
        raise InvalidInput("plan", plan.text, "Mend the plan and approve it again.", code="plan_refused")
    return plan


def _row_of(change: Change, planned: PlannedTask, position: int) -> Task:
    return Task(
        change=change,
        key=planned.id,
        position=position,
        title=planned.title,
        objective=planned.objective,
        kind=planned.kind,
        size=planned.size,
        risk=planned.risk,
        area=planned.area,
        destructive_migration=planned.destructive_migration,
        resources=list(planned.resources),
    )


def _files_of(change: Change) -> list[str]:
    trunk = source_of(change)
    return [file.path for file in store_for(change.project_id).tree_files(trunk.commit)]
