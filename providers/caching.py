"""Where the cache marks go (rows 104 to 110). Marks never change content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from providers.errors import RequestRefused
from providers.messages import CachePlan, ModelRequest

TTLS = ("5m", "1h")
KEY_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Marks:
    """What is marked as worth keeping: the last system message, the last tool, the newest message."""

    system: bool = False
    tools: bool = False
    newest: bool = False
    ttl: str = "5m"

    @property
    def any(self) -> bool:
        return self.system or self.tools or self.newest


NO_MARKS = Marks()


def marks_for(request: ModelRequest, wire: str) -> Marks:
    """The marks of a request on a wire. Only Anthropic, and OpenRouter on its way there, take any."""
    if wire == "openrouter" and request.prompt_cache and "ttl" in request.prompt_cache:
        return _without_google_newest(
            Marks(system=True, newest=True, ttl=request.prompt_cache["ttl"]), request
        )
    if wire == "anthropic":
        return _plan(request.cache, tools=True)
    if wire == "openrouter" and request.model.startswith("anthropic/"):
        return _plan(request.cache, tools=False)
    return NO_MARKS


def check_option(request: ModelRequest, wire: str) -> None:
    """Refuse a prompt_cache option that this wire does not have (rows 104 to 106)."""
    option = request.prompt_cache
    if option is None:
        return
    if not isinstance(option, Mapping) or not all(isinstance(value, str) for value in option.values()):
        raise RequestRefused("unsupported_prompt_cache", "prompt_cache is a mapping of texts")
    if wire == "openrouter":
        if set(option) != {"ttl"}:
            raise RequestRefused(
                "unsupported_prompt_cache", "OpenRouter takes prompt_cache.ttl and nothing else"
            )
        if option["ttl"] not in TTLS:
            raise RequestRefused("unsupported_prompt_cache", "prompt_cache.ttl is 5m or 1h")
    elif wire == "openai":
        if set(option) != {"key"}:
            raise RequestRefused("unsupported_prompt_cache", "OpenAI takes prompt_cache.key and nothing else")
        if not 0 < len(option["key"]) <= KEY_CHARACTERS_MAX:
            raise RequestRefused(
                "unsupported_prompt_cache", f"prompt_cache.key has 1 to {KEY_CHARACTERS_MAX} characters"
            )
    else:
        raise RequestRefused("unsupported_prompt_cache", f"the {wire} wire has no prompt_cache option")


def _plan(plan: CachePlan, *, tools: bool) -> Marks:
    match plan:
        case CachePlan.SYSTEM:
            return Marks(system=True)
        case CachePlan.AGENT:
            return Marks(system=True, tools=tools, newest=True)
        case CachePlan.NONE:
            return NO_MARKS


def _without_google_newest(marks: Marks, request: ModelRequest) -> Marks:
    """A mark on the newest message makes OpenRouter's Vertex route bill the prompt twice."""
    if request.model.lstrip("~").startswith("google/"):
        return Marks(system=marks.system, ttl=marks.ttl)
    return marks
