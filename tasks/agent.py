"""The one logical Agent of a Task, `agt_<task>`: many attempts over time, private state apart from the shared rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from routing.words import Tier
from tasks.dependents import settle_dependents
from tasks.errors import IllegalMove
from tasks.events import record
from tasks.models import Task, TaskRun
from tasks.pauses import withdraw_pauses
from tasks.states import TASK_MOVES, RunState, TaskState
from tasks.supervision import RUN_CHECKS_MAX, checks_passed
from tasks.transitions import locked_change, move_task
from tasks.wake import wake_task


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """What an Agent is at. Idle: no attempt is active, and nothing checks it (row 8)."""

    agent_id: str
    task: TaskState
    run_id: UUID | None = None
    attempt: int | None = None
    tier: Tier | None = None
    checks_left: int | None = None

    @property
    def idle(self) -> bool:
        return self.run_id is None


@dataclass(frozen=True, slots=True)
class Agent:
    """A name for the work on one Task. Making it twice makes the same one (row 5)."""

    task_id: UUID

    @property
    def id(self) -> str:
        return f"agt_{self.task_id}"

    def start(self) -> None:
        """A nudge; whether anything starts, the rows decide (row 13)."""
        wake_task(self.task_id)

    def resume(self, event: str, *, key: str, data: Mapping[str, Any] | None = None, now: datetime) -> None:
        """Record the event and start no work. The same `key` again records nothing more (row 6)."""
        task = self._task()
        record(
            "agent.resumed",
            change=task.change,
            task=task,
            data={**(data or {}), "event": event},
            key=f"agent.resumed:{self.task_id}:{key}"[:200],
            now=now,
        )

    @transaction.atomic
    def cancel(self, *, because: str, now: datetime) -> bool:
        """Nothing new starts; a running attempt hears it at its next beat (row 10). False when it had ended."""
        change = locked_change(self._task().change_id)
        task = self._task()
        if TaskState.CANCELLED not in TASK_MOVES[TaskState(task.state)]:
            if task.state == TaskState.CANCELLED:
                return False
            raise IllegalMove(task, TaskState.CANCELLED)
        move_task(task, TaskState.CANCELLED, because=because, now=now)
        withdraw_pauses(change, now=now)
        settle_dependents(change, now=now)
        return True

    def get_state(self, *, now: datetime) -> AgentState:
        """From the shared rows alone: losing an attempt's private state changes no status (row 7)."""
        task = self._task()
        run: TaskRun | None = task.runs.filter(state=RunState.RUNNING).first()
        if run is None:
            return AgentState(agent_id=self.id, task=TaskState(task.state))
        return AgentState(
            agent_id=self.id,
            task=TaskState(task.state),
            run_id=run.pk,
            attempt=run.attempt,
            tier=Tier(run.tier),
            checks_left=max(0, RUN_CHECKS_MAX - checks_passed(run.active_since, now)),
        )

    def _task(self) -> Task:
        task: Task = Task.objects.select_related("change").get(pk=self.task_id)
        return task
