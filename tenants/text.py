"""What people and clients type, checked before it reaches a row: pure."""

from __future__ import annotations

import re
import unicodedata

from tenants.errors import InvalidInput

NAME_CHARACTERS_MAX = 200
TOKEN_NAME_CHARACTERS_MAX = 100
DESCRIPTION_CHARACTERS_MAX = 10_000
REASON_CHARACTERS_MAX = 2_000
SLUG_CHARACTERS_MAX = 63
EMAIL_CHARACTERS_MAX = 254

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_EMAIL = re.compile(r"[^@\s\"(),:;<>\[\\\]]+@[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
# Invisible or direction-changing characters let one name look like another.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# What changes the order of others or is drawn as nothing, whatever its category says: fillers of Hangul are letters,
# the blank of Braille a sign, selectors are marks, and tags spell words that a model reads and no person sees
# (faults C41, C89). The two selectors that people type, behind emoji, are not here.
UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"[{UNSEEN}]")
# Alone they show nothing, either.
_SELECTORS = "\ufe0e\ufe0f"


def one_line(field: str, value: object, *, characters_max: int, required: bool = True) -> str:
    """A single visible line, trimmed. Raises InvalidInput."""
    text = _text(field, value, characters_max)
    if _UNSEEN.search(text) or any(unicodedata.category(character) in _HIDDEN for character in text):
        raise InvalidInput(
            field, "has a control or invisible character", "Use plain visible text on one line."
        )
    text = text.strip()
    if required and not _is_seen(text):
        raise InvalidInput(field, "is empty", "Give at least one visible character.", code="required")
    return text


def free_text(field: str, value: object, *, characters_max: int, required: bool = False) -> str:
    """Text of several lines, trimmed at both ends. Raises InvalidInput."""
    text = _text(field, value, characters_max).replace("\r\n", "\n").strip()
    if any(c not in "\n\t" and unicodedata.category(c) in {"Cc", "Cs"} for c in text):
        raise InvalidInput(field, "has a control character", "Use plain text with line breaks only.")
    if required and not _is_seen(text):
        raise InvalidInput(field, "is empty", "Say something here.", code="required")
    return text


def slug(field: str, value: object) -> str:
    """A name for addresses, as typed: it is never bent into shape."""
    text = _text(field, value, SLUG_CHARACTERS_MAX)
    if not _SLUG.fullmatch(text):
        raise InvalidInput(
            field,
            "is no valid short name",
            f"Use 1 to {SLUG_CHARACTERS_MAX} of a-z, 0-9 and -, with no - at the ends.",
        )
    return text


def email(field: str, value: object) -> str:
    """An address in small letters; one that mail software cannot misread."""
    text = one_line(field, value, characters_max=EMAIL_CHARACTERS_MAX).lower()
    if not _EMAIL.fullmatch(text) or ".." in text:
        raise InvalidInput(field, "is no email address", "Write one address such as ana@example.org.")
    return text


def _is_seen(text: str) -> bool:
    """Whether any character of it is drawn."""
    left = (c for c in _UNSEEN.sub("", text) if c not in _SELECTORS)
    return any(not c.isspace() and unicodedata.category(c) not in _HIDDEN for c in left)


def _text(field: str, value: object, characters_max: int) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, "is not text", "Send a JSON string.")
    if len(value) > characters_max:
        raise InvalidInput(
            field,
            f"is too long ({len(value):,} characters)",
            f"Use at most {characters_max:,} characters.",
            code="too_long",
        )
    return value
