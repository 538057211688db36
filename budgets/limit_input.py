"""What somebody typed as a limit, and what must be true of it before anything is written."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.core.exceptions import ValidationError

from budgets.decisions import CALLS_LIMIT_MAX, TOKENS_MAX, Unit, unit_of
from budgets.keys import PLATFORM_SUBJECT, MeterKind
from budgets.money import AMOUNT_MICRO_MAX, AMOUNT_USD_MAX, NotAnAmount, Usd, parse_usd
from tenants.errors import InvalidInput, NotVisible
from tenants.models import Membership, Project

REASON_CHARACTERS_MAX = 2_000
KEY_CHARACTERS_MAX = 200
EXPIRY_DAYS_MAX = 366

Limit = Usd | int | None
_MAX_OF = {Unit.USD: AMOUNT_MICRO_MAX, Unit.TOKENS: TOKENS_MAX, Unit.CALLS: CALLS_LIMIT_MAX}


def read_limit(kind: MeterKind, raw: object, *, field: str = "limit", currency: str = "USD") -> Limit:
    """What a person or client sent as a limit: an amount, a whole number of calls, or None for unlimited.

    Raises `InvalidInput`: negative, NaN, an exponent, a comma, too large, another currency. An empty text is
    none of them: a field that was left out must never take a limit away.
    """
    if currency != "USD":
        raise InvalidInput(
            field, f"{currency!r} is not a known currency", "Give US dollars.", code="unknown_currency"
        )
    if raw is None:
        return None
    if unit_of(kind) is Unit.USD:
        try:
            return parse_usd(raw)
        except NotAnAmount as error:
            raise InvalidInput(
                field, str(error), 'Give US dollars such as "12.50".', code="bad_amount"
            ) from None
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= CALLS_LIMIT_MAX):
        problem = "a number of calls is whole and not negative"
        raise InvalidInput(field, problem, f"Give 0 to {CALLS_LIMIT_MAX:,}, such as 1000.", code="bad_amount")
    return int(text)


def is_raise(before: Limit, after: Limit) -> bool:
    """Whether `after` allows more than `before` (row 199)."""
    old, new = plain(before), plain(after)
    return old is not None and (new is None or new > old)


def checked_limit(kind: MeterKind, unit: Unit, to: Limit) -> int | None:
    """The limit as a plain number; raises `InvalidInput` for another unit, a negative or an absurd one."""
    if to is None:
        return None
    right_type = type(to) is (Usd if unit is Unit.USD else int)
    value = plain(to)
    if not right_type or value is None or not 0 <= value <= _MAX_OF[unit]:
        most = f"${AMOUNT_USD_MAX:,}" if unit is Unit.USD else f"{_MAX_OF[unit]:,} {unit}"
        raise InvalidInput(
            "limit",
            f"{to} is no limit of a {kind} meter",
            f"Give 0 to {most}, or none at all.",
            code="bad_amount",
        )
    return value


def check_words(reason: str, key: str, *, reason_needed: bool) -> None:
    if reason_needed and not reason.strip():
        raise InvalidInput(
            "reason", "a reason is needed here", "Say why the limit changes.", code="reason_needed"
        )
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput(
            "reason", "the reason is too long", f"Use at most {REASON_CHARACTERS_MAX} characters."
        )
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidInput("key", "a key is needed", f"Send a text of 1 to {KEY_CHARACTERS_MAX} characters.")


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is None:
        return
    if expires_at.tzinfo is None or not now < expires_at <= now + timedelta(days=EXPIRY_DAYS_MAX):
        raise InvalidInput(
            "expires_at",
            "this is no moment in the coming year",
            f"Give a time with its zone, at most {EXPIRY_DAYS_MAX} days from now.",
        )


def check_subject(kind: MeterKind, organization_id: UUID | None, subject: str) -> None:
    """What can be checked here belongs to the organization; a Change is checked by the domain above."""
    if kind is MeterKind.PLATFORM:
        assert organization_id is None, "the platform's limit belongs to no organization"
        assert subject == PLATFORM_SUBJECT, f"the platform's subject is {PLATFORM_SUBJECT!r}"
        return
    assert organization_id is not None, f"a {kind} limit belongs to an organization"
    own = str(organization_id)
    if kind in (MeterKind.PROJECT, MeterKind.USER):
        of_organization = (Project if kind is MeterKind.PROJECT else Membership).objects.of_organization(
            organization_id
        )
        lookup = {"pk": subject} if kind is MeterKind.PROJECT else {"user_id": subject}
        try:
            visible = of_organization.filter(**lookup).exists()
        except ValidationError:  # not even an id
            visible = False
        if not visible:
            raise NotVisible(str(kind))
    elif kind not in (MeterKind.CHANGE, MeterKind.PROVIDER) and subject != own:
        raise NotVisible(str(kind))


def project_wants_reason(kind: MeterKind, organization_id: UUID | None, subject: str) -> bool:
    if kind is not MeterKind.PROJECT or organization_id is None:
        return False
    try:
        wanted = Project.objects.of_organization(organization_id).filter(pk=subject, raise_needs_reason=True)
        return bool(wanted.exists())
    except ValidationError:
        return False


def plain(value: Limit) -> int | None:
    """Micro-dollars, tokens or calls; None is unlimited."""
    return value.micro if isinstance(value, Usd) else value
