"""Scenario files: what a scripted model says, chosen by the labels of a request. The format is in docs/scenarios.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from providers.messages import StopKind, Usage

FILE_BYTES_MAX = 4_000_000
PAUSE_SECONDS_MAX = 600.0
FAILURES = (
    "rate_limited",
    "timeout",
    "transient",
    "spend_limited",
    "bad_output",
    "bad_request",
    "gateway_failed",
    "connection_lost",
    "not_sent",
)
_FILE_KEYS = frozenset({"scenarios", "notes"})
_ENTRY_KEYS = frozenset({"name", "when", "steps", "repeat"})
_LABELS = frozenset({"role", "change", "task", "tier", "attempt", "purpose", "model", "kind"})
_STEP_KEYS = frozenset(
    {"text", "json", "tools", "usage", "fails", "times", "retry_after", "message", "seconds", "stop"}
)
_TOOL_KEYS = frozenset({"name", "arguments"})
_USAGE_KEYS = frozenset({"input", "output", "cache_read", "cache_write_5m", "cache_write_1h"})
_STOPS = {"length": StopKind.LENGTH, "refused": StopKind.REFUSED, "other": StopKind.OTHER}


class ScenarioError(ValueError):
    """A scenario that cannot be played: names the file, the entry and the field."""

    def __init__(self, source: str, entry: str, field_name: str, problem: str) -> None:
        place = ", ".join(part for part in (source, entry, field_name) if part)
        super().__init__(f"{place}: {problem}")


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a step; `arguments` is the JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer, or one failure. `usage` None with `usage_known` means computed from the characters."""

    text: str = ""
    tools: tuple[ScriptedCall, ...] = ()
    usage: Usage | None = None
    usage_known: bool = True
    stop: StopKind | None = None
    seconds: float = 0.0
    fails: str = ""
    times: int | None = None  # None: every try fails
    retry_after_seconds: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The steps of one conversation, and which requests belong to it."""

    source: str
    name: str
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...]
    repeat: bool = False

    def fits(self, labels: Mapping[str, str]) -> bool:
        return all(
            any(fnmatchcase(labels.get(key, ""), want) for want in wants) for key, wants in self.when.items()
        )

    def step(self, index: int) -> Step | None:
        """The step after `index` assistant turns; None when the script has ended."""
        if self.repeat:
            return self.steps[index % len(self.steps)]
        return self.steps[index] if index < len(self.steps) else None


def choose(entries: Sequence[Entry], labels: Mapping[str, str]) -> Entry | None:
    """The entry with the most matching labels; of equals the first."""
    fitting = [entry for entry in entries if entry.fits(labels)]
    return max(fitting, key=lambda entry: len(entry.when), default=None)


def load_scenarios(path: Path) -> tuple[Entry, ...]:
    """All entries of a file, or of every .yaml file of a directory in the order of their names."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise ScenarioError(path.name, "", "", "no scenario file (*.yaml) is here")
    return tuple(entry for file in files for entry in _load_file(file))


def read_entries(document: object, *, source: str) -> tuple[Entry, ...]:
    """The entries of a document that is already parsed; raises `ScenarioError`."""
    if isinstance(document, dict):
        _closed(document, _FILE_KEYS, source, "", "")
        document = document.get("scenarios")
    if not isinstance(document, list) or not document:
        raise ScenarioError(source, "", "scenarios", "give a list with at least one entry")
    return tuple(_entry(item, source, number) for number, item in enumerate(document, start=1))


def read_step(item: object, *, source: str = "inline", entry: str = "", field_name: str = "step") -> Step:
    """One step; raises `ScenarioError` for what does not fit."""
    if not isinstance(item, dict):
        raise ScenarioError(source, entry, field_name, "a step is a mapping with text, tools or fails")
    _closed(item, _STEP_KEYS, source, entry, field_name)

    def no(key: str, problem: str) -> ScenarioError:
        return ScenarioError(source, entry, f"{field_name}.{key}", problem)

    fails = item.get("fails", "")
    if fails and (not isinstance(fails, str) or fails not in FAILURES):
        raise no("fails", f"{fails!r} is none of {', '.join(FAILURES)}")
    if "times" in item and not fails:
        raise no("times", "only a failing step has times")
    if "text" in item and "json" in item:
        raise no("json", "give text or json, not both")
    if not fails and not {"text", "json", "tools", "stop"} & item.keys():
        raise ScenarioError(source, entry, field_name, "a step needs text, json, tools, stop or fails")
    stop = item.get("stop")
    if stop is not None and (not isinstance(stop, str) or stop not in _STOPS):
        raise no("stop", f"{stop!r} is none of {', '.join(_STOPS)}")
    usage = item.get("usage")
    if usage is not None and usage != "unknown" and not isinstance(usage, dict):
        raise no("usage", "give unknown, or input and output tokens")
    text = _json_text(item["json"], no, "json") if "json" in item else item.get("text", "")
    if not isinstance(text, str):
        raise no("text", "give a text; a mapping goes under json")
    message = item.get("message", "")
    if not isinstance(message, str):
        raise no("message", "give a text")
    times = item.get("times")
    if times is not None and (type(times) is not int or times < 1):
        raise no("times", "give a whole number from 1")
    return Step(
        text=text,
        tools=_tools(item.get("tools", []), source, entry, field_name),
        usage=_usage(usage, source, entry, field_name) if isinstance(usage, dict) else None,
        usage_known=usage != "unknown",
        stop=_STOPS[stop] if stop is not None else None,
        seconds=_seconds(item.get("seconds", 0), no, "seconds"),
        fails=fails,
        times=times,
        retry_after_seconds=_seconds(item["retry_after"], no, "retry_after")
        if "retry_after" in item
        else None,
        message=message,
    )


