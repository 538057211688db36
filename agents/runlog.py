"""The log of one run: a row per tool call, the whole in the object store, and what the next attempt should know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from uuid import UUID

from agents import archive
from agents.models import ToolCall as ToolCallRow
from agents.spec import AttemptSpec
from agents.tools.tool import ToolResult
from providers.messages import ToolCall

# What a failed attempt leaves to the next one: newest calls first to stay, each cut.
FAILURE_LOG_CHARACTERS_MAX = 40_000
# What the row of a call shows of it while its run goes on.
LIVE_ARGUMENTS_CHARACTERS_MAX = 2_000
LIVE_ANSWER_CHARACTERS_MAX = 4_000
ARGUMENTS_SHOWN_CHARACTERS = 400
RESULT_SHOWN_CHARACTERS = 2_400
assert ARGUMENTS_SHOWN_CHARACTERS + RESULT_SHOWN_CHARACTERS < FAILURE_LOG_CHARACTERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """One tool call as the tool log keeps it: inputs and outputs, never what the model thought (row 206)."""

    position: int
    model_call: int
    tool: str
    arguments: str
    verdict: str
    code: str
    result: str
    kept: str = ""


@dataclass(slots=True)
class RunLog:
    spec: AttemptSpec
    used: list[Used] = field(default_factory=list)

    def add(
        self, call: ToolCall, result: ToolResult, *, model_call: int, started_at: datetime, ended_at: datetime
    ) -> None:
        """One tool call, as a row and for the log."""
        used = Used(
            position=len(self.used) + 1,
            model_call=model_call,
            tool=call.name,
            arguments=call.arguments,
            verdict=str(result.verdict),
            code=result.code,
            result=result.text,
            kept=result.kept,
        )
        self.used.append(used)
        ToolCallRow.objects.create(
            organization_id=self.spec.payers.organization_id,
            run_id=self.spec.run_id,
            position=used.position,
            model_call=model_call,
            name=storable(call.name[:64]),
            outcome=used.verdict,
            code=result.code,
            arguments=storable(_cut(call.arguments, LIVE_ARGUMENTS_CHARACTERS_MAX)),
            answer=storable(_cut(result.text, LIVE_ANSWER_CHARACTERS_MAX)),
            characters_in=len(call.arguments),
            characters_out=len(result.text),
            started_at=started_at,
            ended_at=ended_at,
        )

    def store(self, *, pauses: bool = False) -> str:
        """Puts the log into the object store; the key of it. `pauses`: the rows still show it, as they will go on."""
        content = json.dumps([asdict(used) for used in self.used], indent=1).encode()
        key = archive.put(f"{self.spec.archive_prefix}/tools-{self.spec.run_id}.json", content)
        if not pauses:
            empty_rows(self.spec.run_id)
        return key

    def for_the_next_attempt(self, end: str, note: str) -> str:
        """How it ended and what was done last, bounded: the newest calls stay whole, the oldest go first."""
        head = f"ended: {end}\n{note}\n".strip() + "\n"
        room = FAILURE_LOG_CHARACTERS_MAX - len(head)
        shown: list[str] = []
        for used in reversed(self.used):
            text = _shown(used)
            if len(text) > room:
                shown.append(f"[{used.position} earlier tool calls are left out]\n")
                break
            room -= len(text)
            shown.append(text)
        return storable(head + "".join(reversed(shown)))


def empty_rows(run_id: UUID) -> None:
    """The whole log of an ended run is stored: its rows need not show it any more."""
    ToolCallRow.objects.filter(run_id=run_id).update(arguments="", answer="")


def storable(text: str) -> str:
    """Text for a column: no database takes half a character, and PostgreSQL no NUL; a model may write both."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _shown(used: Used) -> str:
    arguments = _cut(used.arguments, ARGUMENTS_SHOWN_CHARACTERS)
    return f"{used.position}. {used.tool} {arguments}\n{_cut(used.result, RESULT_SHOWN_CHARACTERS)}\n"


def _cut(text: str, characters: int) -> str:
    """The beginning and the end: a command's verdict stands in its last lines."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} [… {len(text) - 2 * half} characters …] {text[-half:]}"
