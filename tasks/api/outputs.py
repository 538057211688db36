"""What clients get: the shapes of Changes, Tasks, runs and what hangs on them."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agents.models import ApprovalState
from budgets.allowances import STATES, state_of
from budgets.api import UsdText
from budgets.money import Usd, exact
from routing.words import Tier
from tasks.helper_questions import calls_of
from tasks.reads import Money
from tasks.states import ImportState, PreflightState, QuestionState


@extend_schema_field(OpenApiTypes.STR)
class CountOutput(serializers.Field[Any, Any, str, Any]):
    """Dollars with six decimals, or a whole number of calls; text in both cases."""

    def __init__(self, **more: Any) -> None:
        super().__init__(read_only=True, **more)

    def to_representation(self, value: Usd | int) -> str:
        return exact(value) if isinstance(value, Usd) else str(value)


class TierOutput(serializers.ChoiceField):
    """haiku, sonnet or opus."""

    def __init__(self, **more: Any) -> None:
        super().__init__(choices=[tier.word for tier in Tier], read_only=True, **more)

    def to_representation(self, value: Any) -> str:
        return Tier(value).word


class MoneyOutput(serializers.Serializer[Money]):
    limit = UsdText(allow_null=True, help_text="null: unlimited")
    spent = UsdText(help_text="Unknown charges are in it at their worst case.")
    held = UsdText(help_text="Held for calls that are on their way.")
    left = UsdText(allow_null=True)
    unknown_calls = serializers.IntegerField()


class CriterionOutput(serializers.Serializer[Any]):
    position = serializers.IntegerField()
    text = serializers.CharField()
    command = serializers.CharField()


class DependencyOutput(serializers.Serializer[Any]):
    task = serializers.UUIDField(source="on_id")
    key = serializers.CharField(source="on.key")
    added_by = serializers.CharField()


class TaskOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    change = serializers.UUIDField(source="change_id")
    key = serializers.CharField()
    agent_id = serializers.CharField()
    title = serializers.CharField()
    objective = serializers.CharField()
    kind = serializers.CharField()
    size = serializers.CharField()
    risk = serializers.CharField()
    area = serializers.CharField()
    resources = serializers.JSONField()
    state = serializers.CharField()
    waiting_for = serializers.CharField()
    not_before = serializers.DateTimeField(allow_null=True)
    depends_on = DependencyOutput(many=True, source="dependencies.all")
    stop_limit = serializers.CharField(help_text="The limit that stopped it; empty when none did.")
    stop_detail = serializers.JSONField(
        help_text="Every meter that refused, with its figures at that moment."
    )
    blocked_by = serializers.UUIDField(source="blocked_by_id", allow_null=True)
    failure = serializers.CharField()
    attempts_reset_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ChangeOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    key = serializers.CharField()
    project = serializers.UUIDField(source="project_id")
    organization = serializers.UUIDField(source="organization_id")
    author = serializers.EmailField(source="author.email")
    title = serializers.CharField()
    state = serializers.CharField()
    paused_at = serializers.DateTimeField(allow_null=True)
    tasks_count = serializers.IntegerField()
    tasks_done = serializers.IntegerField()
    criteria_count = serializers.IntegerField()
    money = MoneyOutput()
    stop_limit = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ChangeDetailOutput(ChangeOutput):
    goal = serializers.CharField()
    invariants = serializers.ListField(child=serializers.CharField())
    criteria = CriterionOutput(many=True, source="criteria.all")
    plan = serializers.JSONField(allow_null=True)
    plan_problem = serializers.CharField()
    failure = serializers.CharField()
    stop_detail = serializers.JSONField()
    tasks = TaskOutput(many=True, source="tasks.all")


class SavedViewOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    query = serializers.CharField(help_text="Filters as in the address of the list.")


class RunOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    task = serializers.UUIDField(source="task_id")
    attempt = serializers.IntegerField()
    tier = TierOutput()
    model = serializers.CharField()
    state = serializers.CharField()
    end_reason = serializers.CharField()
    failure_class = serializers.CharField()
    note = serializers.CharField()
    budget = UsdText(allow_null=True, help_text="The Task's share of the Change's budget; null: no cap.")
    cost = UsdText(help_text="The known part of what it cost.")
    unknown_calls = serializers.IntegerField()
    calls = serializers.IntegerField()
    reads = serializers.IntegerField()
    caps = serializers.JSONField()
    context_hash = serializers.CharField()
    base_commit = serializers.CharField()
    start_commit = serializers.CharField()
    stacked_on = serializers.ListField(child=serializers.UUIDField())
    stop_asked_at = serializers.DateTimeField(
        allow_null=True, help_text="When a person asked it to end; null: nobody did."
    )
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ReceiptOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    task = serializers.UUIDField(source="task_id", allow_null=True)
    run = serializers.UUIDField(source="run_id", allow_null=True)
    kind = serializers.CharField()
    decision = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())
    detail = serializers.JSONField()
    at = serializers.DateTimeField()


class EventOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Read on with `after` set to the last id.")
    kind = serializers.CharField()
    change = serializers.UUIDField(
        source="change_id", allow_null=True, help_text="null: an event of the organization itself"
    )
    task = serializers.UUIDField(source="task_id", allow_null=True)
    run = serializers.UUIDField(source="run_id", allow_null=True)
    data = serializers.JSONField()  # type: ignore[assignment]  # the event's own word
    at = serializers.DateTimeField()


class CheckOutput(serializers.Serializer[Any]):
    criterion = serializers.IntegerField(source="criterion.position")
    text = serializers.CharField(source="criterion.text")
    command = serializers.CharField()
    verdict = serializers.CharField()
    exit_code = serializers.IntegerField(allow_null=True)
    output = serializers.CharField()
    base_verdict = serializers.CharField(
        help_text="With the base's tests and CI files; empty when none changed."
    )
    asked = serializers.CharField()
    commit = serializers.CharField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()


class CandidateOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    change = serializers.UUIDField(source="change_id")
    number = serializers.IntegerField()
    state = serializers.CharField()
    generation = serializers.IntegerField()
    base_commit = serializers.CharField()
    commit = serializers.CharField()
    changesets = serializers.ListField(child=serializers.UUIDField())
    conflicts = serializers.JSONField()
    files = serializers.ListField(child=serializers.CharField())
    flagged_files = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField()
    checks = CheckOutput(many=True, source="checks.all")
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ChangeSetOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    task = serializers.UUIDField(source="task_id")
    run = serializers.UUIDField(source="run_id")
    commit = serializers.CharField()
    base_commit = serializers.CharField()
    start_commit = serializers.CharField()
    stacked_on = serializers.ListField(child=serializers.UUIDField())
    files = serializers.ListField(child=serializers.CharField())
    own_files = serializers.ListField(child=serializers.CharField())
    intent = serializers.CharField()
    created_at = serializers.DateTimeField()


class TaskBriefOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    key = serializers.CharField()
    title = serializers.CharField()


class ChangeBriefOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    key = serializers.CharField()
    title = serializers.CharField()


class PreviewOutput(serializers.Serializer[Any]):
    """What this limit would do: change nothing, stop the next call, or open work again."""

    before = CountOutput(allow_null=True)
    to = CountOutput(allow_null=True)
    spent = CountOutput()
    held = CountOutput()
    is_raise = serializers.BooleanField()
    stops_the_next_call = serializers.BooleanField()
    reopens = TaskBriefOutput(many=True)
    gives_back = TaskBriefOutput(many=True, help_text="Tasks that wait for those.")
    resumes = ChangeBriefOutput(many=True, help_text="Changes whose planning or composing goes on.")


class RaisedOutput(serializers.Serializer[Any]):
    reopened = TaskBriefOutput(many=True)
    money = MoneyOutput()


class LimitOutput(serializers.Serializer[Any]):
    """One limit in force, with what is spent and held under it in the open period."""

    meter = serializers.CharField(source="figures.kind")
    subject = serializers.CharField()
    name = serializers.CharField()
    period = serializers.CharField(source="figures.period")
    counts = serializers.ChoiceField(choices=["usd", "calls"], source="figures.counts")
    limit = CountOutput(allow_null=True, source="figures.limit", help_text="null: unlimited")
    spent = CountOutput(source="figures.spent")
    held = CountOutput(source="figures.held")
    ends_at = serializers.DateTimeField(allow_null=True, source="figures.ends_at")


class LimitSetOutput(serializers.Serializer[Any]):
    before = CountOutput(allow_null=True)
    after = CountOutput(allow_null=True)
    is_raise = serializers.BooleanField()
    reopened = TaskBriefOutput(many=True, source="raised.reopened")
    resumed = ChangeBriefOutput(many=True, source="raised.changes_resumed")


class AcceptedOutput(serializers.Serializer[Any]):
    """What a promoted Change cost on average, failed and unfinished work included. Null: none was promoted."""

    changes = serializers.IntegerField()
    cost = UsdText(allow_null=True, help_text="Unknown charges are in it at their worst case.")
    unknown_calls = serializers.IntegerField()


class PayingMeterOutput(serializers.Serializer[Any]):
    """A meter that pays for a Change: its figures are dollars, or whole calls for the daily ones."""

    meter = serializers.CharField(source="kind")
    stop = serializers.CharField(help_text="The name under which it stops work.")
    period = serializers.CharField(help_text="A UTC month or day; empty: for life.")
    counts = serializers.ChoiceField(choices=["usd", "calls"])
    limit = CountOutput(allow_null=True, help_text="null: unlimited")
    spent = CountOutput()
    held = CountOutput()
    left = CountOutput(allow_null=True)
    ends_at = serializers.DateTimeField(allow_null=True)


class PreflightOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    project = serializers.UUIDField(source="project_id")
    state = serializers.ChoiceField(choices=list(PreflightState))
    by = serializers.EmailField(source="by.email", allow_null=True, default=None)
    commands = serializers.ListField(child=serializers.CharField())
    prepare = serializers.BooleanField(source="prepares")
    commit = serializers.CharField(help_text="main when the work began; empty before")
    step = serializers.CharField(help_text="what the worker is at")
    found = serializers.JSONField(
        help_text="tier, files, checkout_seconds, dependencies, checks, missing, warnings, problems; "
        "grows from step to step"
    )
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class ImportFoundOutput(serializers.Serializer[Any]):
    commit = serializers.CharField()
    branch = serializers.CharField(help_text="the name that main has at its source")
    files = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="of those files")
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="submodules, LFS, names that differ only by case, ..."
    )


class ImportRefusalOutput(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="stable")
    problem = serializers.CharField()
    remedy = serializers.CharField()


class ImportOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    project = serializers.UUIDField(source="project_id")
    state = serializers.ChoiceField(choices=list(ImportState))
    by = serializers.EmailField(source="by.email", allow_null=True, default=None)
    source = serializers.CharField(  # type: ignore[assignment]  # a field of that name, not the base's setting
        help_text="the address, or the name of the bundle"
    )
    is_bundle = serializers.BooleanField()
    step = serializers.CharField(help_text="what the worker is at")
    received_bytes = serializers.IntegerField(help_text="of a bundle: its size; else of the pack so far")
    found = serializers.SerializerMethodField()
    refusal = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(ImportFoundOutput(allow_null=True))
    def get_found(self, row: Any) -> Any:
        """What came in; null before that."""
        return row.found or None

    @extend_schema_field(ImportRefusalOutput(allow_null=True))
    def get_refusal(self, row: Any) -> Any:
        """Why nothing came in; null otherwise."""
        return ImportRefusalOutput(row).data if row.problem else None


class ReconciliationOutput(serializers.Serializer[Any]):
    took_effect = serializers.BooleanField()
    by = serializers.EmailField(source="by.email", allow_null=True, default=None)
    reason = serializers.CharField()
    at = serializers.DateTimeField()


class ApprovalOutput(serializers.Serializer[Any]):
    """A command that waits for a person's yes, and what the decision is bound to."""

    id = serializers.UUIDField()
    change = serializers.UUIDField(source="continuation.change_id")
    task = serializers.UUIDField(source="continuation.task_id")
    run = serializers.UUIDField(source="continuation.run_id")
    record = serializers.UUIDField(source="continuation_id")
    revision = serializers.IntegerField()
    payload_hash = serializers.CharField()
    argv = serializers.ListField(child=serializers.CharField())
    why = serializers.CharField(help_text="the agent's words; empty when it gave none")
    state = serializers.ChoiceField(choices=ApprovalState.choices)
    decided_by = serializers.EmailField(source="decided_by.email", allow_null=True, default=None)
    decided_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    effect_began_at = serializers.DateTimeField(allow_null=True)
    effect_ended_at = serializers.DateTimeField(
        allow_null=True,
        help_text="null although it began, and the attempt has ended: nobody knows what became of it",
    )
    reconciliation = ReconciliationOutput(allow_null=True, default=None)
    active_ms_left = serializers.IntegerField(source="continuation.remaining_ms")
    asked_at = serializers.DateTimeField()


