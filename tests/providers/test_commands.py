"""The commands of this floor."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from providers.catalog import Band, PriceCard, price_card
from providers.fake.play import Play
from providers.fake.server import FakeProvider, FakeServer
from providers.management.commands.compare_prices import differences_of
from providers.messages import Usage
from providers.scenarios import ScriptedCall, Step, read_entries
from tests.factories.providers import make_connector
from tests.providers.conftest import KEY, WIRES


def run(name: str, *arguments: str) -> str:
    out = StringIO()
    call_command(name, *arguments, stdout=out)
    return out.getvalue()


def test_models_are_listed_with_price_capacity_and_profile() -> None:
    text = run("list_models")
    assert "claude-haiku-5-5  (anthropic)" in text
    assert "takes 1,000,000 tokens, writes 128,000" in text
    assert "prompts above 100,000" in text
    assert "[remit 2026-10-01 since 2026-10-01]" in text
    unknown = run("list_models", "somebodys-model")
    assert "not in the catalogue" in unknown
    assert "costs unknown" in unknown


def test_the_price_file_agrees_with_the_library() -> None:
    try:
        assert "No difference" in run("compare_prices")
    except SystemExit:
        pytest.fail(run("compare_prices"))


def test_differences_are_named() -> None:
    ours, other = price_card("claude-sonnet-5-5"), price_card("claude-opus-5-5")
    assert ours is not None
    assert other is not None
    lines = differences_of(ours, PriceCard(ours.model, "x", None, (Band(0, other.bands[0].rates),)))
    assert "claude-sonnet-5-5: input 2 here, 4 there" in lines
    assert differences_of(ours, None) == ["claude-sonnet-5-5: not in genai-prices"]


@pytest.mark.django_db
def test_a_check_asks_nothing_without_live_and_reports_with_it(fake: FakeServer) -> None:
    """Row 87: live examples need an explicit flag."""
    row = make_connector(kind="anthropic", base_url=fake.url("anthropic"), key=KEY, config={})
    slug = row.organization.slug
    assert "Add --live" in run("check_connector", slug, "main")
    assert not fake.seen
    called = Step(tools=(ScriptedCall("report_weather", '{"city": "Lisbon"}'),))
    fake.push(
        Play(),
        Play(step=called),
        Play(),
        Play(),
        Play(usage=Usage(input_uncached=5, output=1, cache_write_5m=9)),
    )
    fake.push(Play(usage=Usage(input_uncached=5, output=1, cache_read=9)), Play(fault="status", status=404))
    text = run("check_connector", slug, "main", "--live")
    assert "called report_weather" in text
    assert "wrote 9 tokens, then read 9" in text
    assert "404" in text
    assert len(fake.seen) == 7


@pytest.mark.django_db
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("scripted", [False, True])
def test_a_provider_that_a_person_started_passes_the_check(
    fake: FakeServer, wire: str, scripted: bool
) -> None:
    """Issue 4: a connector is pointed at `fake_provider`, with or without scenarios, and tried."""
    entries = (
        read_entries([{"when": {"role": "agent"}, "steps": [{"text": "x"}]}], source="t") if scripted else ()
    )
    with FakeServer(FakeProvider(entries, key=KEY, polite=True)) as started:
        row = make_connector(kind=wire, base_url=started.url(wire), key=KEY, config={"send_labels": True})
        text = run("check_connector", row.organization.slug, "main", "--live")
    assert "FAILED" not in text
    assert "called report_weather" in text


@pytest.mark.django_db
def test_a_check_says_what_failed(fake: FakeServer) -> None:
    row = make_connector(
        kind="anthropic", base_url=fake.url("anthropic"), key="sk-wrong-0123456789", config={}
    )
    out = StringIO()
    with pytest.raises(CommandError, match="4 of 5 checks failed"):
        call_command("check_connector", row.organization.slug, "main", "--live", stdout=out)
    assert "FAILED bad_request" in out.getvalue()
    assert "sk-wrong" not in out.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", [("nobody", "main"), ("{slug}", "other")])
def test_a_check_of_nothing_says_so(arguments: tuple[str, str]) -> None:
    slug = make_connector().organization.slug
    with pytest.raises(CommandError, match="no "):
        run("check_connector", *[argument.replace("{slug}", slug) for argument in arguments])


@pytest.mark.django_db
def test_the_fake_provider_refuses_a_bad_file(tmp_path: Any) -> None:
    with pytest.raises(CommandError, match="no scenario file"):
        run("fake_provider", str(tmp_path / "none.yaml"))
