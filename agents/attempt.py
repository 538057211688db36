"""run_attempt(): one attempt of a Task, from its first model call to its end."""

from __future__ import annotations

from agents.desk import Desk
from agents.errors import StopRun
from agents.spec import AttemptSpec, Outcome, Supervisor


def run_attempt(spec: AttemptSpec, supervisor: Supervisor, *, desk: Desk | None = None) -> Outcome:
    """Asks and uses tools in turn, until a tool, a cap, a stop or a cancel ends it (row 35).

    Every end is an `Outcome`, and closes the workspace; what escapes from here is a bug or a broken
    machine. `desk` is for tests: another gateway, another clock.
    """
    desk = desk or Desk(spec, supervisor)
    try:
        while True:  # the metered door counts, and ends it at the cap
            desk.use_tools(desk.ask())
    except StopRun as end:
        return desk.outcome(end)
    finally:
        desk.close()
