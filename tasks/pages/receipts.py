"""A decision receipt with its reasons in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from routing import escalate, route
from tasks.models import DecisionReceipt
from tasks.pages.stops import STOP_LABELS
from tasks.stops import APPROVAL_NEEDED, EFFECT_UNCERTAIN, STOPPED_BY_PERSON

SENTENCES = {
    **route.SENTENCES,
    **escalate.SENTENCES,
    "bad_output": "The account's answer could not be read.",
    "by_person": "A person promoted it.",
    "by_project_rule": "The project promotes by itself what passes.",
    "comment": "A person sent the work back with a comment.",
    "criteria_passed": "Every criterion passed; a person decides.",
    "criterion_failed": "A criterion did not pass.",
    "design_conflict": "The review saw two designs in one place.",
    "failed": "It had failed; a person opened it again.",
    "integrate": "Work did not merge, so it is built again on what it did not merge with.",
    "held": "Only money that is held stands in the way; it waits for that.",
    "index": "The index of the files is still built.",
    "index_missing": "The index of the files is missing.",
    "internal_fault": "Remit could not start it.",
    "invariant_broken": "The judge says that something which must stay true is broken.",
    "dependency_merge_conflict": "What it builds on does not merge.",
    "max_attempts_per_tier": "Every tier had its attempts.",
    "no_room_for_the_first_call": "No limit has room for the first call.",
    "packet_too_large": "What it must be told does not fit.",
    "planning": "While it was planned.",
    "main_moved": "Main had moved since it was composed.",
    "same_lines": "Both changed the same lines.",
    "unreadable": "The plan could not be used.",
    "every_criterion_passed": "Every criterion passed on this commit.",
    APPROVAL_NEEDED: "A command of this project waits for a person's yes.",
    EFFECT_UNCERTAIN: "The worker died while an approved command ran.",
    "approved": "A person approved it.",
    "approved_edited": "A person approved it after an edit.",
    "budget_spent": "Nothing of the budget is left.",
    "compaction_refused": "The budget refused the call that tells old failures in short.",
    "composing": "While the work was put together.",
    "connector_not_found": "The project's connector is missing or off.",
    "declined": "A person declined the command.",
    "approver_may_not": "Whoever approved the command may not do so any more: it waits for another person.",
    "took_effect": "A person looked: the command took effect.",
    "no_effect": "A person looked: the command had no effect.",
    STOPPED_BY_PERSON: "A person stopped the attempt.",
    "rate_limited": "The account let nothing through.",
    "readable": "The plan could be read, and nothing in it was refused.",
    "timeout": "The account did not answer in time.",
    "transient": "The account failed.",
}


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """`facts` are what a route looked at beside its rule: the floor, and whether the classifier was asked."""

    receipt: DecisionReceipt
    sentences: tuple[str, ...]
    facts: tuple[str, ...] = ()


def receipt_row(receipt: DecisionReceipt) -> ReceiptRow:
    return ReceiptRow(
        receipt, tuple(_sentence(str(reason)) for reason in receipt.reasons), tuple(_facts(receipt))
    )


def _sentence(reason: str) -> str:
    """A stop or a wait is named by the limit; a word of an older version is shown as it is."""
    if reason in SENTENCES:
        return SENTENCES[reason]
    named = STOP_LABELS.get(reason)
    words = f"It had stopped at {named}." if named else reason.replace("_", " ").replace(":", ": ") + "."
    return words[:1].upper() + words[1:]


def _facts(receipt: DecisionReceipt) -> Iterator[str]:
    if receipt.kind != "route" or "by" not in receipt.detail:
        return
    detail = receipt.detail
    if detail["by"] == "classifier":
        confidence = detail.get("confidence")
        yield f"classifier sure to {confidence}" if confidence else "classifier gave no answer"
    else:
        yield "classifier not asked"
    if detail.get("floor"):
        yield f"floor {detail['floor']}"
