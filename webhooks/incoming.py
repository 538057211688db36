"""What comes in at a hook: is it really from there, was it here before, and the log of it.

A sender is known by its signature alone. Unknown address, hook that is off and wrong signature are one
answer, 401: it helps an honest sender with a mistyped secret, and tells everybody else nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.cache import cache
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from providers.sealing import KeyUnreadable
from webhooks.errors import DeliveryIdReused, NotAccepted, TooMany
from webhooks.models import HookKind, IncomingDelivery, IncomingHook
from webhooks.signing import MESSAGE_ID_CHARACTERS_MAX, is_signed, is_signed_by_github

BODY_BYTES_MAX = 512 * 1024
# Of one hook, properly signed; and of one sender's address, refused.
DELIVERIES_PER_MINUTE_MAX = 120
REFUSALS_PER_MINUTE_MAX = 30
# The log of one hook takes no more unsigned ones than this: whoever floods an address fills no table.
UNSIGNED_LOGGED_PER_HOUR_MAX = 100
KEPT_DAYS = 30
FORGOTTEN_AT_ONCE_MAX = 5_000
DETAIL_CHARACTERS_MAX = 500
_MINUTE, _HOUR = 60, 3_600
# What an unknown address is checked against, so that it takes as long as a known one.
_NOBODYS_SECRET = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="  # noqa: S105  # opens nothing


@dataclass(frozen=True, slots=True)
class Message:
    """One POST at a hook's address, before anything of it is believed. Header names in small letters."""

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    remote: str

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Verified:
    """A message that surely comes from the hook's sender."""

    hook: IncomingHook
    message: Message
    delivery_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done with it: `code` created, ignored or pong, and the answer, which a repetition gets again."""

    code: str
    answer: Mapping[str, Any]
    change_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    code: str
    answer: Mapping[str, Any]
    replayed: bool = False


def verify(hook_id: UUID, message: Message, *, now: datetime) -> Verified:
    """Raises NotAccepted, the same for every reason, and TooMany; what belongs to a hook stands in its log."""
    _check_refusals(message.remote, now)
    hook: IncomingHook | None = (
        IncomingHook.objects.select_related("project__organization", "author").filter(pk=hook_id).first()
    )
    kind = HookKind(hook.kind) if hook else _claimed_kind(message)
    delivery_id = _delivery_id(kind, message)
    try:
        keys = hook.secrets(now=now) if hook else [_NOBODYS_SECRET]
    except KeyUnreadable:
        keys, hook = [_NOBODYS_SECRET], None
    signed = _is_signed(kind, keys, delivery_id, message, now)
    if hook is None or not signed or not hook.enabled:
        _count("refused", message.remote or "nowhere", _MINUTE, now)
        if hook is not None and _count("unsigned", str(hook.pk), _HOUR, now) <= UNSIGNED_LOGGED_PER_HOUR_MAX:
            code = "switched_off" if signed else "signature_invalid"
            note_refused(hook, message, delivery_id="", code=code, now=now)
        raise NotAccepted
    if _count("taken", str(hook.pk), _MINUTE, now) > DELIVERIES_PER_MINUTE_MAX:
        raise TooMany(_MINUTE)
    return Verified(hook, message, delivery_id)


def take_once(verified: Verified, act: Callable[[], Outcome], *, now: datetime) -> Reply:
    """Do it, unless this delivery was accepted before: then answer the same. Two at once: one does it.

    `act` runs in the transaction that keeps its answer. What it raises undoes both, and the sender may try again
    under the same id. Raises DeliveryIdReused for another body under an id that was accepted.
    """
    known = _accepted(verified)
    if known is not None:
        return _again(known, verified)
    try:
        with transaction.atomic():
            row = IncomingDelivery.objects.create(
                hook=verified.hook,
                delivery_id=verified.delivery_id,
                once_key=_once_key(verified),
                fingerprint=verified.message.fingerprint,
                accepted=True,
                code="",
                remote=verified.message.remote,
                received_at=now,
            )
            outcome = act()
            IncomingDelivery.objects.filter(pk=row.pk).update(
                code=outcome.code, answer=dict(outcome.answer), change_id=outcome.change_id
            )
            IncomingHook.objects.filter(pk=verified.hook.pk).update(used_at=now)
    except IntegrityError:
        known = _accepted(verified)
        if known is None:
            raise  # another table's constraint: a fault of ours
        return _again(known, verified)
    return Reply(outcome.code, _ordered(outcome.answer))


def note_refused(
    hook: IncomingHook, message: Message, *, delivery_id: str, code: str, detail: str = "", now: datetime
) -> None:
    """A line in the hook's log. Outside the transaction that was undone."""
    IncomingDelivery.objects.create(
        hook=hook,
        delivery_id=delivery_id,
        fingerprint=message.fingerprint,
        accepted=False,
        code=code,
        detail=detail[:DETAIL_CHARACTERS_MAX],
        remote=message.remote,
        received_at=now,
    )


