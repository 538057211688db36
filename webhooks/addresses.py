"""The address of an endpoint, checked before it is stored; what it resolves to is checked again at each connect."""

from __future__ import annotations

from providers.account import check_base_url
from providers.errors import RequestRefused
from tenants.errors import InvalidInput

URL_CHARACTERS_MAX = 500


def checked_url(value: str, *, private_addresses: bool) -> str:
    """The address, trimmed. Raises InvalidInput for what no event may be sent to.

    https, or http within this machine's networks where the deployment allows those: the rule of connectors.
    Other than a connector's, it may carry a query.
    """
    url = value.strip()
    if not url:
        raise InvalidInput("url", "is empty", "Give an address that begins with https://.", code="required")
    if len(url) > URL_CHARACTERS_MAX or any(not 0x20 < ord(character) < 0x7F for character in url):
        raise InvalidInput(
            "url",
            "is no address that can be called",
            f"Use up to {URL_CHARACTERS_MAX} printable ASCII characters.",
        )
    if "#" in url:
        raise InvalidInput("url", "ends with a fragment, which no server sees", "Leave out the # part.")
    if url.startswith("http://") and not private_addresses:
        raise InvalidInput("url", "would be sent in the clear", "Use https://.")
    try:
        check_base_url(url.partition("?")[0], private_addresses=private_addresses)
    except RequestRefused as refused:
        raise InvalidInput("url", str(refused), "Give an https address that may be called.") from None
    return url
