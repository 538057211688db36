"""Asks one connector the smallest question there is, through the same meters as every call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from agents.calls import account_for, call_model
from agents.errors import StopRun
from agents.models import ModelCall
from agents.spec import Payers
from agents.tab import Tab
from budgets.meters import payer_meters
from budgets.money import Usd
from providers.models import Connector
from providers.saving import smallest_request
from tenants.models import User

PURPOSE = "connector_test"
TEST_SECONDS_MAX = 30.0  # a person waits for it
ANSWER_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came back. `cost` and the tokens are None when nobody could read them; `problem` is empty when it answered.

    `end` is the stable word of a failure: of the transport, of the provider, or of a meter that said no.
    """

    model: str
    text: str = ""
    stop: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Usd | None = None
    request_id: str = ""
    end: str = ""
    problem: str = ""

    @property
    def answered(self) -> bool:
        return not self.end


def try_connector(connector: Connector, *, by: User, now: datetime) -> Tried:
    """One metered call. The caller has checked that `by` may manage the organization's connectors.

    The organization's month, the person's, the account's and the day's calls pay; there is no project.
    """
    payers = Payers(
        organization_id=connector.organization_id,
        project_id=None,
        user_id=by.pk,
        connector=connector.name,
        meters=payer_meters(
            organization_id=connector.organization_id,
            project_id=None,
            user_id=by.pk,
            change_id=None,
            connector=connector.name,
            counts_daily=True,
            now=now,
        ),
        purpose=PURPOSE,
        key=f"{PURPOSE}:{connector.pk}:{uuid4().hex}",
    )
    model = ""
    try:
        request = smallest_request(connector)
        model = request.model
        answered = call_model(
            request,
            payers,
            gateway=account_for(payers),
            tab=Tab(calls_max=1),
            seconds_max=TEST_SECONDS_MAX,
        )
    except StopRun as end:
        return _failed(end, model, payers)
    reply = answered.reply
    return Tried(
        model=reply.model,
        text=reply.text[:ANSWER_CHARACTERS_MAX],
        stop=str(reply.stop),
        input_tokens=reply.usage.input if reply.usage else None,
        output_tokens=reply.usage.output if reply.usage else None,
        cost=answered.cost,
        request_id=reply.request_id,
    )


def _failed(end: StopRun, model: str, payers: Payers) -> Tried:
    """Its words; and what the provider itself said, when it was asked."""
    call = ModelCall.objects.filter(key=f"{payers.key}:1").first()
    said = end.__cause__ if end.__cause__ is not None else None
    problem = end.note or str(end)
    if said is not None and str(said) and str(said) not in problem:
        problem = f"{problem}: {said}"
    return Tried(
        model=model,
        cost=call.cost if call is not None else None,
        request_id=call.request_id if call is not None else "",
        end=str(end.end),
        problem=problem[:ANSWER_CHARACTERS_MAX],
    )
