"""The desk of one run: the talk with the model, the toolbox and the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from agents.calls import Answered, call_model, gateway_for
from agents.clock import WALL, Clock
from agents.errors import StopRun
from agents.prompts import AGENT, CUT_OFF, LAST_CALL, NUDGE, REMINDER
from agents.repeats import Repeats, Said
from agents.repetition import ask_again_once, retried, when_holds_end
from agents.runlog import RunLog, Used, storable
from agents.snapshot import Answer, Counters, Snapshot
from agents.spec import AttemptSpec, Noted, Outcome, Supervisor
from agents.tab import Tab
from agents.tools.tool import Bench, ToolResult, Verdict
from agents.tools.toolbox import specs_of, tools_for, use_tool
from agents.workspace.checkout import Workspace
from agents.workspace.git import Store, store_for
from agents.workspace.publishing import rules_of
from budgets.money import Usd
from providers.gateway import Gateway
from providers.messages import (
    AssistantMessage,
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


@dataclass(slots=True)
class Turn:
    """The tool calls of one answer of the model, and what the first of them have said."""

    calls: Sequence[ToolCall] = ()
    results: list[ToolResult] = field(default_factory=list)

    @property
    def next_call(self) -> ToolCall:
        return self.calls[len(self.results)]

    @property
    def failed(self) -> bool:
        return any(result.verdict is not Verdict.OK for result in self.results)


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
        self._turn = Turn()

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
        """Runs the tools of a turn in order, and writes their answers into the talk.

        Raises `StopRun` at the end of the run, and `NeedsApproval` where it pauses.
        """
        if reply.stop is StopKind.LENGTH:  # row 43: what was cut off is not done
            cut_off = ToolResult.not_executed("cut_off", CUT_OFF)
            self._answer([(call, cut_off) for call in reply.tool_calls], otherwise=CUT_OFF)
            return
        self._count(len(reply.tool_calls))
        self._turn = Turn(reply.tool_calls)
        self.use_the_rest()

    def use_the_rest(self) -> None:
        """The tools of this turn that have not answered yet."""
        turn = self._turn
        while len(turn.results) < len(turn.calls):
            turn.results.append(self._use(turn.next_call, after_a_failure=turn.failed))
        self._answer(list(zip(turn.calls, turn.results, strict=True)), otherwise=REMINDER)

    def use_approved(self, argv: tuple[str, ...]) -> None:
        """Runs the pending command, which a person said yes to: that one, once."""
        self.bench.approved = argv
        self._turn.results.append(self._use(self._turn.next_call, after_a_failure=self._turn.failed))
        self.bench.approved = None

    def refuse(self, text: str) -> None:
        """Answers the pending command without running it: a person said no."""
        call, now = self._turn.next_call, self.clock.now()
        result = ToolResult.refused("declined", text)
        self._log(call, result, now)
        self._turn.results.append(result)

    def snapshot(self, *, revision: int, written: tuple[str, ...]) -> Snapshot:
        """The talk and the counters of a run that pauses in the middle of a turn, without the system prompt."""
        *history, pending = self.talk[1:]
        assert isinstance(pending, AssistantMessage), "a run pauses in a turn of the model"
        assert len(self._turn.results) < len(self._turn.calls), "and before one of its tools"
        tab, repeats = self.tab, self._repeats
        return Snapshot(
            run_id=self.spec.run_id,
            organization_id=self.spec.payers.organization_id,
            revision=revision,
            history=tuple(history),
            pending_response=pending,
            answers=tuple(
                Answer(text=each.text, verdict=str(each.verdict), code=each.code, kept=each.kept)
                for each in self._turn.results
            ),
            counters=Counters(
                calls=tab.calls,
                reads=self.bench.reads,
                tool_calls=self._tool_calls,
                cost_micro=tab.cost.micro,
                unknown_calls=tab.unknown_calls,
                unknown_at_worst_micro=tab.unknown_at_worst.micro,
                said_nothing_changed=self.bench.said_nothing_changed,
                repeats_count=repeats.count,
                repeats_nudged=repeats.nudged,
            ),
            repeats_last=repeats.last,
            log=tuple(asdict(used) for used in self.log.used),
            written=written,
        )

    def bring_back(self, snapshot: Snapshot) -> None:
        """Puts a stored talk onto this fresh desk; system prompt, model and tools are those of the spec (row 235)."""
        assert snapshot.run_id == self.spec.run_id, "a talk never crosses attempts"
        counters, pending = snapshot.counters, snapshot.pending_response
        self.talk = [SystemMessage(AGENT), *snapshot.history, pending]
        results = [
            ToolResult(each.text, Verdict(each.verdict), each.code, each.kept) for each in snapshot.answers
        ]
        self._turn = Turn(pending.tool_calls, results)
        self._tool_calls = counters.tool_calls
        self.tab.calls, self.tab.cost = counters.calls, Usd(counters.cost_micro)
        self.tab.unknown_calls = counters.unknown_calls
        self.tab.unknown_at_worst = Usd(counters.unknown_at_worst_micro)
        self.bench.reads = counters.reads
        self.bench.said_nothing_changed = counters.said_nothing_changed
        self._repeats = Repeats(snapshot.repeats_last, counters.repeats_count, counters.repeats_nudged)
        self.log.used = [Used(**each) for each in snapshot.log]

    @property
    def noted(self) -> tuple[Noted, ...]:
        return tuple(self._noted)

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
            noted=self.noted,
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
        approval_commands=spec.approval_commands,
        rules=rules_of(spec.publish_rules),
    )
