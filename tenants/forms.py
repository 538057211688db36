"""Browser forms: shape only; the services know the rules."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django import forms
from django.conf import settings

from tenants.caps import CAPS
from tenants.errors import InvalidInput
from tenants.models import Project, Promotion, Role, Scope
from tenants.projects import EXTRA_COMMANDS_MAX

Result = TypeVar("Result")

TOKEN_DAYS = [(30, "30 days"), (90, "90 days"), (365, "a year"), (0, "never")]


def attempt(form: forms.Form, act: Callable[[], Result]) -> Result | None:
    """The act's result; None when it was refused, and the form then says why beside the field."""
    try:
        return act()
    except InvalidInput as refused:
        field = refused.field.split(".")[0]
        inside = f"{refused.field[len(field) + 1 :]}: " if "." in refused.field else ""
        words = f"{inside}{refused.problem}. {refused.remedy}"
        form.add_error(field if field in form.fields else None, words[:1].upper() + words[1:])
        return None


class OrganizationForm(forms.Form):
    name = forms.CharField(max_length=200)
    slug = forms.CharField(
        label="Short name", max_length=63, help_text="For addresses and commands: a-z, 0-9 and -. It stays."
    )


class RenameForm(forms.Form):
    name = forms.CharField(max_length=200)


class InvitationForm(forms.Form):
    email = forms.EmailField(label="Email address", max_length=254)
    role = forms.TypedChoiceField(choices=[], coerce=int, initial=int(Role.MEMBER))

    def __init__(self, *args: Any, up_to: Role, **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["role"].choices = [(role.value, role.label) for role in Role if role <= up_to]  # type: ignore[attr-defined]  # of a choice field


class RoleForm(forms.Form):
    role = forms.TypedChoiceField(choices=Role.choices, coerce=int)


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="What it is for, such as: release pipeline.")
    scopes = forms.MultipleChoiceField(
        label="May", choices=Scope.choices, widget=forms.CheckboxSelectMultiple, initial=[Scope.READ]
    )
    days = forms.TypedChoiceField(label="Ends after", choices=TOKEN_DAYS, coerce=int, initial=90)


class ProjectForm(forms.Form):
    organization = forms.ChoiceField(choices=[])
    name = forms.CharField(max_length=200)
    slug = forms.CharField(
        label="Short name", max_length=63, help_text="For commands and addresses: a-z, 0-9 and -. It stays."
    )
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))
    connector = forms.CharField(
        max_length=63, initial="main", help_text="The account that pays for model calls, by its name."
    )

    def __init__(self, *args: Any, organizations: list[tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["organization"].choices = organizations  # type: ignore[attr-defined]  # of a choice field


class SettingsForm(forms.Form):
    """The rules of a project; each cap is a field of its own, empty for the default."""

    name = forms.CharField(max_length=200)
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))
    connector = forms.CharField(
        max_length=63,
        help_text="The account that pays for this project's calls. Another organization's is never used.",
        widget=forms.TextInput(attrs={"list": "connectors"}),
    )
    plan_needs_approval = forms.BooleanField(
        label="A person approves each plan",
        required=False,
        help_text="Work starts only after an admin has looked at the tasks and their estimate.",
    )
    promotion = forms.ChoiceField(
        label="Who promotes",
        choices=Promotion.choices,
        help_text="Who moves main when every criterion passes on the composed tree.",
    )
    raise_needs_reason = forms.BooleanField(
        label="A budget raise needs a reason",
        required=False,
        help_text="The reason is kept in the audit list.",
    )
    allow_opus = forms.BooleanField(
        label="The opus tier may use the opus model",
        required=False,
        help_text="Without it, opus work runs on sonnet with more thinking, and its receipt says so.",
    )
    trusted = forms.BooleanField(
        label="Trusted: commands may run without a sandbox",
        required=False,
        help_text="Only for a repository whose every line you trust: its code then runs with the rights of the worker.",
    )
    extra_commands = forms.CharField(
        label="Extra commands",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 4, "class": "code-input", "spellcheck": "false"}),
        help_text=f"One exact command a line, at most {EXTRA_COMMANDS_MAX}, such as: npm run e2e. No shell.",
    )

    def __init__(self, *args: Any, owner: bool, **more: Any) -> None:
        super().__init__(*args, **more)
        for name, cap in CAPS.items():
            self.fields[f"cap_{name}"] = forms.IntegerField(
                label=cap.label,
                required=False,
                min_value=1,
                max_value=cap.maximum,
                help_text=f"Default {cap.default:,}, at most {cap.maximum:,}.",
                widget=forms.NumberInput(attrs={"placeholder": f"{cap.default}"}),
            )
        if not settings.PLANE.allow_opus:
            self.fields[
                "allow_opus"
            ].help_text += " Opus is off in the whole deployment now (ALLOW_OPUS), whatever is set here."
        if not owner:
            for name in ("trusted", "extra_commands"):
                self.fields[name].disabled = True
                self.fields[name].help_text = "Only an owner may change this."

    @classmethod
    def initial_of(cls, project: Project) -> dict[str, Any]:
        plain = ("name", "description", "connector", "plan_needs_approval", "promotion", "raise_needs_reason")
        values = {name: getattr(project, name) for name in (*plain, "allow_opus", "trusted")}
        values["extra_commands"] = "\n".join(shlex.join(argv) for argv in project.extra_commands)
        return values | {f"cap_{name}": number for name, number in project.caps.items()}

    def clean_extra_commands(self) -> list[list[str]]:
        lines = [line for line in self.cleaned_data["extra_commands"].splitlines() if line.strip()]
        try:
            return [shlex.split(line) for line in lines]
        except ValueError:
            raise forms.ValidationError("A quotation mark is not closed.") from None

    def settings(self) -> Mapping[str, object]:
        """What `change_project` takes."""
        data = self.cleaned_data
        caps = {name: data[f"cap_{name}"] for name in CAPS if data.get(f"cap_{name}") is not None}
        return {name: value for name, value in data.items() if not name.startswith("cap_")} | {"caps": caps}

    def cap_fields(self) -> list[forms.BoundField]:
        return [self[f"cap_{name}"] for name in CAPS]


class JoinForm(forms.Form):
    name = forms.CharField(
        label="Your name",
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    password = forms.CharField(
        label="Choose a password",
        max_length=1_000,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="At least 10 characters; a few words in a row are good.",
    )
