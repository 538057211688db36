"""Helper roles: asked once, repaired at most once, never on another account, never beyond their allowance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agents.errors import HelperMisconfigured, HelperOutputError, StopRun
from agents.helpers import Allowance, Helped, HelperProfile, invoke_helper
from agents.models import ModelCall
from agents.tab import Tab
from budgets.keys import MeterKind
from budgets.models import Reservation
from budgets.money import Usd
from providers.messages import CachePlan, Thinking, ThinkingMode
from providers.scripted import ScriptedGateway
from routing.words import EndReason
from tests.factories.agents import TestClock, make_payers
from tests.factories.providers import make_connector

pytestmark = pytest.mark.django_db

PROFILE = HelperProfile(connector="main", model="claude-haiku-5-5", output_tokens_max=256)
UNKNOWN = HelperProfile(connector="main", model="nobody-1", output_tokens_max=9)
ANSWER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
GOOD, BAD = {"json": {"answer": "ALPHA_6"}}, {"json": {"answer": 5}}


def extract(gateway: ScriptedGateway, packet: Any = "Source identifier=ALPHA_6.", **over: Any) -> Helped:
    given = {"profile": PROFILE, "schema": ANSWER, "clock": TestClock(), **over}
    return invoke_helper(
        "extractor", packet, given.pop("payers", None) or make_payers(), gateway=gateway, **given
    )


class Builder:
    """A packet builder that counts how often it is asked."""

    def __init__(self) -> None:
        self.told: list[Allowance] = []

    def __call__(self, allowance: Allowance) -> str:
        self.told.append(allowance)
        return "Source identifier=ALPHA_6."


def test_an_answer_that_does_not_fit_is_repaired_once() -> None:
    """Worked example 15a (rows 172, 174): two invocations, two calls, the packet is built once."""
    gateway, builder = ScriptedGateway.playing(BAD, GOOD), Builder()
    helped = extract(gateway, builder)
    assert helped.value == {"answer": "ALPHA_6"}
    assert [(each.phase, each.validation) for each in helped.invocations] == [
        ("generation", "failed"),
        ("repair", "ok"),
    ]
    assert len(gateway.requests) == 2
    assert len(builder.told) == 1
    assert helped.cost is not None
    repair = gateway.requests[1].messages
    assert "ALPHA_6" in str(repair[1]), "the original packet stays"
    assert '{"answer": 5}' in str(repair[2]), "with the bad answer"
    assert "answer: 5 is not of type 'string'" in str(repair[3]), "and what is wrong with it"


def test_an_allowance_of_one_call_has_none_for_the_repair() -> None:
    """Worked example 15b."""
    gateway = ScriptedGateway.playing(BAD, GOOD)
    with pytest.raises(HelperOutputError) as failed:
        extract(gateway, tab=Tab(calls_max=1))
    assert (failed.value.code, failed.value.calls) == ("budget_exceeded_calls", 1)
    assert len(gateway.requests) == 1


def test_a_second_bad_answer_ends_the_helper() -> None:
    gateway = ScriptedGateway.playing(BAD, {"text": "not json"})
    with pytest.raises(HelperOutputError, match="invalid: no_object"):
        extract(gateway)
    assert len(gateway.requests) == 2


def test_a_builder_is_told_the_frozen_allowances() -> None:
    """Row 169."""
    builder = Builder()
    extract(ScriptedGateway.playing(GOOD), builder)
    assert builder.told == [
        Allowance(
            connector="main", model="claude-haiku-5-5", input_tokens_max=1_000_000, output_tokens_max=256
        )
    ]


@pytest.mark.parametrize(
    ("role", "over", "code"),
    [
        ("planner", {}, "unknown_role"),
        ("extractor", {"schema": {"type": "nothing"}}, "invalid_schema"),
        ("extractor", {"validation_schema": {"minLength": -1}}, "invalid_schema"),
        ("extractor", {"schema": {"$ref": "https://example.com/schema.json"}}, "invalid_schema"),
        ("extractor", {"profile": UNKNOWN}, "unknown_capacity"),
        (
            "extractor",
            {
                "profile": HelperProfile(
                    connector="main",
                    model="claude-haiku-5-5",
                    output_tokens_max=2_000,
                    thinking=Thinking(ThinkingMode.BUDGET, budget_tokens=2_000),
                )
            },
            "thinking_budget",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_set_up_is_found_before_the_packet_is_built(
    role: str, over: dict[str, Any], code: str
) -> None:
    """Rows 95, 167, 169, 170, 171."""
    gateway, builder = ScriptedGateway.playing(GOOD), Builder()
    given = {"profile": PROFILE, "schema": ANSWER, **over}
    with pytest.raises(HelperMisconfigured) as wrong:
        invoke_helper(role, builder, make_payers(), gateway=gateway, **given)
    assert wrong.value.code == code
    assert not builder.told
    assert not gateway.requests
    assert not Reservation.objects.exists()


def test_another_tenants_connector_is_not_found_before_the_packet_is_built() -> None:
    """Worked example 1a (row 3)."""
    make_connector(name="helper")
    builder = Builder()
    profile = HelperProfile(connector="helper", model="claude-haiku-5-5", output_tokens_max=256)
    with pytest.raises(StopRun, match="connector_not_found"):
        invoke_helper("extractor", builder, make_payers(), profile=profile)
    assert not builder.told


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"stop": "refused"}, "refused"),
        ({"json": {"answer": "A"}, "stop": "length"}, "incomplete"),
        ({"tools": [{"name": "read_file"}]}, "tool_request"),
    ],
)
def test_what_cannot_be_repaired_fails_at_once(step: dict[str, object], code: str) -> None:
    """Row 173."""
    gateway = ScriptedGateway.playing(step, GOOD)
    with pytest.raises(HelperOutputError) as failed:
        extract(gateway)
    assert (failed.value.code, failed.value.calls) == (code, 1)
    assert len(gateway.requests) == 1


def test_a_packet_that_does_not_fit_is_not_sent_and_not_trimmed() -> None:
    """Row 173."""
    small = HelperProfile(
        connector="main", model="claude-haiku-5-5", output_tokens_max=9, input_tokens_max=400
    )
    gateway = ScriptedGateway.playing(GOOD)
    with pytest.raises(HelperOutputError, match="packet_too_large"):
        extract(gateway, "x" * 2_000, profile=small)
    assert not gateway.requests


def test_a_repair_that_does_not_fit_fails_before_it_is_sent() -> None:
    """Row 172."""
    small = HelperProfile(
        connector="main", model="claude-haiku-5-5", output_tokens_max=9, input_tokens_max=700
    )
    gateway = ScriptedGateway.playing({"json": {"answer": ["x" * 1_000]}}, GOOD)
    with pytest.raises(HelperOutputError, match="repair_too_large"):
        extract(gateway, profile=small)
    assert len(gateway.requests) == 1


def test_a_stricter_schema_is_told_and_checked_and_cannot_weaken_the_first() -> None:
    """Row 171: both must pass."""
    strict = {"type": "object", "properties": {"answer": {"type": "string", "minLength": 3}}}
    gateway = ScriptedGateway.playing({"json": {"answer": ""}}, GOOD)
    assert extract(gateway, validation_schema=strict).value == {"answer": "ALPHA_6"}
    assert '"minLength": 3' in str(gateway.requests[0].messages)
    with pytest.raises(HelperOutputError):
        extract(ScriptedGateway.playing(BAD, BAD), validation_schema={"type": "object"})


def test_formats_are_checked() -> None:
    """Row 171."""
    dated = {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}},
        "required": ["day"],
    }
    gateway = ScriptedGateway.playing({"json": {"day": "2026-02-30"}}, {"json": {"day": "2026-02-28"}})
    assert extract(gateway, schema=dated).value == {"day": "2026-02-28"}


def test_a_helper_has_no_tools_no_cache_and_no_history_and_is_paid_under_its_role() -> None:
    """Rows 109, 167."""
    gateway = ScriptedGateway.playing(GOOD)
    extract(gateway)
    (request,) = gateway.requests
    assert (request.tools, request.cache, len(request.messages)) == ((), CachePlan.NONE, 2)
    assert ModelCall.objects.get().purpose == "extractor"


def test_a_helper_for_plain_text_needs_some() -> None:
    gateway = ScriptedGateway.playing({"text": "  "}, {"text": "a summary"})
    helped = invoke_helper("compactor", "logs", make_payers(), profile=PROFILE, gateway=gateway)
    assert (helped.value, helped.text) == (None, "a summary")


def test_a_refused_budget_is_a_stop_and_no_error_of_the_helper() -> None:
    payers = make_payers(limits={MeterKind.PROJECT: Usd(1)})
    with pytest.raises(StopRun) as stop:
        extract(ScriptedGateway.playing(GOOD), payers=payers)
    assert stop.value.end is EndReason.PROJECT_BUDGET
