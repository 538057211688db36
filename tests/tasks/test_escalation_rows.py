"""The worked examples of escalation by rows: what the end of a run writes (examples 17a, 17b; rows 185 to 199)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents.spec import Outcome
from routing.words import EndReason, Tier
from tasks.attempts.finish import finish
from tasks.models import Event, Task
from tasks.states import TaskState
from tests.factories.tasks import NOW, make_failed_run, make_run, make_task

pytestmark = pytest.mark.django_db

E = EndReason
KINDS = {
    "I": E.FAILED_BY_AGENT,
    "T": E.TRANSIENT,
    "C": E.RUN_CALL_CAP,
    "$": E.RUN_COST_CAP,
    "B": E.PROJECT_BUDGET,
}
TIERS = {"h": Tier.HAIKU, "s": Tier.SONNET}


def after(history: str) -> Task:
    """`hI hT` is two attempts at haiku; the last one ends now."""
    *earlier, last = history.split()
    task = make_task(state=TaskState.RUNNING)
    for past in earlier:
        make_failed_run(task, KINDS[past[1]], tier=TIERS[past[0]])
    run = make_run(task, tier=TIERS[last[0]])
    finish(run, Outcome(end=KINDS[last[1]]), now=NOW)
    found: Task = Task.objects.get(pk=task.pk)
    return found


@pytest.mark.parametrize(
    ("history", "outcome"),
    [
        ("hI", "retry"),
        ("hT", "retry"),
        ("hI hI", "escalate two_failures_at_haiku"),
        ("hT hI", "escalate max_attempts_at_haiku"),
        ("hI hT", "stop max_attempts_per_tier"),
        ("hT hT", "failed second_transport_failure"),
        ("hI hI sI", "retry"),
        ("hI hI sI sI", "stop max_attempts_per_tier"),
        ("sC s$", "stop change_budget"),  # 17b: only the latest failure matters
        ("s$ sC", "stop max_attempts_per_tier"),
        ("hB hI", "retry"),  # row 197: what a budget cut short never counts
        ("hI hB", "stop project_budget"),
    ],
)
def test_the_end_of_an_attempt_decides_by_all_of_its_window(history: str, outcome: str) -> None:
    task = after(history)
    word, _, reason = outcome.partition(" ")
    escalations = list(Event.objects.filter(kind="agent.escalated").values_list("data__reason", flat=True))
    match word:
        case "retry":
            assert (task.state, task.not_before) == (TaskState.READY, NOW + timedelta(seconds=5))
            assert escalations == []
        case "escalate":
            assert (task.state, task.waiting_for) == (TaskState.READY, "escalate")
            assert escalations == [reason]
        case "stop":
            assert (task.state, task.stop_limit) == (TaskState.BLOCKED, reason)
        case _:
            assert (task.state, task.failure) == (TaskState.FAILED, reason)


def test_failures_before_the_window_do_not_count() -> None:
    """Rows 185, 196."""
    task = make_task(state=TaskState.RUNNING, attempts_reset_at=NOW)
    for _ in range(2):
        make_failed_run(task, E.FAILED_BY_AGENT, started_at=NOW - timedelta(hours=1))
    run = make_run(task, started_at=NOW)
    finish(run, Outcome(end=E.FAILED_BY_AGENT), now=NOW + timedelta(minutes=1))
    assert Task.objects.get(pk=task.pk).waiting_for == "retry"
