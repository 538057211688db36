"""Browser forms of connectors: shape only; `saving` knows the rules."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from providers.models import Connector, ConnectorKind
from providers.plans import RETRIES_DEFAULT, RETRIES_MAX, STAND_INS_MAX
from tenants.forms import GuardedForm

_LINE_EXAMPLE = "spare: claude-haiku-5-5 = gpt-4o-mini thinking off, claude-sonnet-5-5 = gpt-4.1 thinking off"


class _Twice(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key[:80]


class HeadersField(forms.CharField):
    """Lines of `name: value`."""

    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        headers = {}
        for line in (super().to_python(value) or "").splitlines():
            if not line.strip():
                continue
            name, colon, said = line.partition(":")
            if not colon:
                raise forms.ValidationError("One header a line, such as anthropic-workspace-id: ws_1")
            headers[name.strip()] = said.strip()
        return headers


class ObjectField(forms.CharField):
    """A JSON object."""

    widget = forms.Textarea(attrs={"rows": 6, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        text = (super().to_python(value) or "").strip()
        try:
            found = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number) if text else {}
        except _Twice as twice:
            raise forms.ValidationError(f"The key {twice.key!r} occurs twice in one object.") from None
        except (ValueError, RecursionError):
            raise forms.ValidationError("This is no JSON.") from None
        if not isinstance(found, dict):
            raise forms.ValidationError('A JSON object is needed, such as {"stream": true}.')
        return found


class StandInsField(forms.CharField):
    """One connector a line, the first to ask first; after a colon what it calls our models, and how they think."""

    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        lines = [line.strip() for line in (super().to_python(value) or "").splitlines() if line.strip()]
        return [_stand_in(line) for line in lines]


class ConnectorForm(GuardedForm):
    base_url = forms.CharField(
        label="Address", required=False, max_length=500, help_text="Empty: the vendor's own."
    )
    key = forms.CharField(
        required=False,
        max_length=4_000,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    headers = HeadersField(
        label="Extra headers", required=False, help_text="One a line. They are shown again: no secrets."
    )
    config = ObjectField(
        label="Options", required=False, help_text="A JSON object; the manual lists the options."
    )
    fallback = StandInsField(
        label="Stand-ins",
        required=False,
        max_length=20_000,
        help_text=f"Up to {STAND_INS_MAX} connectors that are asked when this one does not answer, one a line, the "
        f"first to ask first. After a colon: what they call a model. Such as {_LINE_EXAMPLE}",
    )
    max_retries = forms.IntegerField(
        label="Tries again",
        required=False,
        min_value=0,
        max_value=RETRIES_MAX,
        help_text="How often each of them is asked once more. Empty: "
        f"{RETRIES_DEFAULT} times with stand-ins, once without.",
    )
    retry_transport = forms.BooleanField(
        label="Also after lost connections and timeouts",
        required=False,
        help_text="Such a call may have been paid: it stays held at its worst case, beside the next one.",
    )
    drop_key = forms.BooleanField(label="Remove the stored key", required=False)

    @classmethod
    def of(cls, connector: Connector, data: Any) -> ConnectorForm:
        form = cls(
            data,
            initial={
                "base_url": connector.base_url,
                "headers": "\n".join(f"{name}: {value}" for name, value in connector.headers.items()),
                "config": json.dumps(connector.config, indent=2, ensure_ascii=False)
                if connector.config
                else "",
                **plan_initial(connector.fallback),
            },
        )
        form.fields["key"].help_text = (
            "A key is stored. Empty keeps it; a new address needs it again."
            if connector.has_key
            else "None is stored."
        )
        return form

    def wanted(self) -> dict[str, Any]:
        """What `save_connector` takes; an empty key keeps the stored one."""
        cleaned = dict(self.cleaned_data)
        dropped = cleaned.pop("drop_key", False)
        cleaned["key"] = cleaned["key"] or ("" if dropped else None)
        cleaned["fallback"] = plan_wanted(cleaned)
        return cleaned


class NewConnectorForm(ConnectorForm):
    name = forms.CharField(
        max_length=63,
        initial="main",
        help_text="Projects pay with a connector by its name: a-z, 0-9 and -. It stays.",
    )
    kind = forms.ChoiceField(choices=ConnectorKind.choices)
    field_order = [
        "name",
        "kind",
        "key",
        "base_url",
        "headers",
        "config",
        "fallback",
        "max_retries",
        "retry_transport",
    ]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        del self.fields["drop_key"]


class FallbackForm(forms.Form):
    """Who stands in for a connector, and nothing else: the operator's screen."""

    fallback = StandInsField(label="Stand-ins", required=False, max_length=20_000, help_text=_LINE_EXAMPLE)
    max_retries = forms.IntegerField(label="Tries again", required=False, min_value=0, max_value=RETRIES_MAX)
    retry_transport = forms.BooleanField(label="Also after lost connections and timeouts", required=False)


def plan_initial(fallback: dict[str, Any]) -> dict[str, Any]:
    """A stored plan as its fields show it."""
    return {
        "fallback": "\n".join(_line(entry) for entry in fallback.get("connectors", [])),
        "max_retries": fallback.get("max_retries"),
        "retry_transport": fallback.get("retry_transport", False),
    }


def plan_wanted(cleaned: dict[str, Any]) -> dict[str, Any]:
    """The plan that the three fields ask for; takes the other two out of `cleaned`. Nothing at all said: none."""
    entries, retries = cleaned["fallback"], cleaned.pop("max_retries")
    transport = cleaned.pop("retry_transport")
    if not entries and retries is None and not transport:
        return {}
    known = {} if retries is None else {"max_retries": retries}
    return {"connectors": entries, "retry_transport": transport, **known}


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that occurs twice nobody can say which one was meant."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice(key)
        found[key] = value
    return found


def _no_number(word: str) -> Any:
    raise ValueError(word)


def _stand_in(line: str) -> dict[str, Any]:
    name, _, models = line.partition(":")
    return {
        "connector": name.strip(),
        "models": dict(_named(said) for said in models.split(",") if said.strip()),
    }


def _named(said: str) -> tuple[str, dict[str, str]]:
    """`claude-haiku-5-5 = gpt-4o-mini thinking off`."""
    ours, equals, theirs = (part.strip() for part in said.partition("="))
    words = theirs.split()
    pairs = dict(zip(words[1::2], words[2::2], strict=False))
    if not ours or not equals or len(words) % 2 == 0 or not pairs.keys() <= {"thinking", "effort"}:
        raise forms.ValidationError(
            f"“{said.strip()[:100]}” names no model. Write it such as: claude-haiku-5-5 = gpt-4o-mini thinking off"
        )
    return ours, {"model": words[0], **pairs}


def _line(entry: dict[str, Any]) -> str:
    models = []
    for ours, named in sorted(entry["models"].items()):  # whatever order the database keeps
        more = "".join(f" {word} {named[word]}" for word in ("thinking", "effort") if named.get(word))
        models.append(f"{ours} = {named['model']}{more}")
    return f"{entry['connector']}: {', '.join(models)}" if models else str(entry["connector"])
