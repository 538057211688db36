"""run_command: one allowed command in the sandbox."""

from __future__ import annotations

from agents import archive
from agents.context.fence import fence
from agents.errors import NeedsApproval
from agents.tools.tool import NO_WORKSPACE_RESULT, Arguments, Bench, Tool, ToolResult, Verdict, object_of
from agents.workspace.allowlist import Refusal
from agents.workspace.sandbox import CommandOutput

COMMAND_CHARACTERS_MAX = 4_000
ARGUMENTS_MAX = 64
WHY_CHARACTERS_MAX = 500


def run_command(bench: Bench, arguments: Arguments) -> ToolResult:
    """Runs it, or says which form would be allowed (rows 44 to 47, 55).

    Raises `NeedsApproval` for one that waits for a person's yes (row 228), each time anew.
    """
    if bench.workspace is None:
        return NO_WORKSPACE_RESULT
    asking = bench.workspace.asks_first(arguments["command"])
    if asking is not None and asking != bench.approved:
        raise NeedsApproval(asking, arguments.get("why", ""))
    bench.approved = None
    caps = bench.spec.caps
    output = bench.workspace.run(
        arguments["command"],
        seconds_max=caps.command_seconds_max,
        beat=bench.supervisor.beat,
        output_characters_max=caps.output_characters_max,
    )
    if isinstance(output, Refusal):
        return ToolResult.refused("command", str(output))
    return _result(output, archive_prefix=bench.spec.archive_prefix)


def _result(output: CommandOutput, *, archive_prefix: str) -> ToolResult:
    ended = f"exit code {output.exit_code}" if output.exit_code is not None else f"ended: {output.reason}"
    text = f"{ended}, after {output.seconds:.1f} s\n{fence('output', output.text)}"
    kept = archive.put_by_hash(f"{archive_prefix}/outputs", output.whole, ".txt") if output.whole else ""
    if output.passed:
        return ToolResult(text, kept=kept)
    code = "failed" if output.exit_code is not None else output.reason
    return ToolResult(text, Verdict.ERROR, code, kept)


COMMAND_TOOLS = (
    Tool(
        name="run_command",
        description=(
            "Runs one program of the repository's own checks, such as pytest, ruff, mypy, npm test, make, go test, "
            "cargo test, git status, git diff, git log or ls. No shell: no pipes, no redirections, no variables. "
            "Give it as text or as a list of arguments. There is no network. Some commands of a project wait for a "
            "person's yes: say in `why` what you need it for."
        ),
        schema=object_of(
            {
                "command": {
                    "type": ["string", "array"],
                    "minLength": 1,
                    "maxLength": COMMAND_CHARACTERS_MAX,
                    "minItems": 1,
                    "maxItems": ARGUMENTS_MAX,
                    "items": {"type": "string", "maxLength": COMMAND_CHARACTERS_MAX},
                }
            },
            {"why": {"type": "string", "maxLength": WHY_CHARACTERS_MAX}},
        ),
        use=run_command,
        needs_workspace=True,
    ),
)
