"""What a provider's refusal means, by status, error body or stream event (rows 112, 117, 118, 123)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from providers.errors import (
    GatewayFailed,
    ProviderError,
    RateLimited,
    Rejected,
    SpendLimited,
    Unavailable,
)

MESSAGE_CHARACTERS_MAX = 300
RETRY_AFTER_SECONDS_MAX = 30 * 24 * 3600.0
# The only statuses that are tried again by themselves (row 112); 400 and 413 never are (C65).
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})

# The provider's own money has run out, whatever the status (row 118). Words that vendors put in type or code:
_SPEND_WORDS = frozenset(
    {
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credits_exhausted",
        "enforced_spend_limit_reached",
        "insufficient_credits",
        "insufficient_quota",
        "payment_required",
        "spend_limit_reached",
        "usage_limit_reached",
    }
)
# ... and sentences that they put in messages of a 400, 403 or 429.
_SPEND_SENTENCES = re.compile(
    r"credit balance is too low|specified api usage limits|(spend|spending|usage|key|budget|credit) limit[^.]{0,40}"
    r"(reached|exceeded|exhausted)|reached your[^.]{0,60}(spend|usage) limit|exceeded your[^.]{0,40}(spend|budget)"
    r"|insufficient (credits|funds|balance)|check your plan and billing|billing hard limit",
    re.IGNORECASE,
)
# Google says "check your plan and billing" for a limit per minute as well.
_GOOGLE_RATE = re.compile(r"per[_ ]?(minute|second|hour|day)", re.IGNORECASE)
# A key that a provider repeats, whole or in part.
_KEY_LIKE = re.compile(r"\b(?:sk|key|AIza|rk|pk)[-_A-Za-z0-9*.]{6,}")


def error_of(
    status: int,
    *,
    headers: Mapping[str, str],
    document: object,
    text: str = "",
    now: datetime,
    secret: str = "",
) -> ProviderError:
    """The error that an answer which is no 200 stands for. Spend limits are recognised first (row 117)."""
    error = _error_part(document)
    message = clean_message(str(error.get("message") or text or f"status {status}"), secret)
    more: dict[str, Any] = {
        "status": status,
        "retry_after_seconds": retry_after(headers, error, now=now),
        "request_id": headers.get("request-id") or headers.get("x-request-id") or "",
    }
    if is_spend_limit(status, error):
        return SpendLimited(message, **more)
    if 300 <= status < 400:
        return Rejected(f"the address answers with a redirect ({status}), which is never followed", **more)
    match status:
        case 429:
            return RateLimited(message, **more)
        case 408 | 500 | 501 | 503 | 505 | 529:
            return Unavailable(message, **more)
        case _ if status >= 500:  # 502, 504, and what stands in front of a provider
            return GatewayFailed(message, **more)
        case _:
            return Rejected(message, **more)


def stream_error(document: object, *, begun: bool, secret: str = "") -> ProviderError:
    """The error that arrives inside a stream or a 200: it has no status, so its type decides (C62).

    After output began it may have been billed, whatever its class.
    """
    error = _error_part(document)
    status = _status_of(error)
    found = error_of(
        status, headers={}, document=document, now=datetime.min.replace(tzinfo=UTC), secret=secret
    )
    if begun:
        found.may_be_billed = found.output_began = True
    return found


def is_spend_limit(status: int, error: Mapping[str, Any]) -> bool:
    """Has the account's money at the provider run out? Never tried again, never elsewhere."""
    if status == 402:
        return True
    details = error.get("details")
    words = [error.get("type"), error.get("code"), error.get("status"), error.get("error_code")]
    if isinstance(details, Mapping):
        words += [details.get("error_code"), details.get("type"), details.get("code")]
    if any(isinstance(word, str) and word.lower() in _SPEND_WORDS for word in words):
        return True
    if status not in (400, 403, 429):
        return False
    message = str(error.get("message", ""))
    if error.get("status") == "RESOURCE_EXHAUSTED" and (
        _GOOGLE_RATE.search(str(error)) or _google_delay(error)
    ):
        return False
    return bool(_SPEND_SENTENCES.search(message))


def retry_after(headers: Mapping[str, str], error: Mapping[str, Any], *, now: datetime) -> float | None:
    """How long the provider asks to wait, in seconds: milliseconds, seconds, a date, or Google's RetryInfo."""
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return _bounded(millis / 1000)
    said = headers.get("retry-after")
    if said is not None:
        seconds = _number(said)
        if seconds is not None:
            return _bounded(seconds)
        try:
            moment = parsedate_to_datetime(said)
        except (ValueError, TypeError, IndexError, OverflowError):
            return _google_delay(error)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _bounded((moment - now).total_seconds())
    return _google_delay(error)


def clean_message(message: str, secret: str = "") -> str:
    """A provider's words, short, on one line, and without any key (row 4)."""
    if secret:
        message = message.replace(secret, "[key]")
    line = " ".join(_KEY_LIKE.sub("[key]", message).split())
    return "".join(character if character.isprintable() else "?" for character in line)[
        :MESSAGE_CHARACTERS_MAX
    ]


def _error_part(document: object) -> Mapping[str, Any]:
    if isinstance(document, list) and document:  # Google streams a list
        document = document[0]
    error = document.get("error") if isinstance(document, Mapping) else None
    if isinstance(error, str):
        return {"message": error}
    if isinstance(error, Mapping):
        return error
    return document if isinstance(document, Mapping) and "message" in document else {}


def _status_of(error: Mapping[str, Any]) -> int:
    code = error.get("code")
    if type(code) is int and 400 <= code <= 599:
        return code
    word = str(error.get("type") or error.get("status") or code or "").lower()
    return {
        "rate_limit_error": 429,
        "rate_limit_exceeded": 429,
        "resource_exhausted": 429,
        "overloaded_error": 529,
        "overloaded": 529,
        "billing_error": 402,
        "invalid_request_error": 400,
        "authentication_error": 401,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "timeout_error": 504,
        "deadline_exceeded": 504,
        "unavailable": 503,
    }.get(word, 500)


def _google_delay(error: Mapping[str, Any]) -> float | None:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and delay.endswith("s"):
            seconds = _number(delay[:-1])
            return None if seconds is None else _bounded(seconds)
    return None


def _number(text: str | None) -> float | None:
    if text is None or len(text) > 20 or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text.strip()):
        return None
    return float(text)


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), RETRY_AFTER_SECONDS_MAX)
