"""What clients send: shapes checked here, rules checked by the services."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from agents.helpers import HelperRole
from budgets.keys import MeterKind
from budgets.limits import Limit, read_limit
from budgets.model_task_rules import SAFE_INTEGER_MAX
from budgets.money import NotAnAmount, Usd, exact, parse_usd
from budgets.prices import REPORTED_TOKENS_MAX
from tasks.helper_questions import PACKET_CHARACTERS_MAX
from tasks.raises import RAISABLE, SETTABLE
from tenants.shapes import Shape


@extend_schema_field({"type": "string", "pattern": r"^\d{1,7}(\.\d{1,6})?$", "example": "12.50"})
class UsdInput(serializers.Field[Usd, Any, str, Any]):
    """US dollars as text, such as "12.50"; never a float."""

    def to_internal_value(self, data: Any) -> Usd:
        try:
            return parse_usd(data)
        except NotAnAmount as error:
            raise ValidationError(str(error), code="not_an_amount") from None

    def to_representation(self, value: Usd) -> str:
        return exact(value)


class CriterionInput(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="What must be true when the Change is done.")
    command = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        help_text="Run by Remit in a sandbox on the composed tree; empty: a model is asked.",
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A Change with a cap",
            request_only=True,
            value={
                "title": "Export entries as CSV",
                "goal": "People want their entries in a spreadsheet. Commas and quotes must survive.",
                "criteria": [
                    {"text": "the tests pass", "command": "python3 -m unittest"},
                    {"text": "the README says how to export"},
                ],
                "invariants": ["Existing commands keep their output."],
                "budget": "5.00",
            },
        )
    ]
)
class ChangeInput(Shape):
    """A Change to hand over, as the schema shows it; `tasks.wanted` reads it and names what does not fit."""

    title = serializers.CharField()
    goal = serializers.CharField()
    criteria = CriterionInput(many=True)
    invariants = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    budget = UsdInput(
        required=False, allow_null=True, default=None, help_text='US dollars, such as "5.00"; null: no cap.'
    )
    draft = serializers.BooleanField(required=False, default=False)


@extend_schema_field(OpenApiTypes.STR)
class LimitText(serializers.Field[Any, Any, Any, Any]):
    """What was sent, as it was sent: `read_limit` says what is wrong with it, and takes no float."""

    def to_internal_value(self, data: Any) -> Any:
        return data

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A higher cap of this Change",
            request_only=True,
            value={"meter": "change", "to": "7.50", "reason": "One more attempt at the hard part."},
        )
    ]
)
class RaiseInput(Shape):
    """A higher limit. An equal or lower one is no raise, and is refused."""

    meter = serializers.ChoiceField(choices=[kind.value for kind in RAISABLE])
    to = LimitText(
        allow_null=True,
        help_text='US dollars, such as "7.50"; for daily_calls a whole number of calls; null: unlimited.',
    )
    currency = serializers.CharField(required=False, default="USD", help_text="USD is the only one.")
    reason = serializers.CharField(required=False, allow_blank=True, default="")
    expires_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="Then the limit of before returns by itself."
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "The month of the organization",
            request_only=True,
            value={"meter": "organization", "to": "250.00", "reason": "Two teams more."},
        )
    ]
)
class LimitInput(RaiseInput):
    """A limit, up or down, of anybody in the organization."""

    meter = serializers.ChoiceField(choices=[kind.value for kind in SETTABLE])
    subject = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=120,
        help_text="Of a change, project or user its id, of a provider the connector's name; empty: the organization.",
    )


def limit_in(wanted: Any) -> Limit:
    """The amount of a raise or a limit. Raises `InvalidInput`."""
    return read_limit(MeterKind(wanted["meter"]), wanted["to"], field="to", currency=wanted["currency"])


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "What waits for me",
            request_only=True,
            value={"name": "Waits for me", "group": "waiting", "author": "me"},
        )
    ]
)
class SavedViewInput(Shape):
    """A name, and the filters of the list as its address says them."""

    name = serializers.CharField()
    q = serializers.CharField(required=False, allow_blank=True, default="")
    group = serializers.CharField(required=False, allow_blank=True, default="")
    state = serializers.CharField(required=False, allow_blank=True, default="")
    stop = serializers.CharField(required=False, allow_blank=True, default="")
    project = serializers.CharField(required=False, allow_blank=True, default="")
    author = serializers.CharField(required=False, allow_blank=True, default="")


@extend_schema_serializer(
    examples=[OpenApiExample("Why", request_only=True, value={"reason": "The flaky test is mended."})]
)
class ReasonInput(Shape):
    reason = serializers.CharField(required=False, allow_blank=True, default="")


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "What to do differently",
            request_only=True,
            value={"comment": "Keep the old header row; other tools read it."},
        )
    ]
)
class CommentInput(Shape):
    """What the agent should do differently: it becomes part of its next packet."""

    comment = serializers.CharField()


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Edited to one Task",
            request_only=True,
            value={
                "plan": {
                    "tasks": [
                        {
                            "id": "T1",
                            "title": "Export CSV",
                            "objective": "Write the entries as CSV.",
                            "kind": "implement",
                            "size": "small",
                            "risk": "low",
                        }
                    ]
                }
            },
        )
    ]
)
class PlanInput(Shape):
    """Approve the plan as it is (null), or as edited: the whole plan, in the planner's own form."""

    plan = serializers.JSONField(required=False, allow_null=True, default=None)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "The tests, as a criterion would run them",
            request_only=True,
            value={"commands": ["python3 -m unittest"], "prepare": False},
        )
    ]
)
class PreflightInput(Shape):
    commands = serializers.ListField(
        child=serializers.CharField(max_length=1_000),
        required=False,
        allow_null=True,
        default=None,
        max_length=20,
        help_text="What to run, as in criteria; null: what the last one ran, or the newest criteria.",
    )
    prepare = serializers.BooleanField(
        required=False,
        default=True,
        help_text="Install first what the lock files ask for; needs the network.",
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A repository behind a token",
            request_only=True,
            value={
                "source": "https://git.example.org/team/app.git",
                "username": "ana",
                "password": "a token",
            },
        )
    ]
)
class ImportInput(Shape):
    """Where a repository is; what opens it is used once and then erased."""

    source = serializers.CharField(  # type: ignore[assignment]  # a field of that name, not the base's setting
        help_text="https://… or ssh://…, without a name or password in it."
    )
    username = serializers.CharField(required=False, allow_blank=True, default="")
    password = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        trim_whitespace=False,
        write_only=True,
        help_text="Or an access token. No answer has it.",
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A yes",
            request_only=True,
            value={
                "approve": True,
                "record": "0192d3c4-5b6a-7000-8000-000000000003",
                "revision": 1,
                "payload_hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            },
        )
    ]
)
class DecisionInput(Shape):
    """Yes or no to one command. `record`, `revision` and `payload_hash` are those of the approval that was read."""

    approve = serializers.BooleanField()
    record = serializers.CharField(max_length=64)
    revision = serializers.IntegerField(min_value=1)
    payload_hash = serializers.CharField(max_length=64)
    reason = serializers.CharField(
        required=False, allow_blank=True, default="", help_text="A no needs one: the agent reads it."
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "It ran to its end",
            request_only=True,
            value={"took_effect": True, "reason": "The release is on the server."},
        )
    ]
)
class ReconciliationInput(Shape):
    took_effect = serializers.BooleanField()
    reason = serializers.CharField(help_text="What was found; the next attempt reads it.")


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Four calls, three million tokens",
            request_only=True,
            value={"calls_max": 4, "tokens_max": 3_000_000, "cost_max_usd": "2.50"},
        )
    ]
)
class AllowanceInput(Shape):
    """At least one limit. Each call reserves its model's whole input window and its output limit, then gives back."""

    calls_max = serializers.IntegerField(required=False, min_value=0, max_value=SAFE_INTEGER_MAX)
    tokens_max = serializers.IntegerField(required=False, min_value=0, max_value=SAFE_INTEGER_MAX)
    cost_max_usd = UsdInput(required=False, help_text='US dollars, such as "2.50".')
    output_tokens_per_call_max = serializers.IntegerField(
        required=False, min_value=1, max_value=SAFE_INTEGER_MAX
    )
    deadline = serializers.DateTimeField(required=False, help_text="Nothing is asked from then on.")


