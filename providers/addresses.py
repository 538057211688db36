"""What a name resolves to, as far as this deployment may reach it: looked up once, so that no name changes later."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from providers.account import why_unreachable
from providers.deadlines import CONNECT_SECONDS
from providers.lookup import look_up


@dataclass(frozen=True, slots=True)
class Addresses:
    """IP addresses in the resolver's order. When there are none, `problem` says why, for people."""

    allowed: tuple[str, ...]
    problem: str = ""
    forbidden: bool = False  # there are addresses, and the deployment's rule allows none of them


def addresses_of(host: str, port: int, *, scheme: str, private_addresses: bool) -> Addresses:
    """The addresses of a host that may be asked. A private or link-local one behind a public name is left out."""
    try:
        found = look_up(host, port, seconds_max=CONNECT_SECONDS)
    except (OSError, UnicodeError) as error:
        return Addresses((), f"{host} has no address: {error}")
    allowed, problem = [], f"{host} has no address"
    for literal in dict.fromkeys(address.split("%")[0] for address in found):
        why = why_unreachable(
            ipaddress.ip_address(literal), scheme=scheme, private_addresses=private_addresses
        )
        problem = why or problem
        if not why:
            allowed.append(literal)
    return Addresses(tuple(allowed), "" if allowed else problem, forbidden=not allowed)
