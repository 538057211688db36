"""What a provider's refusal means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from providers.errors import (
    GatewayFailed,
    ProviderError,
    RateLimited,
    Rejected,
    SpendLimited,
    Unavailable,
)
from providers.statuses import clean_message, error_of, stream_error

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def error(status: int, headers: dict[str, str] | None = None, /, **part: Any) -> ProviderError:
    return error_of(status, headers=headers or {}, document={"error": part}, now=NOW)


@pytest.mark.parametrize(
    ("status", "kind", "billed"),
    [
        (400, Rejected, False),
        (401, Rejected, False),
        (403, Rejected, False),
        (404, Rejected, False),
        (413, Rejected, False),
        (307, Rejected, False),
        (402, SpendLimited, False),
        (408, Unavailable, False),
        (429, RateLimited, False),
        (500, Unavailable, False),
        (502, GatewayFailed, True),
        (503, Unavailable, False),
        (504, GatewayFailed, True),
        (524, GatewayFailed, True),
        (529, Unavailable, False),
    ],
)
def test_each_status_has_its_class_and_says_whether_it_may_be_billed(
    status: int, kind: type[ProviderError], billed: bool
) -> None:
    """Row 123."""
    found = error(status, message="boom")
    assert type(found) is kind
    assert found.may_be_billed is billed
    assert found.status == status


@pytest.mark.parametrize(
    ("status", "part"),
    [
        (402, {}),
        (429, {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}),
        (429, {"type": "insufficient_quota", "message": "You exceeded your current quota"}),
        (429, {"code": "billing_hard_limit_reached"}),
        (
            400,
            {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."},
        ),
        (400, {"type": "billing_error", "message": "x"}),
        (
            400,
            {
                "message": "You have reached your specified API usage limits. You will regain access on 2026-12-01."
            },
        ),
        (403, {"message": "Key limit exceeded (total limit). Manage it using your settings"}),
        (403, {"message": "This workspace's spend limit was reached."}),
        (
            429,
            {
                "message": "You exceeded your current quota, please check your plan and billing details.",
                "code": 429,
            },
        ),
    ],
)
def test_an_empty_account_is_recognised_in_all_its_shapes(status: int, part: dict[str, Any]) -> None:
    """Rows 117, 118: first of all, before any retry."""
    found = error(status, {"retry-after": "5"}, **part)
    assert isinstance(found, SpendLimited)
    assert found.kind == "spend_limited"


@pytest.mark.parametrize(
    ("status", "part"),
    [
        (
            429,
            {
                "type": "rate_limit_error",
                "message": "This request would exceed your rate limit of 50,000 tokens.",
            },
        ),
        (
            429,
            {
                "message": "Rate limit reached for gpt-4o-mini. Limit 3 per minute.",
                "code": "rate_limit_exceeded",
            },
        ),
        (
            429,
            {
                "status": "RESOURCE_EXHAUSTED",
                "message": "You exceeded your current quota, please check your plan and billing details.",
                "details": [{"violations": [{"quotaId": "GenerateRequestsPerMinutePerProject"}]}],
            },
        ),
    ],
)
def test_a_rate_limit_is_no_empty_account(status: int, part: dict[str, Any]) -> None:
    assert isinstance(error(status, **part), RateLimited)


@pytest.mark.parametrize(
    ("headers", "part", "seconds"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({"retry-after": "1.5"}, {}, 1.5),
        ({"retry-after-ms": "250"}, {}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:02:00 GMT"}, {}, 120.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, {}, 0.0),
        ({"retry-after": "soon"}, {}, None),
        ({"retry-after": "-5"}, {}, None),
        ({"retry-after": "9" * 400}, {}, None),
        ({"retry-after": "99999999999"}, {}, 30 * 24 * 3600.0),
        ({}, {"details": [{"@type": "RetryInfo", "retryDelay": "41.5s"}]}, 41.5),
        ({}, {"details": [{"retryDelay": "later"}, 7]}, None),
        ({}, {}, None),
    ],
)
def test_the_wait_is_read_in_every_form(
    headers: dict[str, str], part: dict[str, Any], seconds: float | None
) -> None:
    """C63."""
    assert error(429, headers, **part).retry_after_seconds == seconds


@pytest.mark.parametrize(
    "document",
    [None, [], "text", {}, {"error": None}, {"error": "plain"}, {"error": [1]}, {"error": {"message": 5}}],
)
def test_any_body_will_do(document: object) -> None:
    found = error_of(500, headers={}, document=document, text="<html>", now=NOW)
    assert isinstance(found, Unavailable)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("overloaded_error", Unavailable),
        ("api_error", Unavailable),
        ("rate_limit_error", RateLimited),
        ("billing_error", SpendLimited),
        ("timeout_error", GatewayFailed),
        ("invalid_request_error", Rejected),
    ],
)
def test_an_error_in_a_stream_is_classed_by_its_type(word: str, kind: type[ProviderError]) -> None:
    """C62: it has no status. After output began it may have been billed, and is not tried again by itself."""
    before = stream_error({"error": {"type": word, "message": "x"}}, begun=False)
    after = stream_error({"error": {"type": word, "message": "x"}}, begun=True)
    assert type(before) is type(after) is kind
    assert after.may_be_billed
    assert after.output_began
    assert before.may_be_billed is kind.may_be_billed


def test_a_providers_words_are_short_and_hold_no_key() -> None:
    """Row 4."""
    said = clean_message("Incorrect API key provided: sk-abc123***9xyz.\n" + "x" * 900, "plain-secret")
    assert "sk-abc" not in said
    assert "\n" not in said
    assert len(said) == 300
    assert "plain-secret" not in clean_message("you sent plain-secret", "plain-secret")
