"""Log lines are structured, carry the ids of what they are about, and hold no key."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from config.logs import HIDDEN, hide_secrets


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc.def-123",
        "key sk-ant-api03-abcdefghijk",
        "postgresql://user:hunter2@db/remit",
        "AIzaSyA0123456789abcdefghijklmnop",
    ],
)
def test_a_key_inside_a_text_is_hidden(text: str) -> None:
    found = hide_secrets(None, "", {"event": text, "more": [{"deep": text}]})
    for secret in ("abc.def", "api03", "hunter2", "AIzaSy"):
        assert secret not in str(found)


@pytest.mark.parametrize("name", ["password", "api_key", "Authorization", "x-api-key", "secret", "token"])
def test_a_field_with_a_secret_name_is_hidden(name: str) -> None:
    assert hide_secrets(None, "", {name: "anything"})[name] == HIDDEN


def test_harmless_fields_stay() -> None:
    event = {"event": "settled", "idempotency_key": "k-1", "tokens_max": 5, "output_tokens": 12}
    assert hide_secrets(None, "", dict(event)) == event


def test_a_line_is_json_with_its_ids_also_from_standard_logging() -> None:
    program = (
        "import logging, structlog; from config.logs import configure; configure('info', 'json');"
        "structlog.contextvars.bind_contextvars(request_id='r1', change='CH-1');"
        "structlog.get_logger('a').info('held', run='x');"
        "logging.getLogger('b').warning('sent with sk-%s', 'abcdefghijklm')"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours, standard = [json.loads(line) for line in found.stderr.splitlines()]
    assert (ours["event"], ours["run"], ours["change"], ours["request_id"]) == ("held", "x", "CH-1", "r1")
    assert ours["level"] == "info"
    assert standard["change"] == "CH-1"
    assert "abcdefghijklm" not in standard["event"]
