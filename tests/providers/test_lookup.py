"""Names are resolved within the clocks of the call: a name service that hangs holds no worker (rows 124 to 127)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from providers import lookup
from providers.account import Account
from providers.addresses import addresses_of
from providers.anthropic import AnthropicGateway
from providers.deadlines import CONNECT_SECONDS
from providers.errors import NotSent
from providers.fake.server import FakeServer
from providers.lookup import look_up
from tests.providers.conftest import ask


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The system's lookup of one name hangs until the test ends; any other is answered."""
    real, over = socket.getaddrinfo, threading.Event()

    def answer(host: str, *more: Any, **named: Any) -> Any:
        if host == "silent.example":
            over.wait(30)
        return real("127.0.0.1" if host.endswith(".example") else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield over
    over.set()


def account(fake: FakeServer, host: str) -> AnthropicGateway:
    return AnthropicGateway(Account(name="t", base_url=f"http://{host}:{fake.port}", private_addresses=True))


def test_a_name_service_that_hangs_is_cut_at_the_total(silent: threading.Event, fake: FakeServer) -> None:
    """Nothing left, so nothing is billed: NotSent."""
    fake.provider.key = ""
    begun = time.monotonic()
    with pytest.raises(NotSent, match=r"silent\.example: its name was not resolved within"):
        account(fake, "silent.example").send(ask("anthropic"), seconds_max=0.3)
    assert 0.25 <= time.monotonic() - begun < 1.5
    assert account(fake, "quick.example").send(ask("anthropic"), seconds_max=5).text == "hello"
    assert len(fake.seen) == 1


@pytest.mark.slow
def test_without_a_short_total_it_is_cut_at_the_time_for_connecting(
    silent: threading.Event, fake: FakeServer
) -> None:
    begun = time.monotonic()
    with pytest.raises(NotSent):
        account(fake, "silent.example").send(ask("anthropic"), seconds_max=60)
    assert time.monotonic() - begun < CONNECT_SECONDS + 1.5


def test_no_more_threads_wait_than_there_are_places(
    silent: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_places", threading.BoundedSemaphore(1))
    with pytest.raises(TimeoutError, match="was not resolved"):
        look_up("silent.example", 80, seconds_max=0.05)
    with pytest.raises(TimeoutError, match="waited for already"):
        look_up("quick.example", 80, seconds_max=0.05)
    assert look_up("127.0.0.1", 80, seconds_max=0.05) == ["127.0.0.1"]
    silent.set()
    assert look_up("quick.example", 80, seconds_max=5) == ["127.0.0.1"]


@pytest.mark.slow
def test_the_address_of_a_repository_is_looked_up_within_a_time_too(silent: threading.Event) -> None:
    found = addresses_of("silent.example", 443, scheme="https", private_addresses=True)
    assert found.allowed == ()
    assert "was not resolved within" in found.problem


def test_a_name_that_nobody_knows_is_an_error_of_its_own() -> None:
    with pytest.raises(OSError, match=r"Name|resolution|known|address"):
        look_up("no-such-name.invalid", 80, seconds_max=10)
