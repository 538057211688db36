"""Browser forms of webhooks: shape only; the services know the rules."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from budgets.money import NotAnAmount, Usd, exact, parse_usd
from tenants.forms import GuardedForm
from tenants.models import User
from webhooks.endpoints import DESCRIPTION_CHARACTERS_MAX, WantedEndpoint
from webhooks.hooks import LABEL, LABEL_CHARACTERS_MAX, NAME_CHARACTERS_MAX, WantedHook
from webhooks.kinds import EVERYTHING, KINDS
from webhooks.models import Endpoint, HookKind, IncomingHook

SINCE_CHOICES = [
    (1, "the last hour"),
    (24, "the last day"),
    (168, "the last 7 days"),
    (720, "the last 30 days"),
]
KIND_CHOICES = [
    (EVERYTHING, "everything, also kinds that come later"),
    *((kind, f"{kind}: {says}") for kind, says in KINDS.items()),
]


class EndpointForm(GuardedForm):
    url = forms.CharField(
        label="Address",
        max_length=500,
        widget=forms.TextInput(attrs={"inputmode": "url", "placeholder": "https://ci.example.org/remit"}),
    )
    description = forms.CharField(
        required=False, max_length=DESCRIPTION_CHARACTERS_MAX, help_text="What it is for."
    )
    kinds = forms.MultipleChoiceField(
        label="Hears of", choices=KIND_CHOICES, widget=forms.CheckboxSelectMultiple, initial=[EVERYTHING]
    )

    @classmethod
    def of(cls, endpoint: Endpoint, data: Any) -> EndpointForm:
        facts = {"url": endpoint.url, "description": endpoint.description, "kinds": endpoint.kinds}
        return cls(data, initial=facts)

    def wanted(self, *, enabled: bool = True) -> WantedEndpoint:
        said = self.cleaned_data
        return WantedEndpoint(
            url=said["url"], description=said["description"], kinds=tuple(said["kinds"]), enabled=enabled
        )


class SinceForm(forms.Form):
    hours = forms.TypedChoiceField(label="Failed in", choices=SINCE_CHOICES, coerce=int, initial=24)


class HookForm(GuardedForm):
    name = forms.CharField(max_length=NAME_CHARACTERS_MAX, help_text="What comes in here.")
    author = forms.ChoiceField(
        label="In the name of",
        choices=[],
        help_text="This member is the author of what comes in, and their monthly budget pays.",
    )
    budget = forms.CharField(
        label="Budget of each change",
        required=False,
        max_length=20,
        help_text="In dollars, for changes that name none themselves. Empty: no limit of its own.",
        widget=forms.TextInput(attrs={"inputmode": "decimal"}),
    )
    label = forms.CharField(
        label="Label at GitHub",
        required=False,
        max_length=LABEL_CHARACTERS_MAX,
        initial=LABEL,
        help_text="An issue that gets it becomes a change. Whoever may set labels there may spend here.",
    )

    def __init__(self, *args: Any, authors: list[User], **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["author"].choices = [(str(one.pk), one.email) for one in authors]  # type: ignore[attr-defined]  # of a choice field

    def clean_budget(self) -> Usd | None:
        said = self.cleaned_data["budget"].strip()
        try:
            return parse_usd(said) if said else None
        except NotAnAmount as error:
            raise forms.ValidationError(f"{str(error).capitalize()}.") from None

    def wanted(self, *, enabled: bool = True) -> WantedHook:
        said = self.cleaned_data
        budget: Usd | None = said["budget"]
        return WantedHook(
            name=said["name"],
            author=UUID(said["author"]),
            budget=budget,
            label=said.get("label") or LABEL,
            enabled=enabled,
        )


class NewHookForm(HookForm):
    kind = forms.ChoiceField(label="Takes", choices=HookKind.choices, help_text="It stays.")
    field_order = ["name", "kind", "author", "budget", "label"]


def form_of(hook: IncomingHook, data: Any, *, authors: list[User]) -> HookForm:
    """The settings of a hook. An author who may not submit any more is not among the choices."""
    facts = {
        "name": hook.name,
        "author": str(hook.author_id),
        "budget": "" if hook.budget is None else exact(hook.budget),
        "label": hook.label,
    }
    form = HookForm(data, authors=authors, initial=facts)
    if hook.kind != HookKind.GITHUB:
        del form.fields["label"]
    return form
