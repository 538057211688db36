"""The catalogue: what each model can do, how much it takes, and what it costs since when.

Three sources, the first that knows wins: the operator's own file, the dated file of this
repository (providers/data), genai-prices for prices alone. A name that none knows has
no capabilities and no price: `None`, never 0 (rows 84, 136).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices

DATA_FILE = Path(__file__).parent / "data" / "2026-10-01.yaml"
CAPABILITIES = frozenset(
    {
        "tools",
        "streaming",
        "native_output",
        "image",
        "pdf",
        "caching",
        "thinking_off",
        "thinking_adaptive",
        "thinking_budget",
        "forced_tool",
        "sampling",
        "candidates",
        "tools_with_reasoning",
    }
)
# A published id with the day of its snapshot is the same model: claude-haiku-5-5-20261001, gpt-4.1-2025-04-14.
_SNAPSHOT = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
_RATE_NAMES = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")


class CatalogError(ValueError):
    """A catalogue file that cannot be used; names the model and the field."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Micro-dollars per token, exact. None: nobody knows, so a request that uses it has no known cost."""

    input: Decimal | None
    output: Decimal | None
    cache_read: Decimal | None = None
    cache_write_5m: Decimal | None = None
    cache_write_1h: Decimal | None = None

    def as_data(self) -> dict[str, str | None]:
        """As stored on each call, so that no update re-prices it (row 88)."""
        values = ((name, getattr(self, name)) for name in _RATE_NAMES)
        return {name: None if value is None else str(value) for name, value in values}


@dataclass(frozen=True, slots=True)
class Band:
    """The rates of every token of a request whose prompt is longer than `prompt_above` tokens."""

    prompt_above: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class PriceCard:
    """A model's prices. `source` and `since` say whose figures they are; bands go upwards."""

    model: str
    source: str
    since: date | None
    bands: tuple[Band, ...]

    def rates_for(self, prompt_tokens: int) -> Rates:
        """The rates of one request; its prompt counts uncached, read and written tokens."""
        return next(
            band.rates
            for band in reversed(self.bands)
            if prompt_tokens > band.prompt_above or not band.prompt_above
        )

    def highest(self) -> Rates:
        """The dearest band, for worst cases."""
        return self.bands[-1].rates

    def highest_input(self) -> Decimal | None:
        """The dearest rate of the input direction: what a worst case multiplies capacity with. None: unknown."""
        rates = self.highest()
        if rates.input is None:
            return None
        known = (rates.input, rates.cache_read, rates.cache_write_5m, rates.cache_write_1h)
        return max(rate for rate in known if rate is not None)

    @property
    def bounds_a_call(self) -> bool:
        """Both directions have a rate, so a call can be held at its worst case."""
        return all(band.rates.input is not None and band.rates.output is not None for band in self.bands)


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What a model may be asked. An unverified one (row 84) can nothing and has no limits or price."""

    name: str
    vendor: str
    verified: bool
    can: frozenset[str] = frozenset()
    efforts: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _Dated:
    since: date
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    profile: ModelProfile
    prices: tuple[_Dated, ...]  # newest first
    source: str


_own: dict[str, _Entry] = {}


def profile_of(model: str) -> ModelProfile:
    """The profile of a model; an unverified one for a name that no file lists."""
    entry = _entry_of(model)
    return entry.profile if entry else ModelProfile(model, "", verified=False)


def price_card(model: str, at: date | None = None) -> PriceCard | None:
    """The prices of a model on a day (None: the newest). None: unknown, which is not free."""
    entry = _entry_of(model)
    if entry is not None:
        dated = next((one for one in entry.prices if at is None or one.since <= at), None)
        if dated is not None:
            return PriceCard(model, entry.source, dated.since, dated.bands)
    return library_card(model, at)


def library_card(model: str, at: date | None = None) -> PriceCard | None:
    """The prices in genai-prices; only for an id that it lists itself, never for one that merely looks alike."""
    for vendor in ("openrouter",) if "/" in model else ("anthropic", "openai", "google"):
        try:
            _, found = get_snapshot().find_provider_model(model, None, vendor, None)
        except LookupError:
            continue
        if found.id not in (model, _SNAPSHOT.sub("", model)):
            continue
        moment = datetime.now(UTC) if at is None else datetime.combine(at, time(), UTC)
        bands = _library_bands(vars(found.get_prices(moment)))
        return PriceCard(model, f"genai-prices {version('genai-prices')}", None, bands) if bands else None
    return None


def known_models() -> tuple[ModelProfile, ...]:
    """Every model with a profile, by vendor and name."""
    entries = {**_shipped(), **_own}.values()
    unique = {entry.profile.name: entry.profile for entry in entries}
    return tuple(sorted(unique.values(), key=lambda profile: (profile.vendor, profile.name)))


def use_own_file(path: Path) -> None:
    """Take in the operator's own models (row 86): they own its truth. Raises `CatalogError`."""
    _own.clear()
    _own.update(_read(path, source=f"own file {path.name}"))


