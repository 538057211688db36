"""Issue 4, "Bad input", through the doors that people use, on all four wires.

A clear error or unknown usage; never a crash, never zero, and nothing stored, sent or held that should not be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from agents.calls import call_model
from agents.errors import CallFailed
from agents.models import CallState, ModelCall
from agents.tab import Tab
from budgets.models import Meter, Reservation, ReservationState
from budgets.money import ZERO
from providers.connectors import connector_for
from providers.fake.play import Play
from providers.fake.server import FakeServer
from providers.messages import FilePart, ImagePart, ModelRequest, TextPart, UserMessage
from providers.models import Connector
from providers.scenarios import Step
from routing.words import EndReason
from tenants.models import AuditEntry, Organization, User
from tests.factories.agents import make_payers
from tests.factories.providers import make_connector
from tests.factories.tenants import (
    bearer,
    make_project,
    make_token,
    make_user,
)

pytestmark = pytest.mark.django_db

KEY = "sk-bad-input-0123456789abcdef"
WIRES = ("anthropic", "openai", "openrouter", "google")
# What the smallest question asks there, and a model of that account which takes texts alone.
TEXT_ONLY = "texts-only"
PLAIN_PROFILE = {TEXT_ONLY: {"can": ["streaming", "thinking_off"], "output_tokens": 4_000}}
every_wire = pytest.mark.parametrize("wire", WIRES)
both = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "stream"])


@pytest.fixture
def fake(server: FakeServer) -> FakeServer:
    server.reset()
    server.provider.key = KEY
    return server


# -- what a person saves: REST, page and admin


@dataclass(frozen=True)
class Case:
    """What is wrong, which field says so, and words of the remedy."""

    given: dict[str, Any]
    field: str
    said: str


CASES = {
    "key_with_newline": Case({"key": f"{KEY}\nx-evil: 1"}, "key", "one line of printable characters"),
    "key_with_carriage_return": Case({"key": f"{KEY}\r"}, "key", "one line of printable characters"),
    "url_with_credentials": Case(
        {"base_url": "https://user:pw@api.example.com"}, "base_url", "no name and no password"
    ),
    "private_address": Case({"base_url": "https://10.0.0.1"}, "base_url", "private address"),
    "this_machine": Case({"base_url": "https://localhost:8443"}, "base_url", "private address"),
    "private_address_in_ipv6": Case(
        {"base_url": "https://[::ffff:192.168.0.1]"}, "base_url", "private address"
    ),
    "cloud_credentials": Case(
        {"base_url": "https://169.254.169.254"}, "base_url", "no address of a provider"
    ),
    "http_in_the_clear": Case({"base_url": "http://api.example.com"}, "base_url", "https"),
    "33_provider_ids": Case(
        {"config": {"routing": {"only": [f"p{number}" for number in range(33)]}}},
        "config",
        "lists 1 to 32 providers",
    ),
}
bad_connector = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture
def strict(with_plane: Any) -> None:
    """A deployment that forbids private addresses."""
    with_plane(private_addresses=False)


def posted(case: Case, wire: str, **more: Any) -> dict[str, Any]:
    """The fields as a form sends them."""
    given = {"kind": wire, "name": "main", "key": KEY, "base_url": "", "headers": "", **case.given, **more}
    return given | {"config": json.dumps(given["config"]) if "config" in given else ""}


def stored() -> list[tuple[object, ...]]:
    return list(Connector.objects.values_list("name", "base_url", "sealed_key", "config", "version"))


@pytest.mark.usefixtures("strict")
@every_wire
@bad_connector
def test_rest_neither_makes_nor_changes_a_connector_by_bad_input(
    organization: Organization, admin: User, client: Client, wire: str, case: Case
) -> None:
    """Issue 4; row 92, worked example 7a: the field and its remedy are named, the key is not repeated."""
    api = bearer(make_token(admin, organization, scopes=["admin"])[1])
    path = f"/api/v1/organizations/{organization.pk}/connectors"
    known = make_connector(organization, name="known", kind=wire, key="sk-known", config={})
    before = stored()
    answers = [
        client.post(
            path,
            {"name": "main", "kind": wire, "key": KEY, **case.given},
            content_type="application/json",
            **api,
        ),
        client.patch(
            f"{path}/{known.pk}", {"key": KEY, **case.given}, content_type="application/json", **api
        ),
    ]
    for answer in answers:
        problem = answer.json()
        assert (answer.status_code, problem["field"]) == (400, case.field), answer.content
        assert case.said in json.dumps(problem)
        assert problem["remedy"]
        assert KEY not in answer.content.decode()
        assert "user:pw" not in answer.content.decode()
    assert stored() == before
    assert not AuditEntry.objects.filter(action__startswith="connector").exists()


@pytest.mark.usefixtures("strict")
@every_wire
@bad_connector
def test_the_pages_neither_make_nor_change_a_connector_by_bad_input(
    organization: Organization, admin: User, client: Client, wire: str, case: Case
) -> None:
    """Issue 4; row 92, worked example 7a."""
    client.force_login(admin)
    known = make_connector(organization, name="known", kind=wire, key="sk-known", config={})
    before, path = stored(), f"/organizations/{organization.pk}/connectors"
    for address in (path, f"{path}/{known.pk}"):
        answer = client.post(address, posted(case, wire))
        assert answer.status_code in (200, 400), address
        errors = answer.context["form"].errors
        assert list(errors) == [case.field], errors
        assert case.said in str(errors)
        assert KEY not in answer.content.decode(), "a form that comes back does not carry the key"
    assert stored() == before
    assert not AuditEntry.objects.filter(action__startswith="connector").exists()


def test_the_admin_has_no_field_to_type_them_into(organization: Organization, client: Client) -> None:
    """Neither makes nor edits: what it does to a connector goes through the same checks as every door."""
    row = make_connector(organization, key=KEY)
    client.force_login(make_user(is_staff=True, is_superuser=True))
    assert client.get("/admin/providers/connector/add/").status_code == 403
    path, before = f"/admin/providers/connector/{row.pk}/change/", stored()
    answer = client.post(path, {"key": "a\nb", "base_url": "https://user:pw@10.0.0.1", "config": "{}"})
    assert answer.status_code == 403
    assert stored() == before


@pytest.mark.parametrize(
    "models", ["claude-haiku-5-5 gpt-4o-mini", "claude-haiku-5-5 = a b c d", "= gpt", "x = bad name\n"]
)
def test_the_admins_form_of_stand_ins_names_what_it_cannot_read(
    organization: Organization, client: Client, models: str
) -> None:
    row = make_connector(organization)
    make_connector(organization, name="spare")
    client.force_login(make_user(is_staff=True, is_superuser=True))
    fields = {
        "action": "stand_ins",
        "_selected_action": [str(row.pk)],
        "save": "",
        "fallback": f"spare: {models}",
    }
    answer = client.post("/admin/providers/connector/", fields)
    assert answer.status_code == 200
    assert answer.context["form"].errors["fallback"]
    row.refresh_from_db()
    assert row.fallback == {}


def test_32_provider_ids_are_accepted_and_go_out(
    organization: Organization, admin: User, client: Client, fake: FakeServer
) -> None:
    """Worked example 7a: the largest list that is right, through the door and on the wire."""
    names = [f"p{number}" for number in range(32)]
    client.force_login(admin)
    base = f"/organizations/{organization.pk}/connectors"
    case = Case({"config": {"routing": {"only": names}}, "base_url": fake.url("openrouter")}, "", "")
    assert client.post(base, posted(case, "openrouter")).status_code == 302
    row = Connector.objects.get()
    assert client.post(f"/api/v1{base}/{row.pk}/test").json()["answered"] is True
    assert fake.seen[0].body["provider"] == {"only": names}


# -- what goes out: through the metered door, held on the meters


def account(organization: Organization, fake: FakeServer, wire: str, **config: Any) -> Connector:
    return make_connector(
        organization,
        kind=wire,
        base_url=fake.url(wire),
        key=KEY,
        config={"profiles": PLAIN_PROFILE, **config},
    )


def ask(organization: Organization, request: ModelRequest) -> CallFailed:
    payers = make_payers(make_project(organization))
    with pytest.raises(CallFailed) as failed:
        call_model(request, payers, gateway=connector_for(organization.pk, "main"), tab=Tab(calls_max=16))
    return failed.value


def asked(*parts: Any, model: str = TEXT_ONLY, **more: Any) -> ModelRequest:
    return ModelRequest(
        model=model, messages=(UserMessage((TextPart("Look."), *parts)),), output_tokens_max=100, **more
    )


@every_wire
@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        (lambda: asked(ImagePart("@@", "image/png")), "invalid_prompt_part(1)"),
        (lambda: asked(FilePart("JVBERg=", "application/pdf", "a.pdf")), "invalid_prompt_part(1)"),
        (lambda: asked(FilePart("JVBERg==", "application/pdf", "a.pdf")), "part 1: this model takes no PDF"),
        (lambda: asked(prompt_cache={"ttl": "2h"}), "prompt_cache"),
    ],
    ids=["bad_base64_image", "bad_base64_file", "pdf_to_a_chat_model", "ttl_2h"],
)
def test_what_must_not_go_out_is_refused_before_any_hold(
    organization: Organization, fake: FakeServer, wire: str, request_of: Any, said: str
) -> None:
    """Rows 98, 101, 104 to 106; worked example 8a: no byte, no hold, no row, and words that say why."""
    account(organization, fake, wire)
    failure = ask(organization, request_of())
    assert failure.end is EndReason.BAD_REQUEST
    assert said in failure.note
    assert fake.seen == []
    assert not Reservation.objects.exists()
    assert not ModelCall.objects.exists()


def test_openai_takes_no_pdf_even_for_a_model_that_declares_it(
    organization: Organization, fake: FakeServer
) -> None:
    """Row 101, worked example 8b."""
    profiles = {"reader": {"can": ["pdf", "streaming", "thinking_off"], "output_tokens": 4_000}}
    account(organization, fake, "openai", profiles=profiles)
    pdf = FilePart("JVBERg==", "application/pdf", "a.pdf")
    assert "this provider's chat takes no PDF" in ask(organization, asked(pdf, model="reader")).note
    assert fake.seen == []


# -- what comes back: "test this connector", on the page and over REST

HUGE_TEXT = Play(step=Step(text="x" * 33_000_000), piece_characters=1_000_000)
NOT_READ = {"huge": Play(fault="huge"), "huge_stream": HUGE_TEXT, "nested": Play(fault="nested")}


@every_wire
@both
@pytest.mark.parametrize("play", NOT_READ.values(), ids=NOT_READ)
def test_an_answer_that_cannot_be_read_is_an_unknown_charge(
    organization: Organization,
    admin: User,
    client: Client,
    fake: FakeServer,
    wire: str,
    stream: bool,
    play: Play,
) -> None:
    """Rows 123, 136: 40 MB, whole or in pieces, and JSON that nests too deep. It may be billed: held at its worst."""
    row = account(organization, fake, wire, stream=stream)
    client.force_login(admin)
    fake.push(play)
    answer = client.post(f"/api/v1/organizations/{organization.pk}/connectors/{row.pk}/test")
    tried = answer.json()
    assert (answer.status_code, tried["answered"], tried["end"]) == (200, False, "bad_output")
    assert ("32,000,000 bytes" in tried["problem"]) or play.fault == "nested"
    assert (tried["cost"], tried["input_tokens"], tried["output_tokens"]) == (None, None, None)
    unknown_and_held(organization)
    assert ModelCall.objects.get().state == CallState.FAILED


@every_wire
@both
def test_a_usage_block_with_text_for_numbers_is_unknown_on_the_page_and_over_rest(
    organization: Organization, admin: User, client: Client, fake: FakeServer, wire: str, stream: bool
) -> None:
    """Rows 134, 136: the answer is shown, its cost is not zero but unknown."""
    row = account(organization, fake, wire, stream=stream)
    client.force_login(admin)
    fake.push(Play(counts="text"))
    tried = client.post(f"/api/v1/organizations/{organization.pk}/connectors/{row.pk}/test").json()
    assert (tried["answered"], tried["text"]) == (True, "hello")
    assert (tried["cost"], tried["input_tokens"], tried["output_tokens"]) == (None, None, None)
    unknown_and_held(organization)
    fake.push(Play(counts="text"))
    page = f"/organizations/{organization.pk}/connectors/{row.pk}/test"
    shown = client.post(page, headers={"HX-Request": "true"}).content.decode()
    assert "hello" in shown
    assert "unknown" in shown
    assert "$0" not in shown


def unknown_and_held(organization: Organization) -> None:
    """One call, unknown, that each of its meters counts at its worst case."""
    call = Reservation.objects.get()
    assert call.state == ReservationState.UNKNOWN
    assert call.cost is None
    assert call.hold_usd is not None
    assert call.hold_usd > ZERO
    assert call.usd == call.hold_usd
    month = Meter.objects.get(organization=organization, kind="organization")
    assert (month.spent_usd, month.held_usd) == (call.hold_usd, ZERO)
