"""The one money type: whole micro-dollars."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation

MICRO_PER_USD = 1_000_000
# The largest amount a person or a provider may name. It keeps every sum of a
# meter far below the 64 bits of a column.
AMOUNT_USD_MAX = 1_000_000
AMOUNT_MICRO_MAX = AMOUNT_USD_MAX * MICRO_PER_USD


@dataclass(frozen=True, order=True, slots=True)
class Usd:
    """An amount of US dollars in whole micro-dollars.

    It adds to itself and to nothing else. Differences may be negative; what a
    person types in may not (see `parse_usd`).
    """

    micro: int

    def __post_init__(self) -> None:
        if type(self.micro) is not int:
            raise TypeError(f"micro-dollars are whole numbers, not {self.micro!r}")

    @classmethod
    def dollars(cls, text: str) -> Usd:
        """`"0.26"` as an amount. Parts of a micro-dollar are rounded up, once."""
        return cls.ceiling(Decimal(text) * MICRO_PER_USD)

    @classmethod
    def ceiling(cls, micro: Decimal) -> Usd:
        """An exact decimal sum of micro-dollars, rounded up once to a whole one."""
        return cls(int(micro.to_integral_value(ROUND_CEILING)))

    def __add__(self, other: Usd) -> Usd:
        return Usd(self.micro + other.micro)

    def __sub__(self, other: Usd) -> Usd:
        return Usd(self.micro - other.micro)

    def __str__(self) -> str:
        """Dollars as people read them: 4 decimals under $1, 2 above."""
        sign, micro = ("-", -self.micro) if self.micro < 0 else ("", self.micro)
        places = 4 if micro < MICRO_PER_USD else 2
        return f"{sign}${Decimal(micro) / MICRO_PER_USD:,.{places}f}"


ZERO = Usd(0)


def exact(amount: Usd) -> str:
    """Dollars with all six decimals: what clients may calculate with."""
    sign, micro = ("-", -amount.micro) if amount.micro < 0 else ("", amount.micro)
    return f"{sign}{micro // MICRO_PER_USD}.{micro % MICRO_PER_USD:06d}"


class NotAnAmount(ValueError):
    """A text that is no amount of money; the message says what would be one."""


def parse_usd(text: object) -> Usd:
    """What a person or a client typed, as an amount.

    Accepts a plain decimal text such as `"12"`, `"12.50"` or `"0.000001"`, and a
    whole number. Raises `NotAnAmount` for anything else: negative, NaN, an
    exponent, a comma, a currency sign, a float, or more than `AMOUNT_USD_MAX`.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise NotAnAmount('give the amount in US dollars as text, such as "12.50"')
    raw = str(text).strip()
    plain = raw.removeprefix("-")
    if not plain or len(plain) > 20 or not all(c in "0123456789." for c in plain) or not plain.isascii():
        raise NotAnAmount('an amount has digits and at most one point, such as "12.50"')
    try:
        value = Decimal(raw)
    except InvalidOperation:
        raise NotAnAmount('an amount has digits and at most one point, such as "12.50"') from None
    if raw.startswith("-"):
        raise NotAnAmount("an amount cannot be negative")
    if value > AMOUNT_USD_MAX:
        raise NotAnAmount(f"an amount is at most ${AMOUNT_USD_MAX:,}")
    if value * MICRO_PER_USD != (value * MICRO_PER_USD).to_integral_value():
        raise NotAnAmount("an amount has at most 6 decimals")
    return Usd.dollars(raw)