def _entry_of(model: str) -> _Entry | None:
    for name in (model, _SNAPSHOT.sub("", model)):
        entry = _own.get(name) or _shipped().get(name)
        if entry is not None:
            return entry
    return None


@cache
def _shipped() -> dict[str, _Entry]:
    return _read(DATA_FILE, source=f"remit {DATA_FILE.stem}")


def _read(path: Path, *, source: str) -> dict[str, _Entry]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        items = document["models"]
        assert isinstance(items, list)
    except (OSError, yaml.YAMLError, TypeError, KeyError, AssertionError) as error:
        raise CatalogError(f"{path.name}: not a catalogue: {str(error)[:200]}") from None
    entries: dict[str, _Entry] = {}
    for item in items:
        entry = _read_model(item, source=source, place=path.name)
        entries |= dict.fromkeys((entry.profile.name, *item.get("names", ())), entry)
    return entries


def _read_model(item: Mapping[str, Any], *, source: str, place: str) -> _Entry:
    try:
        name = str(item["name"])
        profile = ModelProfile(
            name=name,
            vendor=str(item["vendor"]),
            verified=True,
            can=frozenset(item.get("can", ())),
            efforts=tuple(item.get("efforts", ())),
            input_tokens=_positive(item.get("input_tokens")),
            output_tokens=_positive(item.get("output_tokens")),
        )
        prices = sorted(
            (_read_dated(one) for one in item.get("prices", ())), key=lambda one: one.since, reverse=True
        )
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        named = item.get("name") if isinstance(item, dict) else item
        raise CatalogError(f"{place}: model {named!r}: {error!r}") from None
    if unknown := profile.can - CAPABILITIES:
        raise CatalogError(f"{place}: model {name!r}: can: unknown {sorted(unknown)[0]!r}")
    return _Entry(profile, tuple(prices), source)


def _read_dated(item: Mapping[str, Any]) -> _Dated:
    since = item["since"]
    if type(since) is not date:
        raise ValueError("since is a day such as 2026-10-01")
    bands = tuple(sorted((_read_band(band) for band in item["bands"]), key=lambda band: band.prompt_above))
    if not bands or bands[0].prompt_above != 0:
        raise ValueError("the first band begins at prompt_above: 0")
    return _Dated(since, bands)


def _read_band(item: Mapping[str, Any]) -> Band:
    rates = {name: _rate(item[name]) for name in _RATE_NAMES if name in item}
    if unknown := set(item) - set(_RATE_NAMES) - {"prompt_above"}:
        raise ValueError(f"unknown rate {sorted(unknown)[0]!r}")
    return Band(int(item["prompt_above"]), Rates(**rates))


def _rate(text: object) -> Decimal:
    """Dollars per million tokens, which are micro-dollars per token."""
    if not isinstance(text, str):
        raise ValueError(f'a rate is a text such as "0.10", not {text!r}')
    rate = Decimal(text)
    if not rate.is_finite() or rate < 0:
        raise ValueError(f"a rate is not negative: {text!r}")
    return rate


def _positive(count: object) -> int | None:
    if count is not None and (type(count) is not int or count < 1):
        raise ValueError(f"a capacity is a whole number from 1, not {count!r}")
    return count


def _library_bands(prices: Mapping[str, Any]) -> tuple[Band, ...]:
    starts = {0}
    for price in prices.values():
        if isinstance(price, TieredPrices):
            starts |= {tier.start for tier in price.tiers}
    bands = [_library_band(prices, start) for start in sorted(starts)]
    return tuple(band for band in bands if band is not None) if all(bands) else ()


def _library_band(prices: Mapping[str, Any], start: int) -> Band | None:
    rates = {
        "input": _library_rate(prices.get("input_mtok"), start),
        "output": _library_rate(prices.get("output_mtok"), start),
        "cache_read": _library_rate(prices.get("cache_read_mtok"), start),
        "cache_write_5m": _library_rate(prices.get("cache_write_mtok"), start),
        "cache_write_1h": _library_rate(prices.get("cache_write_1h_mtok"), start),
    }
    if rates["input"] is None or rates["output"] is None:
        return None
    return Band(start, Rates(**rates))


def _library_rate(price: object, start: int) -> Decimal | None:
    if isinstance(price, TieredPrices):
        tiers = sorted(price.tiers, key=lambda tier: tier.start)
        rates: list[Decimal] = [price.base, *(tier.price for tier in tiers if tier.start <= start)]
        return rates[-1]
    return price if isinstance(price, Decimal) else None
