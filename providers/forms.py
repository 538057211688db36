"""Browser forms of connectors: shape only; `saving` knows the rules."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from providers.models import Connector, ConnectorKind


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
            found = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            raise forms.ValidationError("This is no JSON.") from None
        if not isinstance(found, dict):
            raise forms.ValidationError('A JSON object is needed, such as {"stream": true}.')
        return found


class ConnectorForm(forms.Form):
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
        return cleaned


class NewConnectorForm(ConnectorForm):
    name = forms.CharField(
        max_length=63,
        initial="main",
        help_text="Projects pay with a connector by its name: a-z, 0-9 and -. It stays.",
    )
    kind = forms.ChoiceField(choices=ConnectorKind.choices)
    field_order = ["name", "kind", "key", "base_url", "headers", "config"]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        del self.fields["drop_key"]
