"""What every REST view refuses in the same words: bodies that mean nothing or two things, cursors that are none."""

from __future__ import annotations

import base64
import json

import pytest
from django.test import Client

from tests.factories.tasks import make_change, make_trunk
from tests.factories.tenants import make_member

pytestmark = pytest.mark.django_db

HALF = "\\ud800"
REFUSED = {
    "a key twice": b'{"budget": "1", "budget": "1000"}',
    "a key twice inside": b'{"criteria": [{"text": "a", "text": "b"}]}',
    "NaN": b'{"budget": NaN}',
    "too large for a number": b'{"budget": 1e400}',
    "thousands of digits": b'{"budget": ' + b"9" * 5000 + b"}",
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "deep, but readable": b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    "half a character in a key": f'{{"{HALF}": 1}}'.encode(),
    "half a character in a key inside": f'{{"criteria": [{{"{HALF}": 1}}]}}'.encode(),
    "half a character in a text": f'{{"title": "{HALF}"}}'.encode(),
    "half a character alone": f'"{HALF}"'.encode(),
    "no UTF-8": b'{"title": "\xff"}',
    "UTF-16": json.dumps({"title": "a"}).encode("utf-16"),
    "nothing but space": b" ",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_a_body_that_means_nothing_or_two_things_is_a_400(body: bytes) -> None:
    change = make_change()
    make_trunk(change.project)
    client = Client()
    client.force_login(change.author)
    path = f"/api/v1/projects/{change.project_id}/changes"
    answer = client.generic("POST", path, body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error"), answer.content


@pytest.mark.parametrize("position", ["p=abc", "p=%00", "p=1", "p=" + "9" * 40, "r=1&p=zzz", "p=%ED%A0%80"])
def test_a_cursor_that_is_none_is_a_404(position: str) -> None:
    change = make_change()
    client = Client()
    client.force_login(make_member(change.organization))
    cursor = base64.b64encode(position.encode()).decode()
    for path in ("changes", "projects", f"changes/{change.pk}/tasks"):
        answer = client.get(f"/api/v1/{path}", {"cursor": cursor})
        assert answer.status_code == 404, (path, answer.content)
    events = client.get(f"/api/v1/changes/{change.pk}/events", {"cursor": cursor})
    assert events.status_code == (200 if position == "p=1" else 404)  # their keys are whole numbers
