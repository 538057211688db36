"""The desk of one run: the talk with the model, the toolbox and the workspace."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from agents.calls import Answered, call_model, gateway_for
from agents.clock import WALL, Clock
from agents.errors import StopRun
from agents.prompts import AGENT, CUT_OFF, LAST_CALL, NUDGE, REMINDER
from agents.repeats import Repeats, Said
from agents.repetition import ask_again_once, retried, when_holds_end
from agents.runlog import RunLog, storable
from agents.spec import AttemptSpec, Noted, Outcome, Supervisor
from agents.tab import Tab
from agents.tools.tool import Bench, ToolResult, Verdict
from agents.tools.toolbox import specs_of, tools_for, use_tool
from agents.workspace.checkout import Workspace
from agents.workspace.git import Store, store_for
from agents.workspace.publishing import rules_of
from providers.gateway import Gateway
from providers.messages import (
    CachePlan,
    Message,
    ModelReply,
    ModelRequest,
    StopKind,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from routing.words import WORKSPACE_KINDS, EndReason

NOTE_CHARACTERS_MAX = 4_000


class Desk:
    """Everything that one attempt has before it. A fresh one for each attempt: no talk crosses attempts (row 11)."""

    def __init__(
        self,
        spec: AttemptSpec,
        supervisor: Supervisor,
        *,
        gateway: Gateway | None = None,
        clock: Clock = WALL,
    ) -> None:
        self.spec = spec
        self.supervisor = supervisor
        self.clock = clock
        self.tab = Tab(calls_max=spec.caps.calls_max, budget=spec.budget)
        self.tools = tools_for(spec)
        store = store_for(spec.source.repository_id) if spec.source else None
        self.bench = Bench(
            spec=spec, supervisor=supervisor, store=store, workspace=_workspace_for(spec, store), tab=self.tab
        )
        self.log = RunLog(spec)
        self.talk: list[Message] = [SystemMessage(AGENT), UserMessage.of(spec.prompt)]
        self._gateway = gateway
        self._repeats = Repeats()
        self._noted: list[Noted] = []
        self._tool_calls = 0

    def ask(self) -> ModelReply:
        """The model's next turn. Raises `StopRun` at a cap, a refused budget, a cancel, or a broken wire."""
        if self._gateway is None:
            self._gateway = gateway_for(self.spec.payers)
        reply = when_holds_end(
            self._answered, tab=self.tab, supervisor=self.supervisor, clock=self.clock
        ).reply
        self.talk.append(reply.as_message())
        if reply.stop is StopKind.REFUSED:
            raise StopRun(EndReason.REFUSED, "the model refused to go on")
        return reply

    def use_tools(self, reply: ModelReply) -> None:
        """Runs the tools of a turn in order, and writes their answers into the talk. Raises `StopRun` at the end."""
        if reply.stop is StopKind.LENGTH:  # row 43: what was cut off is not done
            cut_off = ToolResult.not_executed("cut_off", CUT_OFF)
            self._answer([(call, cut_off) for call in reply.tool_calls], otherwise=CUT_OFF)
            return
        self._count(len(reply.tool_calls))
        answers: list[tuple[ToolCall, ToolResult]] = []
        failed = False
        for call in reply.tool_calls:
            result = self._use(call, after_a_failure=failed)
            failed = failed or result.verdict is not Verdict.OK
            answers.append((call, result))
        self._answer(answers, otherwise=REMINDER)

    def outcome(self, end: StopRun) -> Outcome:
        """How the run ended, with all that its rows will carry. Stores the tool log."""
        completed = end.end is EndReason.COMPLETED
        note = "" if completed else storable(end.note[:NOTE_CHARACTERS_MAX])
        return Outcome(
            end=end.end,
            note=note,
            cost=self.tab.cost,
            unknown_calls=self.tab.unknown_calls,
            calls=self.tab.calls,
            reads=self.bench.reads,
            intent=storable(end.note) if completed else "",
            published=self.bench.published if completed else None,
            tool_log_key=self.log.store(),
            refusals=end.refusals,
            failure_log="" if completed else self.log.for_the_next_attempt(str(end.end), note),
            retry_after_seconds=end.retry_after_seconds,
            noted=tuple(self._noted),
        )

    def close(self) -> None:
        """Gives the workspace back; every end of a run comes here (row 36)."""
        if self.bench.workspace is not None:
            self.bench.workspace.close()

    def _request(self, number: int) -> ModelRequest:
        """The talk so far. The last allowed call is told so, at the end of this request only (rows 225, 227)."""
        spec, talk = self.spec, self.talk
        if number > 1:
            self._noted.append(retried(spec.payers, self.tab, model=spec.model))
        if self.tab.on_last_call:
            talk = [*talk, UserMessage.of(LAST_CALL)]
        return ModelRequest(
            model=spec.model,
            messages=tuple(talk),
            output_tokens_max=spec.output_tokens_max,
            tools=specs_of(self.tools),
            thinking=spec.thinking,
            cache=CachePlan.AGENT,
            labels={
                **spec.payers.labels,
                "role": "agent",
                "purpose": spec.payers.purpose,
                "kind": str(spec.kind),
                "tier": spec.tier.word,
                "try": str(number),
            },
        )

    def _answered(self) -> Answered:
        return ask_again_once(
            self._request, self._call, tab=self.tab, supervisor=self.supervisor, clock=self.clock
        )

    def _call(self, request: ModelRequest) -> Answered:
        assert self._gateway is not None, "ask() found the account"
        return call_model(
            request,
            self.spec.payers,
            gateway=self._gateway,
            tab=self.tab,
            supervisor=self.supervisor,
            clock=self.clock,
            tell=self._noted.append,
            latest=lambda: self._request(1),
        )

    def _count(self, incoming: int) -> None:
        """The limit of tool calls is checked for the turn as a whole: too many, and none of them runs (row 58)."""
        wanted, limit = self._tool_calls + incoming, self.spec.caps.tool_calls_max
        if wanted > limit:
            raise StopRun(EndReason.RUN_CALL_CAP, f"tool_calls_limit: {wanted} of {limit}")
        self._tool_calls = wanted

    def _use(self, call: ToolCall, *, after_a_failure: bool) -> ToolResult:
        self.supervisor.beat()
        started = self.clock.now()
        try:
            result = self._allowed(call, after_a_failure) or use_tool(self.tools, self.bench, call)
        except StopRun as end:
            self._log(call, ToolResult(f"ends the run: {end.end}"), started)
            raise
        match self._repeats.after(call.name, call.arguments, result.text):
            case Said.STUCK:
                self._log(call, result, started)
                raise StopRun(
                    EndReason.STUCK, f"{call.name[:64]} was called again and again with the same result"
                )
            case Said.NUDGE:
                result = replace(result, text=f"{result.text}\n\n{NUDGE}")
            case Said.NOTHING:
                pass
        self._log(call, result, started)
        return result

    def _allowed(self, call: ToolCall, after_a_failure: bool) -> ToolResult | None:
        """Why a call is not run at all; None when it may."""
        tool = self.tools.get(call.name)
        final = tool is not None and tool.final
        if self.tab.calls_left == 0 and not final:
            return ToolResult.not_executed(
                "last_call", "on the last call only complete_task and fail_task work"
            )
        if call.name == "complete_task" and after_a_failure:
            text = "an earlier call of this turn did not work; look at its result first"
            return ToolResult.not_executed("after_a_failure", text)
        return None

    def _log(self, call: ToolCall, result: ToolResult, started: datetime) -> None:
        self.log.add(call, result, model_call=self.tab.calls, started_at=started, ended_at=self.clock.now())

    def _answer(self, answers: list[tuple[ToolCall, ToolResult]], *, otherwise: str) -> None:
        """Each answer ends with the calls that are left (row 34); a turn without a tool is reminded (row 35)."""
        left = f"[{self.tab.calls_left} model calls left]"
        for call, result in answers:
            is_error = result.verdict is not Verdict.OK
            self.talk.append(ToolMessage(call.id, call.name, f"{result.text}\n{left}", is_error))
        if not answers:
            self.talk.append(UserMessage.of(f"{otherwise}\n{left}"))


def _workspace_for(spec: AttemptSpec, store: Store | None) -> Workspace | None:
    """Only three kinds have one, and it opens at its first use (rows 37, 38)."""
    if store is None or spec.source is None or spec.kind not in WORKSPACE_KINDS:
        return None
    return Workspace(
        store,
        spec.source.start_commit,
        workspace_id=str(spec.run_id),
        trusted=spec.trusted,
        change_id=spec.payers.change_id,
        sandboxes_max=spec.caps.sandboxes_max,
        extra_commands=spec.extra_commands,
        rules=rules_of(spec.publish_rules),
    )