class AllowanceLimitsOutput(serializers.Serializer[Any]):
    """null: not limited."""

    calls_max = serializers.IntegerField(allow_null=True)
    tokens_max = serializers.IntegerField(allow_null=True)
    cost_max_usd = UsdText(source="cost_max", allow_null=True)
    output_tokens_per_call_max = serializers.IntegerField(allow_null=True)
    deadline = serializers.DateTimeField(allow_null=True)


class AllowanceOutput(serializers.Serializer[Any]):
    """What an allowance allows and what counts on it: worst cases on their way, charges, and reports."""

    id = serializers.UUIDField()
    project = serializers.UUIDField(source="project_id")
    by = serializers.EmailField(source="by.email", allow_null=True, default=None)
    state = serializers.SerializerMethodField()
    limits = AllowanceLimitsOutput(source="*")
    calls = serializers.IntegerField()
    charged_tokens = serializers.IntegerField()
    charged_usd = UsdText(source="charged_cost")
    created_at = serializers.DateTimeField()
    cancelled_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(serializers.ChoiceField(choices=STATES))
    def get_state(self, allowance: Any) -> str:
        return state_of(allowance, now=timezone.now())


class InvocationOutput(serializers.Serializer[Any]):
    """One physical call, or a report. No prompt, no answer, no key."""

    id = serializers.UUIDField()
    key = serializers.CharField()
    logical = serializers.CharField(help_text="The tries of one question share it.")
    parent = serializers.CharField(  # type: ignore[assignment]  # a field of that name, not the base's
        help_text="The question whose call it is, or else the allowance."
    )
    purpose = serializers.CharField()
    phase = serializers.CharField(help_text="generation, repair or external")
    connector = serializers.CharField()
    model = serializers.CharField()
    state = serializers.CharField(help_text="admitted, settled, unknown or refunded")
    http_status = serializers.IntegerField(allow_null=True)
    validation = serializers.CharField(source="output_validation", help_text="passed, failed or empty")
    usage = serializers.JSONField(allow_null=True, help_text="null: unknown")
    known_usd = UsdText(source="known_cost", allow_null=True, help_text="null: unknown")
    charged_tokens = serializers.IntegerField()
    charged_usd = UsdText(source="charged_cost", allow_null=True, help_text="null: no known price")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class AllowanceTotalsOutput(serializers.Serializer[Any]):
    """Known subtotals beside the counts of what is unknown."""

    calls = serializers.IntegerField()
    charged_tokens = serializers.IntegerField()
    charged_usd = UsdText(source="charged_cost")
    total_tokens = serializers.IntegerField()
    known_usd = UsdText(source="known_cost")
    unknown_usage_invocations = serializers.IntegerField()
    unknown_cost_invocations = serializers.IntegerField()
    unknown_charge_attempts = serializers.IntegerField()


