"""Workers without a broker: the same job functions, called until nothing is due."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from django.utils import timezone

from tasks.attempts.run import run_task
from tasks.fence import due_changes
from tasks.models import Change, Task
from tasks.states import TaskState
from tasks.work import work_on

ROUNDS_MAX = 200


def work_until_idle() -> int:
    """Plan, attempt and compose whatever is due; the 5 seconds before a retry pass at once. How many steps it took."""
    for step in range(ROUNDS_MAX):
        now = timezone.now()
        # A retry waits seconds, a start lease minutes: only the wait is skipped.
        soon = Task.objects.filter(
            state=TaskState.READY, owner="", not_before__lte=now + timedelta(seconds=30)
        )
        soon.update(not_before=None)
        change = due_changes(now).order_by("number").first()
        task = (
            Task.objects.filter(state=TaskState.READY, not_before=None, owner="", change__paused_at=None)
            .order_by("change__number", "position")
            .first()
        )
        if change is not None:
            work_on(change.pk)
        elif task is not None:
            run_task(task.pk)
        else:
            return step
    raise AssertionError(
        f"not idle after {ROUNDS_MAX} steps: {list(Change.objects.values_list('title', 'state'))}"
    )


def entries_without_pauses(folder: Path) -> list[dict[str, Any]]:
    """Scenario files as entries of a connector, without the seconds that make them watchable."""
    entries: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["scenarios"]:
            steps = [
                {name: value for name, value in step.items() if name != "seconds"} for step in entry["steps"]
            ]
            entries.append({**entry, "steps": steps})
    return entries
