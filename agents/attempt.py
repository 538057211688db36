"""run_attempt(): one attempt of a Task, from its first model call, or from where it paused, to its end."""

from __future__ import annotations

from agents.continuation import go_on, pause
from agents.desk import Desk
from agents.errors import NeedsApproval, StopRun
from agents.models import Approval
from agents.snapshot import Snapshot
from agents.spec import AttemptSpec, Outcome, Paused, Supervisor


def run_attempt(
    spec: AttemptSpec,
    supervisor: Supervisor,
    *,
    desk: Desk | None = None,
    after: tuple[Approval, Snapshot] | None = None,
) -> Outcome | Paused:
    """Asks and uses tools in turn, until a tool, a cap, a stop or a cancel ends it, or a command pauses it (row 35).

    Every end is an `Outcome`, every pause a `Paused`; each closes the workspace. What escapes from here is a bug
    or a broken machine. `desk` is for tests: another gateway, another clock. `after` is the decided approval of
    an attempt that goes on, with its talk.
    """
    desk = desk or Desk(spec, supervisor)
    try:
        if after is not None:
            go_on(desk, *after)
        while True:  # the metered door counts, and ends it at the cap
            desk.use_tools(desk.ask())
    except NeedsApproval as asking:
        return pause(desk, asking)
    except StopRun as end:
        return desk.outcome(end)
    finally:
        desk.close()
