"""What a connector does when its account does not answer: how often it asks, and who stands in (rows 111 to 113)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.account import NamedModel, read_models
from providers.errors import RequestRefused

RETRIES_DEFAULT = 2  # of each account: three tries
RETRIES_MAX = 4
STAND_INS_MAX = 3
# The physical calls of one question at most: what a cap on calls must leave room for.
TRIES_MAX = (RETRIES_MAX + 1) * (STAND_INS_MAX + 1)
assert RETRIES_DEFAULT <= RETRIES_MAX
_KEYS = frozenset({"connectors", "max_retries", "retry_transport"})
_ENTRY_KEYS = frozenset({"connector", "models"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`retry_transport`: are lost connections and timeouts tried again, too? They may be paid twice (C64)."""

    retries_max: int = RETRIES_DEFAULT
    retry_transport: bool = False


@dataclass(frozen=True, slots=True)
class StandIn:
    """Another connector of the same organization, by name; `models`: what it calls ours, before its own names."""

    connector: str
    models: Mapping[str, NamedModel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """In the order in which they are asked. The plans of the stand-ins are not followed: this is the whole line."""

    stand_ins: tuple[StandIn, ...] = ()
    policy: Policy = Policy()


def read_plan(given: Mapping[str, Any]) -> Plan | None:
    """A stored or sent plan; None for an empty one. Raises `RequestRefused` with the code `fallback`."""
    if not given:
        return None
    for key in given:
        if key not in _KEYS:
            raise _refused(f"fallback.{key} is none of {', '.join(sorted(_KEYS))}")
    entries = given.get("connectors", [])
    if not isinstance(entries, list) or len(entries) > STAND_INS_MAX:
        raise _refused(f"fallback.connectors lists up to {STAND_INS_MAX} connectors, the first to ask first")
    stand_ins = tuple(
        _stand_in(entry, f"fallback.connectors[{index}]") for index, entry in enumerate(entries)
    )
    names = [stand_in.connector for stand_in in stand_ins]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise _refused(f"fallback.connectors[{index}] names {name!r} a second time")
    retries, transport = given.get("max_retries", RETRIES_DEFAULT), given.get("retry_transport", False)
    if type(retries) is not int or not 0 <= retries <= RETRIES_MAX:
        raise _refused(f"fallback.max_retries is a whole number from 0 to {RETRIES_MAX}")
    if not isinstance(transport, bool):
        raise _refused("fallback.retry_transport is true or false")
    return Plan(stand_ins=stand_ins, policy=Policy(retries_max=retries, retry_transport=transport))


def plan_data(plan: Plan | None) -> dict[str, Any]:
    """As it is stored and shown over REST."""
    if plan is None:
        return {}
    return {
        "connectors": [
            {
                "connector": stand_in.connector,
                "models": {ours: _named_data(named) for ours, named in stand_in.models.items()},
            }
            for stand_in in plan.stand_ins
        ],
        "max_retries": plan.policy.retries_max,
        "retry_transport": plan.policy.retry_transport,
    }


def _named_data(named: NamedModel) -> dict[str, str]:
    if named.thinking is None:
        return {"model": named.model}
    effort = {"effort": named.thinking.effort} if named.thinking.effort else {}
    return {"model": named.model, "thinking": str(named.thinking.mode), **effort}


def _stand_in(entry: object, place: str) -> StandIn:
    if isinstance(entry, str):
        entry = {"connector": entry}
    if not isinstance(entry, dict) or not entry.keys() <= _ENTRY_KEYS:
        raise _refused(f"{place} is the name of a connector, or an object with connector and models")
    name = entry.get("connector")
    if not isinstance(name, str) or not name:
        raise _refused(f"{place}.connector is the name of a connector")
    try:
        return StandIn(name, read_models(entry.get("models", {}), place=f"{place}.models"))
    except RequestRefused as refused:
        raise _refused(str(refused)) from None


def _refused(problem: str) -> RequestRefused:
    return RequestRefused("fallback", problem)
