"""What the pages of the domain write alike: words, meters and hostile text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from budgets.decisions import Unit
from budgets.models import LimitChange
from budgets.money import Usd
from tasks.display.ansi import Piece
from tasks.display.ansi import coloured as coloured_pieces
from tasks.display.diff import DiffLine, Hunk, LineKind
from tasks.display.diff import Piece as DiffPiece
from tasks.display.hostile import readable as readable_text
from tasks.display.hostile import revealed as revealed_text
from tasks.models import Event
from tasks.pages.repository import card_of
from tasks.pages.stops import METER_LABELS, STOP_LABELS
from tasks.pages.stories import END_WORDS, FAILURE_WORDS, Story, story
from tenants.models import Project

register = template.Library()

LINE_CHARACTERS_MAX = 160


@register.filter
def words(name: object) -> str:
    """A fixed word of the code as people read it: `budget_blocked` is "budget blocked"."""
    return str(name).replace("_", " ").replace(".", " ")


@register.filter
def meter_label(kind: object) -> str:
    return METER_LABELS.get(str(kind), words(kind))


@register.filter
def stop_label(limit: object) -> str:
    """The name of a stop as people say it: `change_budget` is "this change's budget"."""
    return STOP_LABELS.get(str(limit), words(limit))


@register.filter
def end_words(reason: object) -> str:
    """How an attempt ended, as a person would say it."""
    return END_WORDS.get(str(reason), words(reason))


@register.filter
def failure_words(failure: object) -> str:
    """Why a Task failed for good, as a person would say it."""
    return FAILURE_WORDS.get(str(failure), words(failure))


@register.filter
def figure(amount: object) -> str:
    """Money, or a count with its thousands apart."""
    return f"{amount:,}" if isinstance(amount, int) else str(amount)


@register.filter
def told(event: Event) -> Story:
    """An event as a sentence."""
    return story(event.kind, event.data)


@register.filter
def limit_before(change: LimitChange) -> str:
    return _limit(change.unit, change.before)


@register.filter
def limit_after(change: LimitChange) -> str:
    return _limit(change.unit, change.after)


@register.filter
def readable(text: object) -> str:
    """Output of a program; the template escapes what is left."""
    return readable_text(str(text))


@register.filter
def revealed(text: object) -> str:
    """Text of a model, a repository or a person, with what hides or reorders written out."""
    return revealed_text(str(text))


@register.filter
def coloured(text: object) -> tuple[Piece, ...]:
    """Output of a program with its colours as tones."""
    return coloured_pieces(str(text))


@register.filter
def of(table: Mapping[Any, Any], key: object) -> Any:
    """An entry of a table that a page got along; 0 where there is none."""
    return table.get(key, 0)


@register.filter
def count_of(things: Sequence[object], one: str) -> int:
    """How many of the things are that one."""
    return sum(each == one for each in things)


@register.filter
def is_long(text: object) -> bool:
    """Whether a text wants a block of its own."""
    return "\n" in str(text) or len(str(text)) > LINE_CHARACTERS_MAX


@register.filter
def pixels(thousandths: int, size: int) -> int:
    """A position in thousandths on a picture of that size."""
    return thousandths * size // 1_000


# How a line of a diff is told: its class, and the sign before it.
_LINE_LOOKS = {LineKind.ADDED: ("add", "+"), LineKind.REMOVED: ("del", "−")}


@register.simple_tag
def diff_rows(hunk: Hunk) -> SafeString:
    """The lines of a hunk as rows. Not by a template: of 20,000 lines that took most of a minute."""
    return mark_safe("".join(_diff_row(line) for line in hunk.lines))  # noqa: S308  # every text is escaped below


def _diff_row(line: DiffLine) -> str:
    look, sign = _LINE_LOOKS.get(line.kind, ("", " "))
    text = "".join(_diff_piece(piece) for piece in line.pieces) if line.pieces else escape(line.text)
    old, new = ("" if number is None else number for number in (line.old, line.new))
    return f'<tr class="{look}"><td class="ln">{old}</td><td class="ln">{new}</td><td>{sign}{text}</td></tr>'


def _diff_piece(piece: DiffPiece) -> str:
    return (
        f'<span class="{escape(piece.css)}">{escape(piece.text)}</span>' if piece.css else escape(piece.text)
    )


@register.inclusion_tag("tasks/_repository_card.html")
def repository_card(project: Project, is_admin: bool) -> dict[str, Any]:  # a template's argument
    """A project's repository, as its page shows it; while one is on its way, it asks for itself again."""
    return card_of(project, is_admin=is_admin)


def _limit(unit: str, value: int | None) -> str:
    if value is None:
        return "none"
    return str(Usd(value)) if unit == Unit.USD else f"{value:,} {unit}"
