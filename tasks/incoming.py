"""What comes in at a hook becomes a Change, through the same service as every other door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from agents.jsontext import NotFound, parse_whole
from tasks.changes import submit_change
from tasks.display.hostile import one_line
from tasks.errors import TaskError
from tasks.issues import labelled, wanted_by
from tasks.models import Change
from tasks.wanted import TITLE_CHARACTERS_MAX, WantedChange, read_wanted
from tenants.errors import InvalidInput, TenantError
from webhooks.errors import AuthorGone, HookError
from webhooks.hooks import may_submit
from webhooks.incoming import Outcome, Reply, Verified, note_refused, take_once
from webhooks.models import HookKind

EVENT_CHARACTERS_MAX = 60


def receive(verified: Verified, *, now: datetime) -> Reply:
    """Do what the message asks for, once. A refusal stands in the hook's log and is raised to the sender."""
    act = _act_of_github if verified.hook.kind == HookKind.GITHUB else _act_of_standard
    try:
        return take_once(verified, lambda: act(verified, now), now=now)
    except (TenantError, TaskError, HookError) as refused:
        code = getattr(refused, "code", "") or type(refused).__name__
        note_refused(
            verified.hook,
            verified.message,
            delivery_id=verified.delivery_id,
            code=code,
            detail=str(refused),
            now=now,
        )
        raise


def _act_of_standard(verified: Verified, now: datetime) -> Outcome:
    """The fields of `POST /api/v1/projects/{id}/changes`; a title is made of the goal when none is given."""
    data = _object(verified.message.body)
    goal = data.get("goal")
    if "title" not in data and isinstance(goal, str) and goal.strip():
        data = {**data, "title": one_line(goal.strip().splitlines()[0], TITLE_CHARACTERS_MAX)}
    wanted = read_wanted(data)
    if "budget" not in data:
        wanted = replace(wanted, budget=verified.hook.budget)
    return _created(_submit(verified, wanted, plan_waits=False, now=now))


def _act_of_github(verified: Verified, now: datetime) -> Outcome:
    """An issue that got the label; a ping is answered; of everything else only the receipt is kept."""
    headers = verified.message.headers
    event = one_line(headers.get("x-github-event", ""), EVENT_CHARACTERS_MAX)
    if event == "ping":
        return Outcome("pong", {"pong": True})
    if not headers.get("content-type", "").startswith("application/json"):
        raise InvalidInput(
            "content-type",
            "is not application/json",
            "Choose the content type application/json in the webhook's settings at GitHub.",
        )
    if event != "issues":
        return _ignored(f"the event is {event or 'not named'}, not issues")
    payload = _object(verified.message.body)
    label = labelled(payload)
    if label.casefold() != verified.hook.label.casefold():
        return _ignored(f"no issue got the label {verified.hook.label}")
    asked = wanted_by(payload["issue"], budget=verified.hook.budget)
    return _created(_submit(verified, asked.wanted, plan_waits=asked.plan_waits, now=now))


def _submit(verified: Verified, wanted: WantedChange, *, plan_waits: bool, now: datetime) -> Change:
    hook = verified.hook
    if not may_submit(hook.author, hook.project):
        raise AuthorGone
    return submit_change(hook.project, wanted, by=hook.author, now=now, plan_waits=plan_waits)


def _created(change: Change) -> Outcome:
    answer = {"result": "created", "change": {"id": str(change.pk), "key": change.key}}
    return Outcome("created", answer, change.pk)


def _ignored(why: str) -> Outcome:
    return Outcome("ignored", {"result": "ignored", "reason": why})


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = parse_whole(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidInput("", "the body is no UTF-8", "Send JSON in UTF-8.") from None
    if isinstance(found, NotFound):
        raise InvalidInput("", f"the body is no JSON: {found.detail}", "Send one JSON object.")
    if not isinstance(found.value, Mapping):
        raise InvalidInput("", "the body is no JSON object", "Send an object with goal and criteria.")
    return found.value