def _load_file(path: Path) -> tuple[Entry, ...]:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise ScenarioError(path.name, "", "", f"a scenario file has at most {FILE_BYTES_MAX:,} bytes")
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _EachKeyOnce)  # noqa: S506  # a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(path.name, "", "", f"not readable as YAML: {str(error)[:300]}") from None
    except RecursionError:
        raise ScenarioError(path.name, "", "", "not readable as YAML: it nests too deeply") from None
    return read_entries(document, source=path.name)


class _EachKeyOnce(yaml.SafeLoader):
    """Of a key written twice the last would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice!r} stands there twice", node.start_mark
            )
        return super().construct_mapping(node, deep=deep)


def _entry(item: object, source: str, number: int) -> Entry:
    place = f"entry {number}"
    if not isinstance(item, dict):
        raise ScenarioError(source, place, "", "an entry is a mapping with when and steps")
    name = item.get("name", place)
    if not isinstance(name, str):
        raise ScenarioError(source, place, "name", "give a text")
    _closed(item, _ENTRY_KEYS, source, name, "")
    steps = item.get("steps")
    if not isinstance(steps, list) or not steps:
        raise ScenarioError(source, name, "steps", "give a list with at least one step")
    repeat = item.get("repeat", False)
    if not isinstance(repeat, bool):
        raise ScenarioError(source, name, "repeat", "give true or false")
    return Entry(
        source=source,
        name=name,
        when=_when(item.get("when", {}), source, name),
        steps=tuple(
            read_step(step, source=source, entry=name, field_name=f"steps[{index}]")
            for index, step in enumerate(steps)
        ),
        repeat=repeat,
    )


def _when(item: object, source: str, entry: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(item, dict):
        raise ScenarioError(source, entry, "when", "give a mapping of labels")
    _closed(item, _LABELS, source, entry, "when")
    return {
        key: tuple(str(one) for one in (want if isinstance(want, list) else [want]))
        for key, want in item.items()
    }


def _tools(item: object, source: str, entry: str, field_name: str) -> tuple[ScriptedCall, ...]:
    if not isinstance(item, list):
        raise ScenarioError(source, entry, f"{field_name}.tools", "give a list of name and arguments")
    calls = []
    for index, call in enumerate(item):
        place = f"{field_name}.tools[{index}]"
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise ScenarioError(source, entry, place, "a tool call has a name and arguments")
        _closed(call, _TOOL_KEYS, source, entry, place)
        arguments = call.get("arguments", {})
        if not isinstance(arguments, dict | str):
            raise ScenarioError(
                source, entry, f"{place}.arguments", "give a mapping, or the exact JSON as text"
            )

        def no(key: str, problem: str, place: str = place) -> ScenarioError:
            return ScenarioError(source, entry, f"{place}.{key}", problem)

        raw = arguments if isinstance(arguments, str) else _json_text(arguments, no, "arguments")
        calls.append(ScriptedCall(call["name"], raw))
    return tuple(calls)


def _json_text(value: object, no: Callable[[str, str], ScenarioError], key: str) -> str:
    """YAML knows more than JSON: a bare 2026-11-30 is a date there, and so on."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"cannot be written as JSON ({str(error)[:80]}); put quotes around what is a text"
        raise no(key, problem) from None


def _usage(item: dict[Any, Any], source: str, entry: str, field_name: str) -> Usage:
    _closed(item, _USAGE_KEYS, source, entry, f"{field_name}.usage")
    try:
        return Usage(
            input_uncached=item["input"],
            output=item["output"],
            **{key: item[key] for key in _USAGE_KEYS - {"input", "output"} if key in item},
        )
    except (KeyError, TypeError, ValueError) as error:
        problem = "input and output are whole token counts, not negative"
        raise ScenarioError(source, entry, f"{field_name}.usage", problem) from error


def _seconds(value: object, no: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= PAUSE_SECONDS_MAX:
        raise no(key, f"give seconds between 0 and {PAUSE_SECONDS_MAX:g}")
    return float(value)


def _closed(
    item: Mapping[Any, Any], allowed: frozenset[str], source: str, entry: str, field_name: str
) -> None:
    unknown = sorted(str(key) for key in item if key not in allowed)
    if unknown:
        problem = f"unknown key {unknown[0]!r}; known are {', '.join(sorted(allowed))}"
        raise ScenarioError(source, entry, field_name, problem)
