"""A provider on this machine, and accounts that point at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from providers.account import Account, read_options
from providers.anthropic import AnthropicGateway
from providers.fake.server import FakeServer
from providers.google import GoogleGateway
from providers.messages import (
    Message,
    ModelRequest,
    SystemMessage,
    Thinking,
    ThinkingMode,
    ToolSpec,
    UserMessage,
)
from providers.openai_chat import OpenAIGateway, OpenRouterGateway
from providers.wire import HttpGateway

WIRES = ("anthropic", "openai", "openrouter", "google")
KEY = "sk-test-only-0123456789abcdef"
MODELS = {
    "anthropic": "claude-haiku-5-5",
    "openai": "gpt-4o-mini",
    "openrouter": "anthropic/claude-haiku-5.5",
    "google": "gemini-2.5-flash",
}
GATEWAYS: dict[str, type[HttpGateway]] = {
    "anthropic": AnthropicGateway,
    "openai": OpenAIGateway,
    "openrouter": OpenRouterGateway,
    "google": GoogleGateway,
}
EDIT = ToolSpec("edit_file", "Edit a file", {"type": "object", "properties": {"path": {"type": "string"}}})
DONE = ToolSpec("complete_task", "Finish", {"type": "object"})
ADAPTIVE = Thinking(ThinkingMode.ADAPTIVE, "low")


@pytest.fixture(scope="session")
def fake_server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def fake(fake_server: FakeServer) -> FakeServer:
    fake_server.reset()
    fake_server.provider.entries, fake_server.provider.key, fake_server.provider.choose_play = (), KEY, None
    return fake_server


MakeGateway = Callable[..., HttpGateway]


@pytest.fixture
def gateway(fake: FakeServer) -> MakeGateway:
    """`gateway("anthropic", stream=False)`: the options are a connector's config."""

    def make(
        wire: str, *, key: str = KEY, headers: dict[str, str] | None = None, **config: Any
    ) -> HttpGateway:
        account = Account(
            name=f"{wire}:test",
            base_url=fake.url(wire),
            key=key,
            headers=headers or {},
            options=read_options(config),
        )
        return GATEWAYS[wire](account)

    return make


def ask(wire: str, *more: Message, **given: Any) -> ModelRequest:
    """The smallest request of a wire's own model; `more` follows the first question."""
    messages = (SystemMessage("You write code."), UserMessage.of("Go"), *more)
    return ModelRequest(**{"model": MODELS[wire], "messages": messages, "output_tokens_max": 1_000, **given})
