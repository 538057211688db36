"""A small world for attempts: an organization with a scripted connector, a Change, and a clock that never sleeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from agents.clock import Clock
from budgets.money import Usd
from tasks.attempts.run import run_task
from tasks.dispatch import due_tasks
from tasks.models import Change, DecisionReceipt, Event, Task, TaskRun
from tenants.models import Project
from tests.factories.providers import make_connector
from tests.factories.tasks import NOW, make_change, make_task
from tests.factories.tenants import make_project
from tests.tasks.money import give_budget

Step = Mapping[str, Any]

DONE: Step = {"tools": [{"name": "complete_task", "arguments": {"intent": "said hello"}}]}
GIVES_UP: Step = {"tools": [{"name": "fail_task", "arguments": {"reason": "cannot see how"}}]}


class TestClock(Clock):
    __test__ = False

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class World:
    """One project. `play` sets what the models say; `work` runs every Task that is due until nothing is."""

    def __init__(self, project: Project | None = None) -> None:
        self.clock = TestClock()
        self.project = project or make_project()
        self.change = make_change(self.project)
        self.connector = make_connector(self.project.organization)

    def play(self, *steps: Step, **when: Any) -> None:
        """Every agent says these; with labels (`tier="haiku"`, `attempt=1`, `role=...`) only those."""
        config = self.connector.config if "played" in self.connector.config.get("notes", "") else {}
        inline = [*config.get("inline", []), {"when": {"role": "agent", **when}, "steps": list(steps)}]
        self.connector.config = {"inline": inline, "notes": "played"}
        self.connector.save()

    def task(self, **more: Any) -> Task:
        return make_task(self.change, **more)

    def budget(self, dollars: str) -> None:
        give_budget(self.change, Usd.dollars(dollars))

    def work(self, *, rounds: int = 60) -> None:
        """A worker that is nudged whenever something is due; time passes in steps of a second."""
        for _ in range(rounds):
            for task in list(due_tasks(self.clock.now())):
                run_task(task.pk, clock=self.clock)
            self.clock.pass_by(1)

    def run_once(self, task: Task) -> None:
        run_task(task.pk, clock=self.clock)

    def fresh(self, task: Task) -> Task:
        found: Task = Task.objects.select_related("change").get(pk=task.pk)
        return found

    @property
    def fresh_change(self) -> Change:
        found: Change = Change.objects.get(pk=self.change.pk)
        return found


def ends(task: Task) -> Sequence[str]:
    """How the attempts of a Task went, in order: `haiku completed`."""
    runs = TaskRun.objects.filter(task=task).order_by("attempt")
    return [f"{run.get_tier_display()} {run.end_reason or run.state}" for run in runs]


def receipts(task: Task, kind: str) -> list[DecisionReceipt]:
    return list(DecisionReceipt.objects.filter(task=task, kind=kind).order_by("pk"))


def events(kind: str) -> list[Event]:
    return list(Event.objects.filter(kind=kind).order_by("pk"))
