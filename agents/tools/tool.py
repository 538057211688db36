"""What a tool is, what it works on, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agents.prompts import NO_WORKSPACE
from agents.spec import AttemptSpec, Published, Supervisor
from agents.tab import Tab
from agents.workspace.checkout import Workspace
from agents.workspace.git import Store


class Verdict(StrEnum):
    """How a tool call went; a column of its row."""

    OK = "ok"
    REFUSED = "refused"  # the host says no, and why
    ERROR = "error"  # it was tried, and did not work
    NOT_EXECUTED = "not_executed"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model reads. `code` is a stable word for everything that is not ok.

    `kept` is the key of the whole output in the object store, where the text is a part of it.
    """

    text: str
    verdict: Verdict = Verdict.OK
    code: str = ""
    kept: str = ""

    @classmethod
    def refused(cls, code: str, text: str) -> ToolResult:
        return cls(text, Verdict.REFUSED, code)

    @classmethod
    def error(cls, code: str, text: str) -> ToolResult:
        return cls(text, Verdict.ERROR, code)

    @classmethod
    def not_executed(cls, code: str, text: str) -> ToolResult:
        return cls(f"not_executed: {text}", Verdict.NOT_EXECUTED, code)


@dataclass(slots=True, kw_only=True)
class Bench:
    """What the tools of one run work on. `workspace` opens at its first use; None for kinds without one."""

    spec: AttemptSpec
    supervisor: Supervisor
    store: Store | None
    workspace: Workspace | None
    tab: Tab
    reads: int = 0
    said_nothing_changed: bool = False
    published: Published | None = None
    approved: tuple[str, ...] | None = None  # the one command that a person said yes to, until it is run


Arguments = Mapping[str, Any]  # what a model sent, after its schema was checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `schema` is checked before `use` is called; a final tool ends the run."""

    name: str
    description: str
    schema: Mapping[str, Any]
    use: Callable[[Bench, Arguments], ToolResult]
    needs_workspace: bool = False
    final: bool = False


NO_WORKSPACE_RESULT = ToolResult.refused("no_workspace", NO_WORKSPACE)


def object_of(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A closed JSON Schema of an object."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }
