"""Which tools a run gets, and the one way to use one: arguments are checked before anything happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from agents.errors import GitError, NoSandbox, SandboxLimit
from agents.jsontext import NotFound, parse_arguments
from agents.spec import AttemptSpec, Permission, ToolRule
from agents.tools.commands import COMMAND_TOOLS
from agents.tools.files import FILE_TOOLS
from agents.tools.finish import FINISH_TOOLS
from agents.tools.tool import Bench, Tool, ToolResult
from providers.messages import ToolCall, ToolSpec

ALL_TOOLS = (*FILE_TOOLS, *COMMAND_TOOLS, *FINISH_TOOLS)
ARGUMENTS_CHARACTERS_MAX = 4_500_000
GIT_ERROR_CHARACTERS_MAX = 500
assert len({tool.name for tool in ALL_TOOLS}) == len(ALL_TOOLS) == 8


def tools_for(spec: AttemptSpec) -> Mapping[str, Tool]:
    """All eight, or only the two that end a run, for a project without source (row 39)."""
    offered = FINISH_TOOLS if spec.source is None else ALL_TOOLS
    return {tool.name: tool for tool in offered}


def specs_of(tools: Mapping[str, Tool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools.values())


def use_tool(tools: Mapping[str, Tool], bench: Bench, call: ToolCall) -> ToolResult:
    """One call. An unknown tool and arguments that do not fit are answers, not faults (rows 31, 48).

    Raises `StopRun` when the tool ends the run.
    """
    tool = tools.get(call.name)
    if tool is not None and not may_use(bench.spec.tool_rules, tool.name):
        return ToolResult.refused("denied", f"{tool.name} is not permitted in this project")
    if tool is None:
        return ToolResult.error(
            "unknown_tool", f"there is no tool {call.name[:64]!r}; there are: {', '.join(tools)}"
        )
    if len(call.arguments) > ARGUMENTS_CHARACTERS_MAX:
        return ToolResult.refused("validation_error", "the arguments are too long")
    found = parse_arguments(call.arguments)
    if isinstance(found, NotFound):
        return ToolResult.refused("validation_error", f"{tool.name}: {found}")
    problem = why_not_fitting(found.value, tool.schema)
    if problem:
        return ToolResult.refused("validation_error", f"{tool.name}: {problem}")
    try:
        return tool.use(bench, found.value)
    except SandboxLimit as full:  # row 56: nothing was opened, and the call may be tried again
        return ToolResult.error("sandbox_limit", f"{tool.name}: {full}")
    except GitError as error:  # what a program left in the workspace may be nothing that git takes
        return ToolResult.error("git", f"{tool.name}: {str(error)[:GIT_ERROR_CHARACTERS_MAX]}")
    except NoSandbox as missing:
        return ToolResult.error("no_sandbox", f"{tool.name}: {missing}; file tools still work")


def may_use(layers: Sequence[Sequence[ToolRule]], name: str) -> bool:
    """Whether every ancestor permits a tool (row 49). A layer without a matching rule permits it."""
    return all(_permission(rules, name) is Permission.ALLOW for rules in layers)


def _permission(rules: Sequence[ToolRule], name: str) -> Permission:
    matching = [rule.permission for rule in rules if fnmatchcase(name, rule.pattern)]
    return matching[-1] if matching else Permission.ALLOW


def why_not_fitting(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What is wrong with a value by its schema, and where; empty when it fits."""
    error = best_match(Draft202012Validator(schema).iter_errors(value))
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    return f"{where}: {error.message[:300]}" if where else error.message[:300]
