"""What the pages of the domain write alike: words, meters and hostile text."""

from __future__ import annotations

from django import template

from tasks.display.hostile import readable as readable_text
from tasks.display.hostile import revealed as revealed_text
from tasks.pages.stops import METER_LABELS

register = template.Library()


@register.filter
def words(name: object) -> str:
    """A fixed word of the code as people read it: `budget_blocked` is "budget blocked"."""
    return str(name).replace("_", " ").replace(".", " ")


@register.filter
def meter_label(kind: object) -> str:
    return METER_LABELS.get(str(kind), words(kind))


@register.filter
def readable(text: object) -> str:
    """Output of a program; the template escapes what is left."""
    return readable_text(str(text))


@register.filter
def revealed(text: object) -> str:
    """Text of a model, a repository or a person, with what hides or reorders written out."""
    return revealed_text(str(text))


@register.filter
def pixels(thousandths: int, size: int) -> int:
    """A position in thousandths on a picture of that size."""
    return thousandths * size // 1_000
