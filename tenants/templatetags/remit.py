"""What all pages write alike: money, times, roles and the links of the frame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from django import template
from django.contrib.messages.storage.base import Message
from django.forms import BaseForm, BoundField, CheckboxInput, CheckboxSelectMultiple, RadioSelect
from django.template.context import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from tenants.idempotency import FORM_KEY
from tenants.models import AuditEntry, Role

register = template.Library()

# After so long "47 days ago" says less than the date.
RELATIVE_DAYS_MAX = 30
# An audit value on a page; the whole of it is in the admin and over REST.
VALUE_CHARACTERS_MAX = 200
MICRO_PER_USD = 1_000_000
# They say how to read the others, and nothing of their own.
_READ_WITH_OTHERS = {"unit"}
_TONES = {"success": "good", "error": "bad", "warning": "warn", "info": "info", "debug": "info"}


@register.filter
def money(amount: object) -> SafeString:
    """An amount as people read it; None is written out as unknown, never as zero."""
    if amount is None or amount == "":
        return SafeString('<span class="money unknown">unknown</span>')
    return format_html('<span class="money">{}</span>', str(amount))


@register.simple_tag
def when(moment: datetime | None, empty: str = "never") -> SafeString:
    """How long ago, with the absolute time in UTC on hover and in print."""
    if moment is None:
        return format_html('<span class="soft">{}</span>', empty)
    at = moment.astimezone(UTC)
    seconds = (timezone.now() - at).total_seconds()
    return format_html(
        '<time datetime="{}" title="{}" data-relative>{}</time>',
        at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        relative(seconds) if abs(seconds) < RELATIVE_DAYS_MAX * 86_400 else at.strftime("%Y-%m-%d"),
    )


@register.filter
def utc(moment: datetime | None) -> str:
    """The absolute time, with its zone."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


@register.filter
def role(value: int) -> str:
    """The word for a role."""
    return str(Role(value).label)


@register.filter
def tone(message: Message) -> str:
    """The tone of a notice for one of Django's messages."""
    return _TONES.get(message.level_tag, "info")


@register.inclusion_tag("tenants/_field.html")
def field(bound: BoundField) -> dict[str, Any]:
    """A form's field with its label, help and problems, wired for screen readers."""
    widget = bound.field.widget
    many = isinstance(widget, CheckboxSelectMultiple | RadioSelect)
    return {"field": bound, "check": isinstance(widget, CheckboxInput), "many": many}


@register.inclusion_tag("tenants/_form_errors.html")
def form_errors(form: BaseForm) -> dict[str, Any]:
    """What is wrong with the whole form, above it; a hint when it is about fields only."""
    return {"form": form}


@register.simple_tag
def form_key() -> SafeString:
    """The one-time key of a form that makes something: pressed twice, it is one act (`tenants.idempotency.once`)."""
    return format_html('<input type="hidden" name="{}" value="{}">', FORM_KEY, uuid4())


@register.simple_tag
def changes(entry: AuditEntry) -> SafeString:
    """What an act changed, a line each: `field: before → after`, or the one of them that there is."""
    before, after = entry.before or {}, entry.after or {}
    told = [*before, *(name for name in after if name not in before)]
    names = [n for n in told if n not in _READ_WITH_OTHERS and (before.get(n), after.get(n)) != (None, None)]
    lines = ((name, _change(before, after, name)) for name in names)
    inner = format_html_join("", '<div class="small wrap"><span class="soft">{}:</span> {}</div>', lines)
    return format_html("<div>{}</div>", inner)


@register.simple_tag(takes_context=True)
def tab_link(context: Context, name: str, label: str, *args: Any) -> SafeString:
    """A tab to a page by its URL name and arguments; nothing when there is no such page."""
    try:
        address = reverse(name, args=args)
    except NoReverseMatch:
        return SafeString("")
    path = getattr(context.get("request"), "path", "")
    # The first tab's address begins all the others'.
    inside = name != "organization" and path.startswith(f"{address}/")
    here = "page" if path == address else "true" if inside else ""
    current = format_html(' aria-current="{}"', here) if here else SafeString("")
    return format_html('<a href="{}"{}>{}</a>', address, current, label)


@register.simple_tag(takes_context=True)
def nav_link(context: Context, name: str, label: str, key: str, *also: str) -> SafeString:
    """A link of the main navigation, with its key; nothing when there is no such page.

    `also` are the beginnings of other addresses that lie below it.
    """
    try:
        address = reverse(name)
    except NoReverseMatch:
        return SafeString("")
    below = getattr(context.get("request"), "path", "").startswith(also)
    here = "page" if _is_here(context, address) else "true" if below else ""
    current = format_html(' aria-current="{}"', here) if here else SafeString("")
    return format_html('<a href="{}" data-go="{}"{}>{}</a>', address, key, current, label)


def relative(seconds: float) -> str:
    """A distance in time in words; the same ones as in static/remit.js."""
    size = abs(seconds)
    if size < 45:
        return "just now" if seconds >= 0 else "in a moment"
    length, unit = next(
        ((s, u) for s, u in ((86_400, "d"), (3_600, "h"), (60, "min")) if size >= s), (60, "min")
    )
    count = max(1, int(size // length))
    return f"{count} {unit} ago" if seconds >= 0 else f"in {count} {unit}"


def _change(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> str:
    old, new = _shown(before, name), _shown(after, name)
    if name not in before:
        return new
    return f"{old} → {new}" if name in after else f"was {old}"


def _shown(facts: Mapping[str, Any], name: str) -> str:
    """A value as people read it: money is kept in micro-dollars, and no limit as nothing."""
    value = facts.get(name)
    if name == "budget" or (name == "limit" and facts.get("unit") == "usd"):
        return "none" if value is None else _dollars(value)
    return "none" if value is None and name == "limit" else _value(value)


def _dollars(micro: int) -> str:
    """As everywhere: 4 decimals under $1, 2 above."""
    return f"${Decimal(micro) / MICRO_PER_USD:,.{4 if abs(micro) < MICRO_PER_USD else 2}f}"


def _value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:VALUE_CHARACTERS_MAX] or "–"


def _is_here(context: Context, address: str) -> bool:
    request: Any = context.get("request")
    path = getattr(request, "path", "")
    return path == address if address == "/" else path.startswith(address)
