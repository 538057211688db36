"""The kinds of events that are told to endpoints: the same words as in the events over REST. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KINDS: Mapping[str, str] = {
    "change.submitted": "a Change was handed over, or kept as a draft",
    "change.running": "its plan stands, agents are at work; also after a stop",
    "change.awaiting_approval": "its plan waits for a person",
    "change.budget_blocked": "it is stopped and waits for a person; the stop says which limit and who lifts it",
    "change.ready": "its Candidate passed every criterion and may be promoted",
    "change.promoted": "its work is on main",
    "change.failed": "it failed",
    "change.cancelled": "somebody cancelled it",
    "task.done": "a Task ended well",
    "task.failed": "a Task failed for good",
    "task.blocked": "a Task is stopped by a limit, or by what it builds on",
    "task.cancelled": "a Task was cancelled",
    "approval.asked": "an attempt has paused before a command that waits for a person's yes",
    "approval.approved": "somebody said yes to a command",
    "approval.declined": "somebody said no to a command",
    "approval.reconciled": "somebody said what became of a command whose worker died",
    "budget.threshold": "a meter passed 50, 80 or 100 percent of its limit",
    "budget.raised": "somebody raised a limit",
    "reservation.unknown": "nobody could read what a call cost: it is charged at its worst case",
}
# Everything, also kinds that a later version adds.
EVERYTHING = "*"
# Sent by a person's click only, whatever the endpoint asked for.
TEST = "webhook.test"
PAYLOAD_VERSION = 1


def wants(asked: Iterable[str], kind: str) -> bool:
    """Does an endpoint that asked for these hear of this kind?"""
    return any(one in (kind, EVERYTHING) for one in asked)