class AllowanceDetailOutput(AllowanceOutput):
    """A snapshot: it says how the allowance stands, and can never be given back as one."""

    totals = serializers.SerializerMethodField()
    invocations = serializers.SerializerMethodField()

    @extend_schema_field(AllowanceTotalsOutput)
    def get_totals(self, _: Any) -> Any:
        return AllowanceTotalsOutput(self.context["snapshot"].totals).data

    @extend_schema_field(InvocationOutput(many=True))
    def get_invocations(self, _: Any) -> Any:
        return InvocationOutput(self.context["snapshot"].invocations, many=True).data


class QuestionFailureOutput(serializers.Serializer[Any]):
    """Why there is no answer, and what would help."""

    code = serializers.CharField()
    problem = serializers.CharField()
    remedy = serializers.CharField()
    detail = serializers.CharField(default="", help_text="What the helper or the provider said.")
    dimension = serializers.CharField(default="", help_text="Of the allowance: what it lacks; else empty.")
    at_least = serializers.CharField(default="", help_text="What that limit would have to be for this call.")
    stop = serializers.JSONField(
        allow_null=True, default=None, help_text="Where meters refused: `refusals`, and the `ways_out`."
    )


class QuestionOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    allowance = serializers.UUIDField(source="allowance_id")
    project = serializers.UUIDField(source="project_id")
    by = serializers.EmailField(source="by.email")
    role = serializers.CharField()
    state = serializers.ChoiceField(choices=list(QuestionState))
    text = serializers.CharField()
    value = serializers.JSONField(allow_null=True, help_text="What fits the schemas; null without any.")
    invocations = serializers.SerializerMethodField()
    failure = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(InvocationOutput(many=True))
    def get_invocations(self, question: Any) -> Any:
        """Its calls: generation, and the repair where there was one."""
        return InvocationOutput(calls_of(question), many=True).data

    @extend_schema_field(QuestionFailureOutput(allow_null=True))
    def get_failure(self, question: Any) -> Any:
        """null unless it failed."""
        return QuestionFailureOutput(question.failure).data if question.failure else None
