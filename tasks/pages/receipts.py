"""A decision receipt with its reasons in sentences."""

from __future__ import annotations

from dataclasses import dataclass

from routing import escalate, route
from tasks.models import DecisionReceipt
from tasks.stops import APPROVAL_NEEDED, EFFECT_UNCERTAIN, STOPPED_BY_PERSON

SENTENCES = {
    **route.SENTENCES,
    **escalate.SENTENCES,
    "bad_output": "The account's answer could not be read.",
    "by_project_rule": "The project promotes by itself what passes.",
    "every_criterion_passed": "Every criterion passed on this commit.",
    APPROVAL_NEEDED: "A command of this project waits for a person's yes.",
    EFFECT_UNCERTAIN: "The worker died while an approved command ran.",
    "approved": "A person approved the command.",
    "declined": "A person declined the command.",
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
    receipt: DecisionReceipt
    sentences: tuple[str, ...]


def receipt_row(receipt: DecisionReceipt) -> ReceiptRow:
    return ReceiptRow(
        receipt, tuple(SENTENCES.get(reason, reason.replace("_", " ")) for reason in receipt.reasons)
    )