class TokensInput(serializers.Serializer[Any]):
    """Disjoint, except `reasoning`, which is a part of `output`."""

    input_uncached = serializers.IntegerField(min_value=0, max_value=REPORTED_TOKENS_MAX)
    output = serializers.IntegerField(min_value=0, max_value=REPORTED_TOKENS_MAX)
    cache_read = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=REPORTED_TOKENS_MAX
    )
    cache_write_5m = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=REPORTED_TOKENS_MAX
    )
    cache_write_1h = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=REPORTED_TOKENS_MAX
    )
    reasoning = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, max_value=REPORTED_TOKENS_MAX
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A call made elsewhere",
            request_only=True,
            value={
                "id": "nightly-7",
                "model": "claude-haiku-5-5",
                "usage": {"input_uncached": 1_000, "output": 100},
            },
        )
    ]
)
class ReportInput(Shape):
    """Usage outside of Remit. The same `id` again changes nothing; with other values it is a 409."""

    id = serializers.CharField(max_length=150)
    usage = TokensInput()
    cost_usd = UsdInput(required=False, allow_null=True, default=None, help_text="null: by the price list")
    model = serializers.CharField(required=False, allow_blank=True, default="", max_length=100)


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "An identifier out of a text",
            request_only=True,
            value={
                "role": "extractor",
                "packet": "Source identifier=ALPHA_6.",
                "schema": {
                    "type": "object",
                    "properties": {"answer": {"type": "string"}},
                    "required": ["answer"],
                    "additionalProperties": False,
                },
            },
        )
    ]
)
class QuestionInput(Shape):
    """Asked once, with no history and no tools; an answer that does not fit is repaired at most once."""

    role = serializers.ChoiceField(choices=[role.value for role in HelperRole])
    packet = serializers.CharField(
        max_length=PACKET_CHARACTERS_MAX, trim_whitespace=False, help_text="All that the helper is told."
    )
    schema = serializers.JSONField(
        required=False,
        allow_null=True,
        default=None,
        help_text="A JSON schema of an object; null: plain text.",
    )
    validation_schema = serializers.JSONField(
        required=False, allow_null=True, default=None, help_text="What the answer must fit as well."
    )
