"""What an account says its models cost, in cents per 1,000 tokens (row 138). It wins over every price list.

For models that no list knows: a server of one's own, a price that was agreed. A rate that is missing is unknown,
never 0, and no list stands in for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from providers.catalog import Band, PriceCard, Rates
from providers.errors import RequestRefused

PRICED_MODELS_MAX = 100
RATE_CENTS_MAX = 9_999
# A cent for 1,000 tokens is ten micro-dollars for each.
_MICRO_PER_TOKEN = Decimal(10)
_CENTS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,12})?")
_NAMES = ("input", "output", "cache_read", "cache_write")
SOURCE = "the connector's own"


def read_prices(given: object) -> dict[str, PriceCard]:
    """`{"qwen": {"input": "0.02", "output": "0.06"}}`. Raises `RequestRefused` with the code `config`."""
    if not isinstance(given, dict) or len(given) > PRICED_MODELS_MAX:
        raise _refused(f"config.prices prices up to {PRICED_MODELS_MAX} models")
    return {str(model): _card(str(model), said) for model, said in given.items()}


def _card(model: str, said: object) -> PriceCard:
    if not isinstance(said, Mapping) or not said or not said.keys() <= set(_NAMES):
        raise _refused(f"config.prices.{model}: {', '.join(_NAMES)}, in cents per 1,000 tokens")
    rate = {name: _rate(said[name], f"config.prices.{model}.{name}") for name in _NAMES if name in said}
    read, written = rate.get("cache_read", rate.get("input")), rate.get("cache_write")
    # Nobody asks more for a token from the cache than for a fresh one; for one that is written there, many do.
    rates = Rates(rate.get("input"), rate.get("output"), read, written, written)
    return PriceCard(model, SOURCE, None, (Band(0, rates),))


def _rate(said: object, place: str) -> Decimal:
    """Exact, so a text: a JSON number is not."""
    if not isinstance(said, str) or not _CENTS.fullmatch(said):
        raise _refused(
            f'{place} is a text such as "0.02", from 0 to {RATE_CENTS_MAX:,} cents per 1,000 tokens'
        )
    return Decimal(said) * _MICRO_PER_TOKEN


def _refused(problem: str) -> RequestRefused:
    return RequestRefused("config", problem)
