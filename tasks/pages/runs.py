"""Browser: one attempt on its time axis with its log, and the packet it was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from agents import archive
from agents.context.packet import compare, packet_from
from agents.models import ModelCall, ToolCall
from budgets.money import Usd
from routing.words import Tier
from tasks import reads
from tasks.approvals import approvals_of
from tasks.display.log import LogEntry, ToolLog, log_of, read_log
from tasks.errors import NotStopped
from tasks.models import TaskRun
from tasks.pages.live import mark_of, show
from tasks.pages.receipts import ReceiptRow, receipt_row
from tasks.pages.stops import stop_card
from tasks.pages.stories import Story, story
from tasks.pictures.timeline import Placed, Span, climb, seconds_axis, timeline, waits
from tasks.states import OPEN_RUNS, RunState
from tasks.stopping import stop_run
from tenants.access import require_role, role_of
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Role, User

# What the engine says of a call that failed and was not the end.
AFTER_A_FAILURE = ("model.retry", "model.fallback", "model.fallback.unfit")

TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class CallRow:
    """A model call with the tools it asked for; `entries` are there once the run has ended."""

    number: int
    call: ModelCall
    tools: tuple[ToolCall, ...]
    entries: tuple[LogEntry, ...]
    after: tuple[Story, ...] = ()  # what followed its failure: a retry, another account


@require_GET
@login_required
def run_detail(request: HttpRequest, run_id: UUID) -> HttpResponse:
    run = reads.run_for(request.user, run_id)
    calls = list(ModelCall.objects.visible_to(request.user).filter(run_id=run.pk).order_by("id"))
    tools = list(ToolCall.objects.visible_to(request.user).filter(run_id=run.pk).order_by("position"))
    end = run.ended_at or timezone.now()
    search = request.GET.get("q", "")[: reads.SEARCH_CHARACTERS_MAX]
    log = _log(run, search) or _live_log(tools, search)
    context = {
        "run": run,
        "task": run.task,
        "change": run.task.change,
        "tier": Tier(run.tier).word,
        "why": _why(run),
        "rows": _rows(calls, tools, log, _after(run)),
        "account": run.task.change.project.connector,
        "log": log,
        "search": search,
        "placed": _placed(run, calls, tools, end=end),
        "ticks": seconds_axis(run.started_at, end),
        "money": climb(_charges(calls), start=run.started_at, end=end),
        "live": run.state == RunState.RUNNING,
        "stoppable": run.state in OPEN_RUNS,
        "approvals": approvals_of(run.task.change).filter(continuation__run_id=run.pk),
        "role": role_of(request.user, run.task.change.organization_id),
        "refused": stop_card(run.end_reason, run.detail) if run.detail.get("refusals") else None,
    }
    mark = mark_of(run.state, run.stop_asked_at, [(call.pk, call.state) for call in calls], len(tools))
    return show(request, "tasks/run_detail.html", context, mark=mark)


@require_POST
@login_required
def run_stop(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """End this one attempt; its Change goes on with the others."""
    run = reads.run_for(request.user, run_id)
    require_role(request.user, run.task.change.organization_id, Role.MEMBER)
    reason = request.POST.get("reason", "")
    try:
        stop_run(run, by=cast(User, request.user), reason=reason, now=timezone.now())
    except NotStopped as late:
        messages.warning(request, str(late))
    except InvalidInput as wrong:
        messages.error(request, str(wrong))
    else:
        messages.success(
            request, f"Attempt {run.attempt} ends before its next call. {run.task.key} then waits."
        )
    return redirect("run", run.pk)


@require_GET
@login_required
def run_log(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """The whole log as it is stored."""
    run = reads.run_for(request.user, run_id)
    return _download(
        archive.find(run.tool_log_key), "log", "application/json", f"{run.task.key}-{run.attempt}.json"
    )


@require_GET
@login_required
def run_output(request: HttpRequest, run_id: UUID, position: int) -> HttpResponse:
    """What a command wrote, all of it: the model saw the head and the tail."""
    run = reads.run_for(request.user, run_id)
    log = _log(run, "")
    kept = next((each.kept for each in log.entries if each.position == position), "") if log else ""
    return _download(archive.find(kept), "output", TEXT_TYPE, f"{run.task.key}-{run.attempt}-{position}.txt")


@require_GET
@login_required
def packet_detail(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """What an attempt was told, and what the attempt before it was not."""
    run = reads.run_for(request.user, run_id)
    stored = archive.find(run.packet_key)
    if stored is None:
        raise NotVisible("packet")
    packet = packet_from(stored)
    earlier = run.task.runs.filter(attempt__lt=run.attempt).order_by("-attempt").first()
    before = archive.find(earlier.packet_key) if earlier else None
    difference = None if before is None else compare(packet_from(before), packet)
    context = {
        "run": run,
        "task": run.task,
        "change": run.task.change,
        "packet": packet,
        "earlier": earlier,
        "difference": difference,
    }
    return render(request, "tasks/packet_detail.html", context)


def _why(run: TaskRun) -> ReceiptRow | None:
    """The receipt of its route."""
    route = run.receipts.filter(kind="route").order_by("id").first()
    return receipt_row(route) if route is not None else None


def _log(run: TaskRun, search: str) -> ToolLog | None:
    """The whole log; None where there is none, or none any more."""
    content = archive.find(run.tool_log_key)
    return None if content is None else read_log(content, search=search)


def _live_log(tools: Sequence[ToolCall], search: str) -> ToolLog:
    """What the rows show of a run that goes on, or whose worker died before it could store the whole."""
    rows = [
        {
            "position": tool.position,
            "model_call": tool.model_call,
            "tool": tool.name,
            "arguments": tool.arguments,
            "verdict": tool.outcome,
            "code": tool.code,
            "result": tool.answer,
        }
        for tool in tools
    ]
    return log_of(rows, search=search)


def _after(run: TaskRun) -> dict[int, list[Story]]:
    """By the number of the failed call (row 119); told when the run has ended."""
    found: dict[int, list[Story]] = {}
    for event in run.events.filter(kind__in=AFTER_A_FAILURE).order_by("id"):
        found.setdefault(event.data.get("call", 0), []).append(story(event.kind, event.data))
    return found


def _rows(
    calls: Sequence[ModelCall], tools: Sequence[ToolCall], log: ToolLog, after: Mapping[int, list[Story]]
) -> list[CallRow]:
    return [
        CallRow(
            number=number,
            call=call,
            tools=tuple(tool for tool in tools if tool.model_call == number),
            entries=tuple(entry for entry in log.entries if entry.model_call == number),
            after=tuple(after.get(number, ())),
        )
        for number, call in enumerate(calls, start=1)
    ]


def _placed(
    run: TaskRun, calls: Sequence[ModelCall], tools: Sequence[ToolCall], *, end: datetime
) -> tuple[Placed, ...]:
    spans = [
        Span(f"call {call.tier or 'other'}", f"call {number}: {call.model}", call.started_at, call.ended_at)
        for number, call in enumerate(calls, start=1)
    ]
    spans += [
        Span(
            f"tool {tool.outcome}",
            f"{tool.name}: {tool.code or tool.outcome}",
            tool.started_at,
            tool.ended_at,
        )
        for tool in tools
    ]
    spans += waits(spans, start=run.started_at, end=end) if spans else ()
    return timeline(spans, start=run.started_at, end=end)


def _charges(calls: Sequence[ModelCall]) -> list[tuple[datetime, Usd]]:
    return [(call.ended_at, call.cost) for call in calls if call.ended_at and call.cost is not None]


def _download(content: bytes | None, what: str, content_type: str, name: str) -> HttpResponse:
    """Bytes that a model or a program wrote: a browser must never take them for a page."""
    if content is None:
        raise NotVisible(what)
    answer = HttpResponse(content, content_type=content_type)
    answer["Content-Disposition"] = f"attachment; filename={name}"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
