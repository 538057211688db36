"""A whole attempt over real sockets: what the loop sends is what each vendor's wire takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.attempt import run_attempt
from agents.models import ModelCall
from budgets.models import Reservation
from budgets.money import ZERO
from providers.fake.server import FakeServer
from providers.messages import Thinking, ThinkingMode
from providers.scenarios import read_entries
from routing.words import EndReason
from tests.factories.agents import NOON, Onlooker, ended, make_spec
from tests.factories.providers import make_connector
from tests.factories.tenants import make_project

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "sk-test-only-0123456789abcdef"
SCRIPT: list[dict[str, Any]] = [
    {
        "steps": [
            {"text": "I begin.", "tools": [{"name": "read_file", "arguments": {"path": "greet.py"}}]},
            {"text": "I forgot the tools."},
            {
                "tools": [
                    {
                        "name": "edit_file",
                        "arguments": {"path": "greet.py", "edits": [{"oldText": "hello", "newText": "hi"}]},
                    },
                    {"name": "list_files", "arguments": {}},
                ]
            },
            {"tools": [{"name": "complete_task", "arguments": {"intent": "It says hi."}}]},
        ]
    }
]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "model", "thinking"),
    [
        ("anthropic", "claude-haiku-5-5", Thinking(ThinkingMode.ADAPTIVE, "low")),
        ("anthropic", "claude-sonnet-5-5", Thinking(ThinkingMode.ADAPTIVE, "medium")),
        ("openai", "gpt-4o-mini", Thinking()),
        ("openrouter", "anthropic/claude-haiku-5.5", Thinking()),
        ("google", "gemini-2.5-flash", Thinking()),
    ],
)
def test_an_attempt_goes_through_over_a_real_wire(
    server: FakeServer, kind: str, model: str, thinking: Thinking
) -> None:
    """Rows 31 to 36 and 227 with the histories that they make: answers, a reminder, the last call's instruction."""
    server.reset()
    server.provider.entries = read_entries(SCRIPT, source="test")
    server.provider.key = KEY
    project = make_project()
    make_connector(
        project.organization, kind=kind, base_url=server.url(kind), key=KEY, config={"send_labels": True}
    )
    files = {"greet.py": b"print('hello')\n"}
    spec = make_spec(project, files=files, model=model, thinking=thinking, calls_max=4)
    outcome = ended(run_attempt(spec, Onlooker()))
    assert (outcome.end, outcome.note) == (EndReason.COMPLETED, "")
    assert outcome.published is not None
    assert outcome.cost > ZERO
    assert {row.state for row in Reservation.objects.all()} == {"settled"}
    assert ModelCall.objects.filter(started_at__gt=NOON, cost__isnull=False).count() == 4
    assert KEY not in str(list(ModelCall.objects.values()))
