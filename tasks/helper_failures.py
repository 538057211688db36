"""Why a client's question has no answer, in plain words, and what would help: which limit refused, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agents.errors import AllowanceRefused, HelperMisconfigured, HelperOutputError, StopRun
from routing.words import BUDGET, EndReason
from tasks.stops import stop_detail

PROBLEM_CHARACTERS_MAX = 1_000
WORK = "asking"

_ANOTHER = "Open an allowance with a higher"
# What an allowance lacks, and what helps. `{needs}`: what its limit would have to be for this call.
OF_DIMENSION: Mapping[str, tuple[str, str]] = {
    "cancelled": ("the allowance is cancelled", "Open another allowance."),
    "deadline": ("the allowance's deadline has passed", "Open another allowance."),
    "calls": ("the allowance has no call left", f"{_ANOTHER} calls_max: this call needs {{needs}}."),
    "tokens": (
        "the allowance has no room for the worst case of this call in tokens",
        f"Wait until what is on its way has settled. Or: {_ANOTHER} tokens_max: this call needs {{needs}}.",
    ),
    "cost": (
        "the allowance has no room for the worst case of this call in money",
        f"Wait until what is on its way has settled. Or: {_ANOTHER} cost_max_usd: this call needs {{needs}}.",
    ),
    "price": (
        "nobody knows what this model costs, so a limit in money cannot bound it",
        "Ask an admin to give the connector its price, or open an allowance without cost_max_usd.",
    ),
}
_NOT_BOUNDED = ("the allowance cannot bound this call", "Open an allowance with other limits.")
_ANSWER = "Ask again with a clearer packet or a schema that is easier to fit."
OF_ANSWER: Mapping[str, tuple[str, str]] = {
    "invalid": ("the answer does not fit the schema, its repair neither", _ANSWER),
    "refused": ("the model refused to answer", "Ask something else."),
    "incomplete": ("the answer was cut off", "Ask for less, or allow more output tokens for each call."),
    "tool_request": ("the model asked for a tool, and helpers have none", _ANSWER),
    "packet_too_large": ("the packet is larger than the model takes", "Send less; nothing is cut by itself."),
    "repair_too_large": ("there is no room to ask for a repair", "Send less; nothing is cut by itself."),
}
_ENDED: Mapping[EndReason, tuple[str, str]] = {
    EndReason.RATE_LIMITED: ("the provider limits how often it may be asked", "Ask again later."),
    EndReason.TIMEOUT: ("the provider did not answer in time", "Ask again; this call may be billed."),
    EndReason.TRANSIENT: ("the provider failed", "Ask again later."),
}
WORKER_LOST = {
    "code": "worker_lost",
    "problem": "a worker died while the question was on its way, so its answer is lost",
    "remedy": "Ask again. What was sent may be billed: its charge stays unknown, at its worst case.",
}
WORKERS_DIED = {
    "code": "workers_died",
    "problem": "several workers died over it; nothing was sent",
    "remedy": "The operator finds more in the workers' logs.",
}
INTERNAL = {
    "code": "internal_error",
    "problem": "internal fault",
    "remedy": "Ask again; the worker's log says more about it.",
}


def failure_of(error: Exception, *, now: datetime) -> dict[str, Any]:
    """The failure as the row and the answer carry it. What is not known here is an internal fault."""
    match error:
        case AllowanceRefused():
            return _of_allowance(error)
        case StopRun():
            return _of_stop(error, now=now)
        case HelperOutputError():
            return _of_answer(error)
        case HelperMisconfigured():
            remedy = "Ask an admin to look at the project's connector."
            return _said(error.code, "this question cannot be asked there", remedy, detail=str(error))
        case _:
            return dict(INTERNAL, problem=f"internal fault: {type(error).__name__}")


def _of_allowance(error: AllowanceRefused) -> dict[str, Any]:
    problem, remedy = OF_DIMENSION.get(error.dimension, _NOT_BOUNDED)
    return _said(
        f"allowance_{error.dimension}",
        problem,
        remedy.format(needs=error.at_least),
        dimension=error.dimension,
        at_least=error.at_least,
    )


def _of_stop(stop: StopRun, *, now: datetime) -> dict[str, Any]:
    """A meter's refusal is a stop as on a Task: each meter that refused, and every act that would lift it."""
    if stop.end in BUDGET:
        detail = stop_detail(stop.end.value, reason=WORK, refusals=stop.refusals, now=now, note=stop.note)
        names = ", ".join(str(each["kind"]) for each in stop.refusals) or "the provider's own limit"
        problem = f"a limit refuses this call: {names}"
        return _said(stop.end.value, problem, "One of `ways_out` lifts it; then ask again.", stop=detail)
    problem, remedy = _ENDED.get(
        stop.end, ("the provider or its connector refuses this", "Ask an admin to look at the connector.")
    )
    return _said(stop.end.value, problem, remedy, detail=stop.note)


def _of_answer(error: HelperOutputError) -> dict[str, Any]:
    cause = error.__cause__
    if isinstance(cause, AllowanceRefused):  # no room for the repair (example 15b)
        return _of_allowance(cause) | {"detail": str(error)[:PROBLEM_CHARACTERS_MAX]}
    problem, remedy = OF_ANSWER.get(error.code, ("the helper gave no valid answer", _ANSWER))
    return _said(error.code, problem, remedy, detail=str(error))


def _said(code: str, problem: str, remedy: str, **more: Any) -> dict[str, Any]:
    if "detail" in more:
        more["detail"] = _plain(more["detail"])
    return {"code": code, "problem": problem, "remedy": remedy, **more}


def _plain(said: str) -> str:
    """What a provider or a model said: no NUL and no half of a character, which no database keeps."""
    text = said[:PROBLEM_CHARACTERS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