def forget_old(now: datetime) -> int:
    """Delete old lines of the logs. How many. An id may come again after that, as if it were new.

    Not so GitHub's: its messages bear no time, so a body that made a Change is remembered for ever.
    """
    count = 0
    old = IncomingDelivery.objects.filter(received_at__lt=now - timedelta(days=KEPT_DAYS)).exclude(
        accepted=True, once_key__isnull=False, change_id__isnull=False
    )
    while ids := list(old.values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE_MAX]):
        IncomingDelivery.objects.filter(pk__in=ids).delete()
        count += len(ids)
    return count


def _accepted(verified: Verified) -> IncomingDelivery | None:
    same = Q(delivery_id=verified.delivery_id)
    once = _once_key(verified)
    if once is not None:
        same |= Q(once_key=once)
    rows = IncomingDelivery.objects.filter(same, hook=verified.hook, accepted=True)
    row: IncomingDelivery | None = rows.first()
    return row


def _again(known: IncomingDelivery, verified: Verified) -> Reply:
    if known.fingerprint != verified.message.fingerprint:
        raise DeliveryIdReused
    IncomingDelivery.objects.filter(pk=known.pk).update(repeated=F("repeated") + 1)
    return Reply(known.code, _ordered(known.answer), replayed=True)


def _ordered(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The same bytes each time: a database may keep the members of an object in an order of its own."""
    ordered: dict[str, Any] = json.loads(json.dumps(answer, sort_keys=True))
    return ordered


def _once_key(verified: Verified) -> str | None:
    """GitHub signs the body but not the id: there the body itself happens once, under whatever id it is replayed."""
    return verified.message.fingerprint if verified.hook.kind == HookKind.GITHUB else None


def _delivery_id(kind: HookKind, message: Message) -> str:
    name = "webhook-id" if kind == HookKind.STANDARD else "x-github-delivery"
    return message.headers.get(name, "")


def _is_signed(kind: HookKind, keys: list[str], delivery_id: str, message: Message, now: datetime) -> bool:
    sane = (
        0 < len(delivery_id) <= MESSAGE_ID_CHARACTERS_MAX
        and delivery_id.isascii()
        and delivery_id.isprintable()
    )
    if kind == HookKind.GITHUB:
        header = message.headers.get("x-hub-signature-256", "")
        return is_signed_by_github(keys, header=header, body=message.body) and sane
    signed = is_signed(
        keys,
        message_id=delivery_id[:MESSAGE_ID_CHARACTERS_MAX],
        timestamp=message.headers.get("webhook-timestamp", ""),
        header=message.headers.get("webhook-signature", ""),
        body=message.body,
        now=now.timestamp(),
    )
    return signed and sane


def _claimed_kind(message: Message) -> HookKind:
    return HookKind.GITHUB if "x-hub-signature-256" in message.headers else HookKind.STANDARD


def _check_refusals(remote: str, now: datetime) -> None:
    """Whoever guesses is slowed down, whatever the address it guesses at."""
    if cache.get(_counter("refused", remote or "nowhere", _MINUTE, now), 0) >= REFUSALS_PER_MINUTE_MAX:
        raise TooMany(_MINUTE)


def _count(what: str, who: str, seconds: int, now: datetime) -> int:
    key = _counter(what, who, seconds, now)
    cache.add(key, 0, 2 * seconds)
    try:
        return int(cache.incr(key))
    except ValueError:  # it was dropped that moment
        return 1


def _counter(what: str, who: str, seconds: int, now: datetime) -> str:
    return f"hook-{what}:{who}:{int(now.timestamp()) // seconds}"
