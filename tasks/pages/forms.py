"""Browser forms: shape only. The services check, and name the field that does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator
from django.http import QueryDict

from budgets.keys import MeterKind
from budgets.limits import Limit, read_limit
from tasks.pages.stops import METER_LABELS
from tasks.raises import RAISABLE
from tenants.errors import InvalidInput

CRITERION_ROWS = 3
CRITERION_ROWS_MAX = 50


@dataclass(frozen=True, slots=True)
class CriterionRow:
    number: int
    text: str = ""
    command: str = ""
    problem: str = ""


@dataclass(slots=True)
class ChangeForm:
    """What stands in the form for a new Change, with what is wrong beside each field."""

    title: str = ""
    goal: str = ""
    invariants: str = ""
    budget: str = ""
    rows: list[CriterionRow] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        return bool(self.problems) or any(row.problem for row in self.rows)

    @classmethod
    def empty(cls) -> ChangeForm:
        return cls(rows=[CriterionRow(number) for number in range(1, CRITERION_ROWS + 1)])

    @classmethod
    def read(cls, data: QueryDict) -> ChangeForm:
        texts, commands = data.getlist("criterion"), data.getlist("command")
        pairs = list(zip(texts, commands, strict=False))[:CRITERION_ROWS_MAX]
        return cls(
            title=data.get("title", ""),
            goal=data.get("goal", ""),
            invariants=data.get("invariants", ""),
            budget=data.get("budget", ""),
            rows=[CriterionRow(number, *pair) for number, pair in enumerate(pairs, start=1)],
        )

    def as_data(self, *, draft: bool) -> Mapping[str, Any]:
        """The body that a client would have sent; rows that were left empty are none."""
        return {
            "title": self.title,
            "goal": self.goal,
            "criteria": [{"text": row.text, "command": row.command} for row in self._filled()],
            "invariants": [line for line in self.invariants.splitlines() if line.strip()],
            "budget": self.budget,
            "draft": draft,
        }

    def with_more_rows(self) -> None:
        first = len(self.rows) + 1
        last = min(first + CRITERION_ROWS, CRITERION_ROWS_MAX + 1)
        self.rows += [CriterionRow(number) for number in range(first, last)]

    def wrong(self, error: InvalidInput) -> None:
        """Put the problem beside its field; `criteria[1].command` is the second filled row."""
        message = f"{error.problem.capitalize()}. {error.remedy}"
        name, _, index = error.field.partition("[")
        if name == "criteria" and index:
            filled = self._filled()
            row = filled[int(index.partition("]")[0])]
            place = self.rows.index(row)
            self.rows[place] = CriterionRow(row.number, row.text, row.command, message)
        else:
            self.problems[name] = message

    def _filled(self) -> list[CriterionRow]:
        return [row for row in self.rows if row.text.strip() or row.command.strip()]


class AmountForm(forms.Form):
    """A new limit. `key` makes pressing the button twice one act; no limit at all is said, never left out."""

    use_required_attribute = False  # an amount is needed only without the tick

    to = forms.CharField(
        label="New limit",
        max_length=40,
        error_messages={"required": "Give an amount, or tick that there is no limit at all."},
        help_text="US dollars such as 7.50; for calls a whole number.",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    unlimited = forms.BooleanField(label="No limit at all", required=False)
    until = forms.DateField(
        label="Only until",
        required=False,
        validators=[MaxValueValidator(date(9998, 12, 31), "This is no day in the coming year.")],
        help_text="The end of this UTC day; then the limit of now returns.",
        widget=forms.DateInput(attrs={"type": "date"}),
    )
    reason = forms.CharField(required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 2}))
    key = forms.CharField(widget=forms.HiddenInput, max_length=100)

    def clean(self) -> None:
        super().clean()
        if self.cleaned_data.get("unlimited"):
            self.errors.pop("to", None)
            if self.cleaned_data.get("to"):
                self.add_error("to", "Give an amount or tick that there is no limit, not both.")

    def limit(self, kind: MeterKind) -> Limit:
        """Raises `InvalidInput` for what is no limit."""
        return (
            None if self.cleaned_data["unlimited"] else read_limit(kind, self.cleaned_data["to"], field="to")
        )

    def expires_at(self) -> datetime | None:
        day = self.cleaned_data["until"]
        return datetime.combine(day, time(), tzinfo=UTC) + timedelta(days=1) if day else None


class RaiseForm(AmountForm):
    field_order = ("meter", "to", "unlimited", "until", "reason")

    meter = forms.ChoiceField(label="Limit", choices=[(kind.value, METER_LABELS[kind]) for kind in RAISABLE])


class LimitForm(AmountForm):
    """Whose limit: `of` is a kind and a subject, as in `project:0192…`."""

    field_order = ("of", "to", "unlimited", "until", "reason")

    of = forms.ChoiceField(label="Limit of", choices=[])

    def __init__(self, *args: Any, of: list[tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["of"].choices = of  # type: ignore[attr-defined]  # of a choice field


class ReleaseForm(forms.Form):
    """Which unknown charge is taken back, and why."""

    call = forms.IntegerField(min_value=1, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=2_000)


class ReasonForm(forms.Form):
    reason = forms.CharField(required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 2}))
    key = forms.CharField(widget=forms.HiddenInput, max_length=100)


class CommentForm(forms.Form):
    comment = forms.CharField(
        max_length=4_000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="The agent reads it with its next attempt.",
    )
    key = forms.CharField(widget=forms.HiddenInput, max_length=100)


class PlanForm(forms.Form):
    plan = forms.CharField(
        max_length=400_000,
        widget=forms.Textarea(attrs={"rows": 24, "class": "code-input", "spellcheck": "false"}),
    )
