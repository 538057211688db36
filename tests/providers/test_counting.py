"""What the server saw is what was sent: over many calls with every fault (issue 4, point 2)."""

from __future__ import annotations

import random

import pytest

from providers.errors import ProviderError, RequestRefused
from providers.fake.play import Play
from providers.fake.server import FakeServer, Seen
from tests.providers.conftest import EDIT, WIRES, MakeGateway, ask

CALLS = 1_000
SHARE_REFUSED = 0.1


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
def test_each_send_is_one_request_whatever_happens(wire: str, fake: FakeServer, gateway: MakeGateway) -> None:
    """Over 1,000 calls with faults: sends that passed their check equal requests that the server saw."""
    dice = random.Random(f"{wire} 1")  # the seed is part of the test
    plays = [
        Play(),
        Play(counts="absent"),
        Play(thinking="hm"),
        *(Play(fault="status", status=code) for code in (400, 402, 408, 429, 500, 502, 503, 529)),
        *(Play(fault=fault) for fault in ("html", "bad_json", "redirect", "drop", "cut", "late_cut")),
        *(Play(fault=fault, status=529) for fault in ("stream_error", "first_error")),
    ]
    fake.provider.choose_play = lambda _: dice.choice(plays)
    accounts = [gateway(wire, stream=False), gateway(wire, stream=True)]
    sent = answered = 0
    for _ in range(CALLS):
        account = dice.choice(accounts)
        if dice.random() < SHARE_REFUSED:
            with pytest.raises(RequestRefused):
                account.send(ask(wire, tools=(EDIT, EDIT)), seconds_max=5)
            continue
        sent += 1
        try:
            account.send(ask(wire), seconds_max=5)
            answered += 1
        except ProviderError:
            pass
    assert len(fake.seen) == sent
    assert 0 < answered < sent


def test_nothing_is_seen_twice_over_one_connection(fake: FakeServer, gateway: MakeGateway) -> None:
    """A broken answer closes its connection; the next call opens another and is seen once."""
    account = gateway("anthropic")
    fake.push(Play(fault="drop"), Play(), Play(fault="cut"), Play())
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(account.send(ask("anthropic"), seconds_max=5).text)
        except ProviderError as error:
            outcomes.append(error.kind)
    assert outcomes == ["transient", "hello", "transient", "hello"]
    seen: list[Seen] = fake.seen
    assert len(seen) == 4
