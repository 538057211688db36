"""Whatever happens in whichever order: no Task is stuck, none runs twice, none gets a third attempt at a tier."""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from agents.spec import HELD, Outcome
from budgets.keys import MeterKind
from budgets.money import Usd
from routing.tiers import ATTEMPTS_PER_TIER_MAX
from routing.words import BUDGET, EndReason
from tasks.attempts.begin import Begun, begin
from tasks.attempts.finish import finish
from tasks.attempts.watch import watch_runs
from tasks.dependents import BlockedBy, settle_dependents, standings_of, verdicts
from tasks.dispatch import due_tasks, free_abandoned_starts, take
from tasks.errors import LostRace, NotStopped
from tasks.models import Task, TaskRun
from tasks.raises import raise_budget
from tasks.retrieval import failed_runs
from tasks.states import ChangeState, RunState, TaskState
from tasks.transitions import locked_change
from tasks.windows import reopen_task, resume_stops
from tenants.models import Role
from tests.factories.tenants import make_member
from tests.tasks.world import World

TASKS = 4
# Each Task may need those before it, as the bits of this number say.
SHAPES = st.integers(0, 2 ** (TASKS * (TASKS - 1) // 2) - 1)
ENDS = st.sampled_from(
    [
        EndReason.COMPLETED,
        EndReason.COMPLETED,
        EndReason.FAILED_BY_AGENT,
        EndReason.RUN_COST_CAP,
        EndReason.TRANSIENT,
        EndReason.CHANGE_BUDGET,
        EndReason.PROJECT_BUDGET,
        EndReason.SPEND_LIMITED,
        EndReason.DAILY_CALL_CAP,
    ]
)
NUMBER = st.integers(0, TASKS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wake"), NUMBER),
        st.tuples(st.just("end"), NUMBER, ENDS, st.booleans()),
        st.tuples(st.just("lose"), NUMBER),
        st.tuples(st.just("stale"), NUMBER, ENDS),
        st.tuples(st.just("raise"), st.sampled_from([MeterKind.CHANGE, MeterKind.PROJECT])),
        st.tuples(st.just("reopen"), NUMBER),
        st.tuples(
            st.just("sweep"),
        ),
        st.tuples(st.just("pass"), st.sampled_from([1, 5, 61, 700])),
    ),
    max_size=30,
)


class Play:
    """A World in which the ends of runs are chosen by the test instead of a model."""

    def __init__(self, shape: int) -> None:
        self.world = World()
        self.admin = make_member(self.world.project.organization, Role.ADMIN)
        self.limit = 5
        self.world.budget("5")
        self.tasks: list[Task] = []
        for number in range(TASKS):
            needs = [
                one for one in self.tasks if shape & 1 << (number * (number - 1) // 2 + self.tasks.index(one))
            ]
            self.tasks.append(self.world.task(needs=tuple(needs)))
        self.begun: dict[int, Begun] = {}
        self.old: list[Begun] = []

    @property
    def now(self) -> Any:
        return self.world.clock.now()

    def step(self, name: str, *given: Any) -> None:
        getattr(self, f"do_{name}")(*given)

    def do_wake(self, number: int) -> None:
        task = take(self.tasks[number].pk, owner=f"worker {uuid4().hex}", now=self.now)
        started = begin(task, clock=self.world.clock) if task is not None else None
        if started is not None:
            self.begun[number] = started

    def do_end(self, number: int, end: EndReason, held: bool = False) -> None:
        begun = self.begun.pop(number, None)
        if begun is not None:
            self.old.append(begun)
            self._finish(begun, Outcome(end=end, note=HELD if held and end in BUDGET else ""))

    def do_lose(self, number: int) -> None:
        begun = self.begun.pop(number, None)
        if begun is not None:
            self.old.append(begun)
            TaskRun.objects.filter(pk=begun.run.pk).update(lease_until=self.now)
            watch_runs(self.now)

    def do_stale(self, number: int, end: EndReason) -> None:
        """A worker that lost its run long ago comes back."""
        if number < len(self.old):
            self._finish(self.old[number], Outcome(end=end), must_lose=True)

    def do_raise(self, kind: MeterKind) -> None:
        if kind is MeterKind.PROJECT:
            self.limit += 100  # the first limit of the project is no raise: it had none
            return
        self.limit += 1
        raise_budget(
            change=self.world.change,
            kind=kind,
            to=Usd(self.limit * 1_000_000),
            by=self.admin,
            reason="",
            key=uuid4().hex,
            now=self.now,
        )

    def do_reopen(self, number: int) -> None:
        with contextlib.suppress(NotStopped):
            reopen_task(
                self.world.fresh(self.tasks[number]), by=self.admin, reason="", key=uuid4().hex, now=self.now
            )

    def do_sweep(self) -> None:
        free_abandoned_starts(self.now)
        resume_stops(self.now)
        settle_dependents(locked_change(self.world.change.pk), now=self.now)

    def do_pass(self, seconds: int) -> None:
        self.world.clock.pass_by(seconds)

    def _finish(self, begun: Begun, outcome: Outcome, *, must_lose: bool = False) -> None:
        try:
            finish(begun.run, outcome, now=self.now)
            assert not must_lose, "a run was ended twice"
        except LostRace:
            pass

    # -- what must always hold

    def check(self) -> None:
        tasks = {task.pk: task for task in Task.objects.filter(change=self.world.change)}
        standing = verdicts(standings_of(tasks))
        for task in tasks.values():
            self._check_task(task, standing.get(task.pk))
        change = self.world.fresh_change
        if any(task.stop_limit for task in tasks.values()):
            assert change.state == ChangeState.BUDGET_BLOCKED
            assert change.stop_limit in {task.stop_limit for task in tasks.values()}
        else:
            assert change.state in (ChangeState.RUNNING, ChangeState.FAILED)

    def _check_task(self, task: Task, verdict: object) -> None:
        active = list(task.runs.filter(state=RunState.RUNNING))
        assert len(active) == (task.state == TaskState.RUNNING), (task.state, active)
        if task.state == TaskState.READY:
            horizon = self.now + timedelta(hours=1)
            assert task.not_before is None or task.not_before <= horizon  # it will be due
            assert verdict is TaskState.READY
        elif task.state == TaskState.PENDING:
            assert verdict is TaskState.PENDING
        elif task.state == TaskState.BLOCKED:
            assert task.stop_limit or isinstance(verdict, BlockedBy)
            assert not task.stop_limit or task.stop_detail["ways_out"]
        counted = Counter(
            run.tier
            for run in failed_runs(task)
            if EndReason(run.end_reason) not in BUDGET | {EndReason.WORKER_LOST}
        )
        assert all(count <= ATTEMPTS_PER_TIER_MAX for count in counted.values()), counted

    # -- and in the end everything can be brought to its end

    def finish_all(self) -> None:
        for number in list(self.begun):
            self.do_end(number, EndReason.COMPLETED)
        watch_runs(self.now + timedelta(hours=1))
        for _ in range(6 * TASKS):
            if not Task.objects.filter(change=self.world.change).exclude(state=TaskState.DONE).exists():
                break
            self.do_raise(MeterKind.CHANGE)
            for number in range(TASKS):
                self.do_reopen(number)
            self.world.clock.pass_by(40 * 24 * 3_600)  # every period turns
            resume_stops(self.now)
            for task in list(due_tasks(self.now)):
                number = next(n for n, one in enumerate(self.tasks) if one.pk == task.pk)
                self.do_wake(number)
                self.do_end(number, EndReason.COMPLETED)
        states = {task.key: task.state for task in Task.objects.filter(change=self.world.change)}
        assert set(states.values()) == {TaskState.DONE}, states
        assert self.world.fresh_change.not_before is not None


@pytest.mark.slow
class TestInterleavings(TestCase):
    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(shape=SHAPES, steps=STEPS)
    def test_nothing_gets_stuck(self, shape: int, steps: list[tuple[Any, ...]]) -> None:
        play = Play(shape)
        for step in steps:
            play.step(*step)
            play.check()
        play.finish_all()
