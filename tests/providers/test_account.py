"""Accounts: what may be stored and sent at all."""

from __future__ import annotations

from typing import Any

import pytest

from providers.account import Account, check_base_url, check_headers, check_key, is_loopback, read_options
from providers.errors import RequestRefused


@pytest.mark.parametrize(
    ("url", "private", "fits"),
    [
        ("", False, True),
        ("https://api.example.com/v1", False, True),
        ("https://api.example.com:8443", False, True),
        ("http://127.0.0.1:11434/v1", True, True),
        ("http://localhost:8000", True, True),
        ("http://vllm.internal:8000", True, True),
        ("https://10.1.2.3/v1", True, True),
        ("https://10.1.2.3/v1", False, False),
        ("https://127.0.0.1", False, False),
        ("https://localhost", False, False),
        ("https://[::1]", False, False),
        ("https://[::ffff:10.0.0.1]", False, False),
        ("http://api.example.com", False, False),
        ("http://8.8.8.8", True, False),
        ("http://169.254.169.254/latest", True, False),
        ("https://0.0.0.0", True, False),
        ("https://user:secret@api.example.com", True, False),
        ("https://key@api.example.com", True, False),
        ("ftp://api.example.com", True, False),
        ("api.example.com", True, False),
        ("https://", True, False),
        ("https://api.example.com/v1?key=1", True, False),
        ("https://api.example.com/#x", True, False),
        ("https://api.example.com:99999", True, False),
        ("https://api.example.com/\r\nx: y", True, False),
        ("https://api.example.com/ x", True, False),
        ("https://[", True, False),
        ("https://" + "x" * 600, True, False),
    ],
)
def test_a_base_url_is_checked_before_any_io(url: str, private: bool, fits: bool) -> None:
    if fits:
        check_base_url(url, private_addresses=private)
        return
    with pytest.raises(RequestRefused) as caught:
        check_base_url(url, private_addresses=private)
    assert caught.value.code == "base_url"
    assert "secret" not in str(caught.value)


def test_a_key_is_one_line_and_is_never_repeated() -> None:
    check_key("sk-abc")
    for bad in ("sk-abc\n", "sk abc", "sk-\u00e9", "x" * 4_001, "a\rb"):
        with pytest.raises(RequestRefused) as caught:
            check_key(bad)
        assert bad.strip() not in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "x"},
        {"Host": "x"},
        {"X-Api-Key": "x"},
        {"bad name": "x"},
        {"x": "a\r\nb: c"},
        {"x": 5},
        {"x": " before"},
        {"x": "after "},
        {"x": " "},
        {"x": "y" * 1_001},
        {f"x-{number}": "y" for number in range(21)},
    ],
)
def test_headers_that_the_wire_owns_or_that_break_lines_are_refused(headers: dict[str, Any]) -> None:
    with pytest.raises(RequestRefused) as caught:
        check_headers(headers)
    assert caught.value.code == "headers"


def test_useful_headers_pass() -> None:
    check_headers({"anthropic-workspace-id": "ws_1", "OpenAI-Organization": "org-1"})


@pytest.mark.parametrize(
    "config",
    [
        {"unknown": 1},
        {"stream": "yes"},
        {"stream": 1},
        {"stream": 0.0},
        {"receive_seconds": 0},
        {"receive_seconds": 601},
        {"receive_seconds": True},
        {"models": []},
        {"models": {"a": "b c"}},
        {"models": {"a": {"model": "b", "thinking": "deep"}}},
        {"models": {"a": 5}},
        {"profiles": {"a": {"can": ["fly"]}}},
        {"profiles": {"a": {"can": [["tools"]]}}},
        {"profiles": {"a": {"input_tokens": 0}}},
        {"profiles": {"a": {"price": "0"}}},
        {"routing": []},
        {"reasoning": "some"},
        {"output_cap_field": "tokens"},
        {"app_title": "a\nb"},
        {"send_labels": "yes"},
        {"send_labels": 1},
        {"foreign_history": "maybe"},
    ],
)
def test_a_config_is_closed(config: dict[str, Any]) -> None:
    with pytest.raises(RequestRefused):
        read_options(config)


def test_an_accounts_key_is_in_no_repr() -> None:
    """Row 4."""
    assert "sk-secret" not in repr(Account(name="a", base_url="", key="sk-secret"))


def test_loopback_is_told_from_the_rest() -> None:
    assert is_loopback("http://127.0.0.1:1")
    assert is_loopback("http://localhost")
    assert not is_loopback("https://api.example.com")
