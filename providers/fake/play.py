"""What the fake provider does with one request: an answer, or one of the ways in which answers go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.messages import Usage
from providers.scenarios import Step

FAULTS = frozenset(
    {
        "status",  # a status with an error body in the wire's own shape
        "html",  # a gateway's page in a 200
        "bad_json",
        "nested",  # JSON too deep to read
        "huge",  # more bytes than a reply may have
        "redirect",
        "drop",  # half an answer, then the connection is gone
        "hang",  # silence for `seconds`
        "drip",  # a byte now and then for `seconds`, then an answer
        "cut",  # a stream that ends without its end marker
        "late_cut",  # the same, after its final token counts
        "stream_error",  # an error event in the middle of a stream
        "first_error",  # an error event before anything else
    }
)

HELLO = Step(text="hello")
USAGE = Usage(input_uncached=100, output=50, cache_read=2000, cache_write_5m=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One request's fate. `counts` makes the usage block absent, zero or text for numbers."""

    step: Step = HELLO
    fault: str = ""
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None  # of an error, when it is not the usual one
    error_type: str = ""
    message: str = "boom"
    counts: str = ""
    usage: Usage = USAGE
    seconds: float = 0.0
    thinking: str = ""  # hidden reasoning that comes before the answer
    model: str = ""  # the model that says it answered
    piece_characters: int = 7  # of each delta of a stream

    def __post_init__(self) -> None:
        assert not self.fault or self.fault in FAULTS, self.fault


# How a failing step of a scenario looks on a wire.
_FAILING: dict[str, dict[str, Any]] = {
    "rate_limited": {"fault": "status", "status": 429},
    "timeout": {"fault": "hang", "seconds": 3600.0},
    "transient": {"fault": "status", "status": 529},
    "spend_limited": {"fault": "status", "status": 402, "error_type": "billing_error"},
    "bad_output": {"fault": "html"},
    "bad_request": {"fault": "status", "status": 400},
    "gateway_failed": {"fault": "status", "status": 502},
    "connection_lost": {"fault": "drop"},
    "not_sent": {"fault": "status", "status": 503},
}


def play_of(step: Step, usage: Usage, *, thinking: str) -> Play:
    """A scenario's step as a play."""
    if step.fails:
        headers = {} if step.retry_after_seconds is None else {"retry-after": f"{step.retry_after_seconds:g}"}
        return Play(headers=headers, message=step.message or "the script says so", **_FAILING[step.fails])
    return Play(
        step=step,
        usage=usage,
        counts="" if step.usage_known else "absent",
        seconds=step.seconds,
        thinking=thinking,
    )
