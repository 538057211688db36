"""Browser forms: shape only; the services know the rules."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django import forms
from django.conf import settings

from tenants.caps import CAPS
from tenants.errors import InvalidInput
from tenants.models import Project, Promotion, Role, Scope
from tenants.projects import EXTRA_COMMANDS_MAX
from tenants.publish_rules import (
    EXCEPTIONS_MAX,
    FILE_KIB_DEFAULT,
    FILE_KIB_MAX,
    FILES_DEFAULT,
    FILES_MAX,
    PATTERNS_MAX,
)

Result = TypeVar("Result")

MARK_CHARACTERS = 12
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


class GuardedForm(forms.Form):
    """A form over something that others change, too: a page that was opened before does not undo what they saved.

    `form_errors` writes `seen`, the marks of the values as the page showed them, into the form. A value that
    changed since then, and that this form would set back, is refused by its field; saved again, it is meant.
    """

    def seen(self) -> str:
        """What stands in the page: a mark for each field."""
        return json.dumps(self._marks(), separators=(",", ":"))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for name in self._changed_meanwhile():
            if self._is_set_back(name):
                self.add_error(
                    name,
                    "Somebody changed this after you opened the page. Save again to set it to what stands here.",
                )
        return cleaned

    def _changed_meanwhile(self) -> list[str]:
        try:
            said = json.loads(self.data.get("seen", "{}"))
        except (ValueError, RecursionError):
            return []
        now = self._marks()
        return (
            [name for name in now if name in said and said[name] != now[name]]
            if isinstance(said, dict)
            else []
        )

    def _is_set_back(self, name: str) -> bool:
        field, bound = self.fields[name], self[name]
        sent = bound.data
        sent = sent.replace("\r\n", "\n") if isinstance(sent, str) else sent  # as browsers send lines
        return not field.disabled and field.has_changed(bound.initial, sent)

    def _marks(self) -> dict[str, str]:
        return {name: _mark(self.get_initial_for_field(field, name)) for name, field in self.fields.items()}


def _mark(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:MARK_CHARACTERS]


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


class SettingsForm(GuardedForm):
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

    approval_commands = forms.CharField(
        label="Commands that wait for a yes",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "code-input", "spellcheck": "false"}),
        help_text="One a line, such as: make release, or make ... for all of a program. "
        "An attempt pauses before each until an admin decides.",
    )
    publish_file_kib_max = forms.IntegerField(
        label="Largest file, in KiB",
        required=False,
        min_value=1,
        max_value=FILE_KIB_MAX,
        widget=forms.NumberInput(attrs={"placeholder": f"{FILE_KIB_DEFAULT}"}),
        help_text=f"Default {FILE_KIB_DEFAULT:,}, at most {FILE_KIB_MAX:,}.",
    )
    publish_files_max = forms.IntegerField(
        label="Files in one change set",
        required=False,
        min_value=1,
        max_value=FILES_MAX,
        widget=forms.NumberInput(attrs={"placeholder": f"{FILES_DEFAULT}"}),
        help_text=f"Default {FILES_DEFAULT:,}, at most {FILES_MAX:,}.",
    )
    publish_secret_patterns = forms.CharField(
        label="More kinds of secrets",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "code-input", "spellcheck": "false"}),
        help_text=f"One a line, at most {PATTERNS_MAX}: what it is, a colon, a regular expression without "
        "look-around. Such as: an ACME key: ACME-[A-Z0-9]{20}",
    )
    publish_secret_exceptions = forms.CharField(
        label="Where nobody looks for secrets",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "code-input", "spellcheck": "false"}),
        help_text=f"One path a line, at most {EXCEPTIONS_MAX}, such as: tests/fixtures/*. A star takes / too.",
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
            for name in (
                "trusted",
                "extra_commands",
                "approval_commands",
                *(each.name for each in self.publish_fields()),
            ):
                self.fields[name].disabled = True
                self.fields[name].help_text = "Only an owner may change this."

    @classmethod
    def initial_of(cls, project: Project) -> dict[str, Any]:
        plain = ("name", "description", "connector", "plan_needs_approval", "promotion", "raise_needs_reason")
        values = {name: getattr(project, name) for name in (*plain, "allow_opus", "trusted")}
        for name in ("extra_commands", "approval_commands"):
            values[name] = "\n".join(shlex.join(argv) for argv in getattr(project, name))
        rules = {**project.publish_rules}
        patterns = rules.pop("secret_patterns", [])
        values["publish_secret_patterns"] = "\n".join(f"{one['name']}: {one['pattern']}" for one in patterns)
        values["publish_secret_exceptions"] = "\n".join(rules.pop("secret_exceptions", []))
        values |= {f"publish_{name}": number for name, number in rules.items()}
        return values | {f"cap_{name}": number for name, number in project.caps.items()}

    def clean_extra_commands(self) -> list[list[str]]:
        return self._commands("extra_commands")

    def clean_approval_commands(self) -> list[list[str]]:
        return self._commands("approval_commands")

    def _commands(self, field: str) -> list[list[str]]:
        lines = [line for line in self.cleaned_data[field].splitlines() if line.strip()]
        try:
            return [shlex.split(line) for line in lines]
        except ValueError:
            raise forms.ValidationError("A quotation mark is not closed.") from None

    def settings(self) -> Mapping[str, object]:
        """What `change_project` takes."""
        data = self.cleaned_data
        caps = {name: data[f"cap_{name}"] for name in CAPS if data.get(f"cap_{name}") is not None}
        plain = {name: value for name, value in data.items() if not name.startswith(("cap_", "publish_"))}
        return plain | {"caps": caps, "publish_rules": self._publish_rules()}

    def _publish_rules(self) -> Mapping[str, object]:
        data = self.cleaned_data
        pairs = [_pair(line) for line in _lines(data["publish_secret_patterns"])]
        rules = {
            "file_kib_max": data["publish_file_kib_max"],
            "files_max": data["publish_files_max"],
            "secret_patterns": [{"name": name, "pattern": pattern} for name, pattern in pairs],
            "secret_exceptions": _lines(data["publish_secret_exceptions"]),
        }
        return {name: value for name, value in rules.items() if value}

    def publish_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith("publish_")]

    def cap_fields(self) -> list[forms.BoundField]:
        return [self[f"cap_{name}"] for name in CAPS]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _pair(line: str) -> tuple[str, str]:
    """What a secret is, and its pattern, which may hold colons itself; a line without one is no pattern."""
    name, _, pattern = line.partition(":")
    return name.strip(), pattern.strip()


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
