"""What a wire needs to know of an account; checked before any IO. Its key is in no repr."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from providers.catalog import CAPABILITIES, ModelProfile, PriceCard, profile_of
from providers.deadlines import RECEIVE_SECONDS, RECEIVE_SECONDS_MAX
from providers.errors import RequestRefused
from providers.messages import Thinking, ThinkingMode
from providers.own_prices import read_prices
from providers.profiles import EFFORTS, MODEL_NAME, check_defaults, check_routing

KEY_CHARACTERS_MAX = 4_000
URL_CHARACTERS_MAX = 500
HEADERS_MAX = 20
HEADER_CHARACTERS_MAX = 1_000
MODELS_MAX = 100
# Where clouds hand out credentials, beside the link-local ones.
_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_HEADER_NAME = re.compile(r"[a-z0-9-]{1,60}")
# Headers that the wire sets itself, or that change where or how often a request goes.
_HEADERS_TAKEN = frozenset(
    {
        "authorization",
        "x-api-key",
        "x-goog-api-key",
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "cookie",
        "proxy-authorization",
        "expect",
        "te",
        "trailer",
        "upgrade",
        "x-remit-labels",
    }
)
_CONFIG_KEYS = frozenset(
    {
        "scenarios",
        "inline",
        "stream",
        "receive_seconds",
        "models",
        "prices",
        "profiles",
        "routing",
        "reasoning",
        "app_title",
        "app_referer",
        "defaults",
        "output_cap_field",
        "embeddings_model",
        "send_labels",
        "foreign_history",
    }
)


@dataclass(frozen=True, slots=True)
class NamedModel:
    """What this account calls a model of ours, and with which thinking it is asked."""

    model: str
    thinking: Thinking | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A connector's config, read once and closed: an unknown key is refused."""

    stream: bool | None = None  # None: wherever the model's profile streams
    receive_seconds: float = RECEIVE_SECONDS
    models: Mapping[str, NamedModel] = field(default_factory=dict)
    profiles: Mapping[str, ModelProfile] = field(default_factory=dict)
    prices: Mapping[str, PriceCard] = field(default_factory=dict)  # under the account's own names
    routing: Mapping[str, Any] | None = None
    reasoning: str = ""  # "none": sends reasoning effort none (row 93)
    app_title: str = ""
    app_referer: str = ""
    output_cap_field: str = ""
    embeddings_model: str = ""
    foreign_history: str = "portable"  # or "reject": another route's turns are not taken
    send_labels: bool = False  # to the fake provider on this machine, so that it can play scenarios

    def price_for(self, model: str) -> PriceCard | None:
        """The account's own price of a model of ours, under the name that it has there; None: it states none."""
        named = self.models.get(model)
        return self.prices.get(model if named is None else named.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account at a provider: where, with which key, under which options."""

    name: str
    base_url: str
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Options = Options()
    private_addresses: bool = True

    def profile(self, model: str) -> ModelProfile:
        """The explicit profile of this account, or the catalogue's."""
        return self.options.profiles.get(model) or profile_of(model)


def check_account(*, base_url: str, key: str, headers: Mapping[str, object], private_addresses: bool) -> None:
    """Refuse what must not be stored or sent: raises `RequestRefused` whose code names the field."""
    check_base_url(base_url, private_addresses=private_addresses)
    check_key(key)
    check_headers(headers)


def check_base_url(url: str, *, private_addresses: bool) -> None:
    """An https address; http and private networks only where the deployment allows them. Empty: the vendor's own."""
    if not url:
        return
    if len(url) > URL_CHARACTERS_MAX or any(not 0x20 < ord(character) < 0x7F for character in url):
        raise RequestRefused(
            "base_url", f"an address has up to {URL_CHARACTERS_MAX} printable ASCII characters"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise RequestRefused("base_url", "not a web address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise RequestRefused("base_url", "an address begins with https://")
    if "@" in parts.netloc:
        raise RequestRefused(
            "base_url", "an address carries no name and no password; the key has its own field"
        )
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise RequestRefused("base_url", "an address ends with its path: no ? and no #")
    if parts.scheme == "http" and not private_addresses:
        raise RequestRefused("base_url", "http sends the key in the clear: use https")
    address = _literal(host)
    if address is not None:
        problem = why_unreachable(address, scheme=parts.scheme, private_addresses=private_addresses)
        if problem:
            raise RequestRefused("base_url", problem)


def why_unreachable(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, *, scheme: str, private_addresses: bool
) -> str:
    """Why no request may go to this address; "" when it may. Asked again for what a name resolves to."""
    if isinstance(address, ipaddress.IPv6Address):
        address = _carried(address) or address
    if not address.is_loopback and (
        address.is_link_local or address.is_multicast or address.is_unspecified or address.is_reserved
    ):
        return f"{address} is no address of a provider"  # link-local holds the cloud's own credentials
    if address in _METADATA or (isinstance(address, ipaddress.IPv6Address) and address.is_site_local):
        return f"{address} is no address of a provider"
    if not address.is_global and not private_addresses:
        return f"{address} is a private address, which this deployment does not allow"
    if scheme == "http" and address.is_global:
        return "http sends the key in the clear over the internet: use https"
    return ""


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a packet to this one ends at: mapped, translated (NAT64) or tunnelled (6to4)."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def is_loopback(url: str) -> bool:
    """Does this address name this very machine?"""
    address = _literal(urlsplit(url).hostname or "")
    return address is not None and address.is_loopback


def check_key(key: str) -> None:
    """A key is one line of printable ASCII, as a header takes it. Its text is never repeated."""
    if len(key) > KEY_CHARACTERS_MAX or any(not 0x20 < ord(character) < 0x7F for character in key):
        raise RequestRefused("key", "a key is one line of printable characters without spaces or line breaks")


def check_headers(headers: Mapping[str, object]) -> None:
    if len(headers) > HEADERS_MAX:
        raise RequestRefused("headers", f"at most {HEADERS_MAX} extra headers")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name.lower()):
            raise RequestRefused("headers", f"{str(name)[:60]!r} is no header name")
        if name.lower() in _HEADERS_TAKEN:
            raise RequestRefused("headers", f"{name.lower()} is set by the wire itself")
        if not isinstance(value, str) or len(value) > HEADER_CHARACTERS_MAX:
            raise RequestRefused(
                "headers", f"{name}: give a text of at most {HEADER_CHARACTERS_MAX} characters"
            )
        if any(not 0x20 <= ord(character) < 0x7F for character in value):
            raise RequestRefused("headers", f"{name}: one line of printable ASCII")
        if value != value.strip():  # no line of a request may hold it, so no call would ever leave
            raise RequestRefused("headers", f"{name}: no space before or after the value")


def read_options(config: Mapping[str, Any]) -> Options:
    """A connector's config as options; raises `RequestRefused` with the code `config` or `unsupported_options`."""
    for key in config:
        if key not in _CONFIG_KEYS:
            raise RequestRefused("config", f"config.{key} is none of {', '.join(sorted(_CONFIG_KEYS))}")
    check_defaults(config.get("defaults"))
    routing = config.get("routing")
    if routing is not None:
        if not isinstance(routing, dict):
            raise RequestRefused("unsupported_options", "routing is a mapping")
        check_routing(routing)
    stream = config.get("stream")
    if stream is not None and not isinstance(stream, bool):  # 1 is equal to true, and is not it
        raise RequestRefused("config", "config.stream is true or false")
    receive = config.get("receive_seconds", RECEIVE_SECONDS)
    if (
        isinstance(receive, bool)
        or not isinstance(receive, int | float)
        or not 0 < receive <= RECEIVE_SECONDS_MAX
    ):
        raise RequestRefused(
            "config", f"config.receive_seconds lies above 0 and up to {RECEIVE_SECONDS_MAX:g}"
        )
    if not isinstance(config.get("send_labels", False), bool):
        raise RequestRefused("config", "config.send_labels is true or false")
    return Options(
        stream=stream,
        receive_seconds=float(receive),
        models=read_models(config.get("models", {})),
        profiles=_profiles(config.get("profiles", {})),
        prices=read_prices(config.get("prices", {})),
        routing=routing,
        reasoning=_word(config, "reasoning", allowed=("", "none")),
        app_title=_word(config, "app_title"),
        app_referer=_word(config, "app_referer"),
        output_cap_field=_word(
            config, "output_cap_field", allowed=("", "max_tokens", "max_completion_tokens")
        ),
        embeddings_model=_word(config, "embeddings_model"),
        foreign_history=_word(config, "foreign_history", allowed=("", "portable", "reject")) or "portable",
        send_labels=config.get("send_labels", False),
    )


def read_models(given: object, *, place: str = "config.models") -> dict[str, NamedModel]:
    """`{"claude-haiku-5-5": "gpt-4o-mini"}`, or with `{"model": ..., "thinking": "off", "effort": "low"}`."""
    if not isinstance(given, dict) or len(given) > MODELS_MAX:
        raise RequestRefused("config", f"{place} maps up to {MODELS_MAX} model ids")
    named = {}
    for ours, theirs in given.items():
        said = {"model": theirs} if isinstance(theirs, str) else theirs
        if not isinstance(said, dict) or not said.keys() <= {"model", "thinking", "effort"}:
            raise RequestRefused("config", f"{place}.{ours}: a model id, or model, thinking and effort")
        name, mode, effort = said.get("model", ""), said.get("thinking"), said.get("effort", "")
        if not isinstance(name, str) or not MODEL_NAME.fullmatch(name):
            raise RequestRefused("config", f"{place}.{ours}: not a model id")
        if mode not in (None, "off", "adaptive") or effort not in ("", *EFFORTS):
            raise RequestRefused("config", f"{place}.{ours}: thinking is off or adaptive, effort low to high")
        named[ours] = NamedModel(name, None if mode is None else Thinking(ThinkingMode(mode), effort))
    return named


def _profiles(given: object) -> dict[str, ModelProfile]:
    """An explicit model map (row 86): what models of this account can do, which the account's owner answers for."""
    if not isinstance(given, dict) or len(given) > MODELS_MAX:
        raise RequestRefused("config", f"config.profiles describes up to {MODELS_MAX} models")
    profiles = {}
    for name, said in given.items():
        if not isinstance(said, dict) or not said.keys() <= {
            "can",
            "efforts",
            "input_tokens",
            "output_tokens",
        }:
            raise RequestRefused(
                "config", f"config.profiles.{name}: can, efforts, input_tokens, output_tokens"
            )
        can, efforts = said.get("can", []), said.get("efforts", [])
        if not isinstance(can, list) or not all(isinstance(one, str) and one in CAPABILITIES for one in can):
            raise RequestRefused(
                "config", f"config.profiles.{name}.can lists {', '.join(sorted(CAPABILITIES))}"
            )
        if not isinstance(efforts, list) or not all(isinstance(one, str) for one in efforts):
            raise RequestRefused("config", f"config.profiles.{name}.efforts is a list of words")
        limits = [said.get("input_tokens"), said.get("output_tokens")]
        if any(limit is not None and (type(limit) is not int or limit < 1) for limit in limits):
            raise RequestRefused("config", f"config.profiles.{name}: capacities are whole numbers from 1")
        profiles[name] = ModelProfile(
            name,
            "own",
            verified=True,
            can=frozenset(can),
            efforts=tuple(efforts),
            input_tokens=limits[0],
            output_tokens=limits[1],
        )
    return profiles


def _word(config: Mapping[str, Any], key: str, *, allowed: tuple[str, ...] = ()) -> str:
    value = config.get(key, "")
    if not isinstance(value, str) or len(value) > 200 or any(not 0x20 <= ord(one) < 0x7F for one in value):
        raise RequestRefused("config", f"config.{key} is a short text of one line")
    if allowed and value not in allowed:
        raise RequestRefused("config", f"config.{key} is one of {', '.join(filter(None, allowed))}")
    return value


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.ip_address("127.0.0.1") if host == "localhost" else None
