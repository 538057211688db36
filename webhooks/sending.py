"""One request to an endpoint, over the transport of connectors: no redirect, allowed addresses, bounded in all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from functools import cache

from django.conf import settings

from providers.errors import ProviderError
from providers.transport import Transport
from webhooks.deliveries import Sending
from webhooks.lanes import SEND_SECONDS_MAX
from webhooks.schedule import Answer
from webhooks.signing import signatures

# Of an answer, what is read at most; the log shows its first part.
ANSWER_BYTES_MAX = 16_384
ANSWER_SHOWN_CHARACTERS_MAX = 1_000
USER_AGENT = "Remit-Webhooks/1"
assert ANSWER_SHOWN_CHARACTERS_MAX <= ANSWER_BYTES_MAX


def send(sending: Sending, *, now: datetime) -> Answer:
    """Sign and post it. Whatever a receiver does is an Answer; only a fault of ours is an exception."""
    if not sending.secrets:
        return Answer(None, "its secret cannot be opened: rotate it, or put the earlier sealing key back")
    stamp = int(now.timestamp())
    headers = {
        "webhook-id": sending.message_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": signatures(sending.secrets, sending.message_id, stamp, sending.body),
        "user-agent": USER_AGENT,
    }
    scheme = sending.url.partition(":")[0]
    transport = _transport(scheme, settings.PLANE.private_addresses)
    begun = time.monotonic()
    try:
        with transport.post(
            sending.url,
            headers=headers,
            content=sending.body,
            receive_seconds=SEND_SECONDS_MAX,
            seconds_max=SEND_SECONDS_MAX,
        ) as answer:
            return Answer(
                answer.status,
                _why_bad(answer.status),
                milliseconds=_since(begun),
                text=_first_part(answer.chunks),
                retry_after=answer.headers.get("retry-after", ""),
            )
    except ProviderError as error:
        return Answer(None, str(error), milliseconds=_since(begun))


def _why_bad(status: int) -> str:
    if 300 <= status < 400:
        return "redirects are not followed: name the address where it leads"
    return ""


def _first_part(chunks: Iterator[bytes]) -> str:
    """The status counts, even when the rest never comes or cannot be read."""
    seen = b""
    try:
        for chunk in chunks:
            seen += chunk
            if len(seen) >= ANSWER_BYTES_MAX:
                break
    except ProviderError:
        pass
    return seen.decode("utf-8", "replace").replace("\0", "\ufffd")[:ANSWER_SHOWN_CHARACTERS_MAX]


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1_000)


@cache
def _transport(scheme: str, private_addresses: bool) -> Transport:
    """One pool for a process; made at the first request, so after every fork."""
    return Transport(scheme=scheme, private_addresses=private_addresses)
