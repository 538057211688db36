"""complete_task and fail_task: the two ways in which an agent ends its run."""

from __future__ import annotations

from agents import archive
from agents.errors import GitError, StopRun
from agents.prompts import NOTHING_CHANGED
from agents.spec import Published
from agents.tools.tool import Arguments, Bench, Tool, ToolResult, object_of
from agents.workspace.checkout import NothingChanged, PublishRefused, WorkPublished, Workspace
from routing.words import EndReason

REASON_CHARACTERS_MAX = 4_000
ERROR_CHARACTERS_MAX = 500
_TEXT = {"type": "string", "minLength": 1, "maxLength": REASON_CHARACTERS_MAX}


def complete_task(bench: Bench, arguments: Arguments) -> ToolResult:
    """Publishes the ChangeSet and ends the run (row 36). What cannot be published is told while calls are left."""
    if bench.workspace is not None:
        said_no = _publish(bench, bench.workspace)
        if said_no is not None:
            return said_no
    raise StopRun(EndReason.COMPLETED, str(arguments["intent"]))


def fail_task(_bench: Bench, arguments: Arguments) -> ToolResult:
    raise StopRun(EndReason.FAILED_BY_AGENT, str(arguments["reason"]))


def _publish(bench: Bench, workspace: Workspace) -> ToolResult | None:
    """None when the work is published; what the agent is told otherwise."""
    spec = bench.spec
    try:
        published = workspace.publish(spec.changeset_id, message=spec.message, at=spec.committed_at)
    except GitError as error:
        raise StopRun(EndReason.PUBLISH_FAILED, str(error)[:ERROR_CHARACTERS_MAX]) from error
    last = bench.tab.calls_left == 0
    match published:
        case WorkPublished():
            bench.published = _described(bench, published)
            return None
        case NothingChanged():
            if bench.said_nothing_changed or last:
                raise StopRun(EndReason.NOTHING_CHANGED, "complete_task was called on an unchanged workspace")
            bench.said_nothing_changed = True
            return ToolResult.refused("nothing_changed", NOTHING_CHANGED)
        case PublishRefused():
            if last:
                raise StopRun(EndReason.PUBLISH_FAILED, str(published)[:ERROR_CHARACTERS_MAX])
            return ToolResult.refused("publish", str(published))


def _described(bench: Bench, published: WorkPublished) -> Published:
    """The lineage of the ChangeSet, and its patch in the object store: from the start commit on (rows 216, 217)."""
    spec = bench.spec
    assert spec.source is not None, "a workspace has a source"
    assert bench.store is not None
    base, start = spec.source.base_commit, spec.source.start_commit
    patch = bench.store.patch(start, published.commit)
    return Published(
        commit=published.commit,
        base_commit=base,
        start_commit=start,
        files=bench.store.changed_files(base, published.commit),
        own_files=published.own_files,
        patch_key=archive.put_by_hash(f"{spec.archive_prefix}/patches", patch, ".patch"),
    )


FINISH_TOOLS = (
    Tool(
        name="complete_task",
        description="Ends the Task with success and publishes the work. Say what was changed and why.",
        schema=object_of({"intent": _TEXT}),
        use=complete_task,
        final=True,
    ),
    Tool(
        name="fail_task",
        description="Ends the Task without success. Say what stands in the way and what was found out.",
        schema=object_of({"reason": _TEXT}),
        use=fail_task,
        final=True,
    ),
)
