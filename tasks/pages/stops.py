"""What a stop says on a page: what stopped, the figures of that moment, and the acts that lift it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from budgets.money import Usd
from routing.escalate import SENTENCES
from tasks.stops import APPROVAL_NEEDED, EFFECT_UNCERTAIN, STOPPED_BY_PERSON

METER_LABELS: Mapping[str, str] = {
    "change": "This change",
    "project": "Project, this month",
    "user": "Author, this month",
    "organization": "Organization, this month",
    "daily_calls": "Calls of the organization, today",
    "classifier_calls": "Classifier calls, today",
    "embeddings": "Embeddings, today",
    "provider": "Provider account, this month",
    "platform": "Whole deployment, this month",
}

STOP_LABELS: Mapping[str, str] = {
    "change_budget": "this change's budget",
    "project_budget": "the project's budget",
    "user_budget": "the author's budget",
    "monthly_budget": "the organization's budget",
    "daily_call_cap": "the calls of today",
    "max_attempts_per_tier": "attempts at every tier",
    STOPPED_BY_PERSON: "a person's stop",
    APPROVAL_NEEDED: "a command that needs a yes",
    EFFECT_UNCERTAIN: "a command whose end nobody saw",
}

STOP_SENTENCES: Mapping[str, str] = {
    "change_budget": "The budget of this change has no room for the next call.",
    "project_budget": "The project's budget for this month has no room for the next call.",
    "user_budget": "The author's budget for this month has no room for the next call.",
    "monthly_budget": "The organization's budget for this month has no room for the next call.",
    "daily_call_cap": "The organization has used up its model calls of today.",
    "max_attempts_per_tier": "Every tier has had its attempts. A person decides how it goes on.",
    STOPPED_BY_PERSON: "A person stopped the attempt. It starts again when somebody says so.",
    APPROVAL_NEEDED: "The attempt has paused before a command that needs a person's yes.",
    EFFECT_UNCERTAIN: "The worker died while an approved command ran. A person says what became of it.",
}
PROVIDER_LIMIT = "The provider itself refused: its account has reached a spend limit."


# What somebody raises, after that word.
RAISED_WORDS: Mapping[str, str] = {
    "change": "this change's budget",
    "project": "the project's budget",
    "user": "the author's budget",
    "organization": "the organization's budget",
    "daily_calls": "the calls of today",
    "provider": "the provider account's limit",
    "platform": "the limit of the whole deployment",
}


@dataclass(frozen=True, slots=True)
class RefusedMeter:
    """One meter as it was when it refused."""

    label: str
    limit: Usd | int
    spent: Usd | int
    held: Usd | int
    amount: Usd | int | None
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class WayOut:
    """An act that lifts the stop. `at_least` is what a raise must reach for the refused call."""

    act: str  # raise, reopen, wait, top_up_provider, decide, reconcile
    meter: str
    role: str
    at_least: Usd | int | None
    until: datetime | None

    @property
    def what(self) -> str:
        return RAISED_WORDS.get(self.meter, self.meter.replace("_", " "))


@dataclass(frozen=True, slots=True)
class StopCard:
    limit: str
    sentence: str
    reason: str
    at: datetime | None
    refused: tuple[RefusedMeter, ...]
    ways_out: tuple[WayOut, ...]
    said: str = ""  # by the person who stopped it: who, and why
    approval: str = ""  # the id of what waits for a decision
    command: str = ""


def stop_card(limit: str, detail: Mapping[str, Any]) -> StopCard | None:
    """The card of a stop; None where nothing stopped."""
    if not limit:
        return None
    by_provider = detail.get("note") == "provider_spend_limit"
    return StopCard(
        limit=limit,
        sentence=PROVIDER_LIMIT if by_provider else STOP_SENTENCES.get(limit, limit),
        reason=_why(str(detail.get("reason", ""))),
        at=_moment(detail.get("at")),
        refused=tuple(_refused(each) for each in detail.get("refusals", ())),
        ways_out=tuple(_way_out(each) for each in detail.get("ways_out", ())),
        said=str(detail.get("note", "")) if limit == STOPPED_BY_PERSON else "",
        approval=str(detail.get("approval", "")),
        command=shlex.join(str(each) for each in detail.get("argv", ())),
    )


def _why(reason: str) -> str:
    """What led to the stop; that a budget refused is what the sentence says already."""
    return "" if reason == "budget_refused" else SENTENCES.get(reason, "")


def _refused(figures: Mapping[str, Any]) -> RefusedMeter:
    unit = str(figures["unit"])
    return RefusedMeter(
        label=METER_LABELS.get(str(figures["kind"]), str(figures["kind"])),
        limit=_amount(figures["limit"], unit),
        spent=_amount(figures["spent"], unit),
        held=_amount(figures["held"], unit),
        amount=None if figures.get("amount") is None else _amount(figures["amount"], unit),
        ends_at=_moment(figures.get("ends_at")),
    )


def _way_out(said: Mapping[str, Any]) -> WayOut:
    least = said.get("at_least")
    return WayOut(
        act=str(said["act"]),
        meter=str(said.get("meter", "")),
        role=str(said.get("role", "")),
        at_least=None if least is None else _amount(least, str(said.get("unit", "usd"))),
        until=_moment(said.get("until")),
    )


def _amount(value: int, unit: str) -> Usd | int:
    return Usd(value) if unit == "usd" else value


def _moment(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None
