"""What the fake provider says by itself when a person has started it: enough to try and check a connector."""

from __future__ import annotations

import json
from typing import Any

from providers.catalog import profile_of
from providers.fake.play import HELLO, Play
from providers.fake.rules import turns_of
from providers.scenarios import ScriptedCall, Step

Json = dict[str, Any]


def polite_play(wire: str, model: str, body: Json) -> Play:
    """A model that no catalogue has is not found; an offered tool is called once; anything else is greeted."""
    if not profile_of(model).verified:
        return Play(fault="status", status=404, message=f"no such model: {model}")
    offered = _offered(wire, body)
    if offered is None or turns_of(wire, body):
        return Play(step=HELLO)
    name, schema = offered
    arguments = dict.fromkeys(schema.get("required", ()), "Lisbon")
    return Play(step=Step(tools=(ScriptedCall(name, json.dumps(arguments)),)))


def _offered(wire: str, body: Json) -> tuple[str, Json] | None:
    """The first tool that may be called, with its schema."""
    choice = str(body.get("tool_choice") or body.get("toolConfig") or "").lower()
    if "none" in choice or not body.get("tools"):
        return None
    tool = body["tools"][0]
    match wire:
        case "anthropic":
            return tool["name"], tool["input_schema"]
        case "google":
            declared = tool["functionDeclarations"][0]
            schema = declared.get("parameters") or declared.get("parametersJsonSchema") or {}
            return declared["name"], schema
        case _:
            return tool["function"]["name"], tool["function"]["parameters"]
