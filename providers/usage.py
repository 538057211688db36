"""Four vendors' token counts, read into one disjoint form (rows 130 to 134, C44 to C46).

`None` is unknown: absent, incomplete, contradictory and all-zero counts are never zero.
`normalized` marks counts that had to be completed or whose sum differs from the vendor's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from providers.messages import Usage

TOKENS_MAX = 2**53 - 1


def anthropic_usage(counts: object) -> Usage | None:
    """Anthropic reports uncached input, reads and writes beside each other (row 130)."""
    if not isinstance(counts, Mapping):
        return None
    fresh, output = _count(counts, "input_tokens"), _count(counts, "output_tokens")
    read = _optional(counts, "cache_read_input_tokens")
    written = _optional(counts, "cache_creation_input_tokens")
    if fresh is None or output is None or read is None or written is None:
        return None
    split = counts.get("cache_creation")
    if split is not None and not isinstance(split, Mapping):
        return None
    hour = _optional(split or {}, "ephemeral_1h_input_tokens")
    five = _optional(split or {}, "ephemeral_5m_input_tokens")
    if hour is None or five is None:
        return None
    agrees = not split or hour + five == written
    # Where split and total differ the larger one is charged, the unexplained rest at five minutes.
    five = max(five, written - hour)
    thinking = counts.get("output_tokens_details")
    return _usage(
        fresh=fresh,
        output=output,
        read=read,
        five=five,
        hour=hour,
        reasoning=_detail(thinking, "thinking_tokens"),
        agrees=agrees,
    )


def openai_usage(counts: object, *, ttl: str = "5m") -> Usage | None:
    """OpenAI and OpenRouter count cached tokens inside the prompt (row 131). `ttl` is that of the request's marks."""
    if not isinstance(counts, Mapping):
        return None
    prompt, output = _count(counts, "prompt_tokens"), _count(counts, "completion_tokens")
    details = counts.get("prompt_tokens_details") or {}
    if prompt is None or output is None or not isinstance(details, Mapping):
        return None
    read, written = _optional(details, "cached_tokens"), _optional(details, "cache_write_tokens")
    if read is None or written is None or read + written > prompt:
        return None  # more tokens from the cache than there were: nobody can say what was billed
    total = counts.get("total_tokens")
    return _usage(
        fresh=prompt - read - written,
        output=output,
        read=read,
        five=0 if ttl == "1h" else written,
        hour=written if ttl == "1h" else 0,
        reasoning=_detail(counts.get("completion_tokens_details"), "reasoning_tokens"),
        agrees=total is None or total == prompt + output,
    )


def google_usage(counts: object, *, candidates: int = 1) -> Usage | None:
    """Google reports thoughts beside candidates; all of both is output (row 132, acceptance 12c)."""
    if not isinstance(counts, Mapping):
        return None
    prompt = _count(counts, "promptTokenCount")
    cached = _optional(counts, "cachedContentTokenCount")
    spoken, thought = _optional(counts, "candidatesTokenCount"), _optional(counts, "thoughtsTokenCount")
    tool_use = _optional(counts, "toolUsePromptTokenCount")
    if prompt is None or cached is None or spoken is None or thought is None or tool_use is None:
        return None
    if cached > prompt + tool_use:
        return None
    total = counts.get("totalTokenCount")
    return _usage(
        fresh=prompt + tool_use - cached,
        output=spoken + thought,
        read=cached,
        five=0,
        hour=0,
        reasoning=thought,
        agrees=total is None or total == prompt + tool_use + spoken + thought,
        candidates=max(1, candidates),
    )


def embedding_usage(counts: object) -> Usage | None:
    """What an embeddings service read; it generates nothing."""
    tokens = _count(counts, "prompt_tokens") if isinstance(counts, Mapping) else None
    return None if not tokens else Usage(input_uncached=tokens, output=0)


def total_of(many: Sequence[Usage | None]) -> tuple[int, int, int]:
    """Known input and output tokens, and how many had no known usage (row 136)."""
    known = [one for one in many if one is not None]
    return sum(one.input for one in known), sum(one.output for one in known), len(many) - len(known)


def _usage(
    *,
    fresh: int,
    output: int,
    read: int,
    five: int,
    hour: int,
    reasoning: int | None,
    agrees: bool,
    candidates: int = 1,
) -> Usage | None:
    if fresh + read + five + hour == 0 and output == 0:
        return None  # row 134: an all-zero report is no report
    return Usage(
        input_uncached=fresh,
        output=output,
        cache_read=read,
        cache_write_5m=five,
        cache_write_1h=hour,
        reasoning=reasoning,
        candidates=candidates,
        quality="reported" if agrees else "normalized",
    )


def _count(counts: Mapping[str, object], key: str) -> int | None:
    """A whole token count; None when absent or not one (text, negative, a boolean, absurdly large)."""
    value = counts.get(key)
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def _optional(counts: Mapping[str, object], key: str) -> int | None:
    """A count that vendors leave out when it is 0; None when it is there and unreadable."""
    return 0 if counts.get(key) is None else _count(counts, key)


def _detail(details: object, key: str) -> int | None:
    return _count(details, key) if isinstance(details, Mapping) else None
