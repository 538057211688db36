"""A POST that is sent twice happens once: `Idempotency-Key` keeps what the first one answered."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar, cast

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import QueryDict
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import APIView

from tenants.access import roles_of
from tenants.errors import InvalidInput, RequestInProgress, RequestKeyReused
from tenants.models import IdempotencyRecord, User

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
KEY_CHARACTERS_MAX = 200
KEPT_HOURS = 24
# What is kept of a client's request: the answer, and the roles of whoever got it.
ANSWER, ROLES = "answer", "roles"
# The hidden field in which a page's form carries its one-time key; the tag `form_key` writes it.
FORM_KEY = "form_key"
# For so long the same page, sent again, shows once more what it made: a second click, a reload.
SHOWN_AGAIN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Claimed:
    """The key is ours: do the work, then `finish` or `release`."""

    record_id: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What the first request answered."""

    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """What a form made, and the secret that its answer shows; "" where it is too late to show it again."""

    id: str
    secret: str
    again: bool  # the form had come before


def claim(user: User, key: str, fingerprint: str, *, now: datetime) -> Claimed | Replay:
    """Take the key, or the answer it already has. Raises RequestKeyReused or RequestInProgress.

    The unique constraint decides between two that come at once. An unfinished claim stays
    one for `KEPT_HOURS`: whether its work took effect is unknown, so it is not done again.
    """
    IdempotencyRecord.objects.filter(
        user=user, key=key, created_at__lt=now - timedelta(hours=KEPT_HOURS)
    ).delete()
    try:
        with transaction.atomic():
            record = IdempotencyRecord.objects.create(user=user, key=key, fingerprint=fingerprint)
    except IntegrityError:
        return _answered(user, key, fingerprint)
    return Claimed(record.pk)


def once(user: User, sent: QueryDict, *, where: str, act: Callable[[], str]) -> str:
    """What a form makes, made once: `act` returns its id, and the same form sent again gets that id again.

    `sent[FORM_KEY]` is the page's; a form that was changed before it came again is another one. The key's row is
    written in the transaction of the act: whoever comes second waits for the first, and a refusal keeps nothing.
    """
    made, _ = _once(user, sent, where=where, act=act)
    return str(made)


def once_shown(user: User, sent: QueryDict, *, where: str, act: Callable[[], tuple[str, str]]) -> Shown:
    """The same for a form whose answer shows a secret: `act` returns the id of what it made, and the secret.

    Of two clicks a browser shows the second answer, so that one must have it, too. What is kept of the secret
    for that opens only with the page's key, which is kept nowhere, and only for `SHOWN_AGAIN_SECONDS`.
    """
    box = _box_of(sent.get(FORM_KEY, ""))

    def sealed() -> list[str]:
        made, secret = act()
        return [made, box.encrypt(secret.encode()).decode()]

    (made, kept), again = _once(user, sent, where=where, act=sealed)
    return Shown(made, _opened(box, kept), again=again)


def _once(user: User, sent: QueryDict, *, where: str, act: Callable[[], Any]) -> tuple[Any, bool]:
    """What `act` returned, now or when the same form came first, and whether it had come before."""
    if not sent.get(FORM_KEY):
        return act(), False
    said = sorted((name, sent.getlist(name)) for name in sent if name != "csrfmiddlewaretoken")
    digest = hashlib.sha256(json.dumps([where, said]).encode()).hexdigest()
    with transaction.atomic():
        try:
            found = claim(user, f"page {digest}", digest, now=timezone.now())
        except RequestInProgress:  # gone between two looks: the first one was refused
            return act(), False
        if isinstance(found, Replay):
            return found.body, True
        made = act()
        finish(found, status=HTTPStatus.CREATED, body=made)
    return made, False


def _box_of(key: str) -> Fernet:
    digest = hmac.new(settings.SECRET_KEY.encode(), f"form {key}".encode(), hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(digest))


def _opened(box: Fernet, kept: str) -> str:
    try:
        return box.decrypt(kept, ttl=SHOWN_AGAIN_SECONDS).decode()
    except InvalidToken:
        return ""


def finish(claimed: Claimed, *, status: int, body: Any) -> None:
    """Keep what was answered."""
    IdempotencyRecord.objects.filter(pk=claimed.record_id).update(status=status, body=body)


def release(claimed: Claimed) -> None:
    """Give the key back: the request was refused, so nothing was done that a repetition could do twice."""
    IdempotencyRecord.objects.filter(pk=claimed.record_id, status__isnull=True).delete()


def forget_old(*, now: datetime) -> int:
    """Delete what no client may count on any more; for a daily job."""
    old = IdempotencyRecord.objects.filter(created_at__lt=now - timedelta(hours=KEPT_HOURS))
    return old.delete()[0]


def fingerprint_of(request: Request, user: User) -> str:
    """The request as far as it can cause anything: the token's organization is part of it.

    Keyed, for a body may hold a password, which nobody shall guess from what is kept.
    """
    return fingerprint_with(request, user, request._request.body)


def fingerprint_with(request: Request, user: User, body: bytes) -> str:
    """The same for a request whose body is read in another way; `body` stands for it."""
    http = request._request
    parts = (http.method or "", http.get_full_path(), str(user.token_organization_id or ""))
    digest = hmac.new(settings.SECRET_KEY.encode(), "\n".join(parts).encode(), hashlib.sha256)
    digest.update(b"\n" + body)
    return digest.hexdigest()


class _Replayed(Exception):  # no error: it carries an answer out of `initial`
    def __init__(self, replay: Replay) -> None:
        self.replay = replay


class IdempotentPosts(APIView):
    """Put before APIView: every POST with the header is done once and answered the same again.

    Successes are kept; a refusal changed nothing and is judged anew. `kept_out` names
    top-level fields that are shown once and never stored, such as a token's plain text:
    a replay has null there.
    """

    kept_out: ClassVar[Iterable[str]] = ()
    _claimed: Claimed | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        key = request.headers.get(KEY_HEADER)
        if request.method != "POST" or key is None:
            return
        assert isinstance(request.user, User), "permissions let nobody else reach a POST"
        found = claim(request.user, _sane(key), self.fingerprint(request), now=timezone.now())
        if isinstance(found, Replay):
            raise _Replayed(_still_theirs(request.user, found))
        self._claimed = found

    def fingerprint(self, request: Request) -> str:
        """What a repetition must be alike in. Of a body too large to hold, a view says it by another way."""
        return fingerprint_of(request, cast(User, request.user))

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, _Replayed):
            return Response(exc.replay.body, status=exc.replay.status, headers={REPLAYED_HEADER: "true"})
        # An error nobody foresaw may have left something behind: its claim stays, unanswered.
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            if response.status_code < 400:
                kept = {ANSWER: self._kept(response.data), ROLES: _roles(cast(User, request.user))}
                finish(claimed, status=response.status_code, body=kept)
            elif response.status_code < 500:
                release(claimed)
        final: Response = super().finalize_response(request, response, *args, **kwargs)
        return final

    def _kept(self, data: Any) -> Any:
        plain = json.loads(json.dumps(data, cls=JSONEncoder))
        if isinstance(plain, dict):
            plain |= {name: None for name in self.kept_out if name in plain}
        return plain


def _answered(user: User, key: str, fingerprint: str) -> Replay:
    record = IdempotencyRecord.objects.filter(user=user, key=key).first()
    if record is not None and record.fingerprint != fingerprint:
        raise RequestKeyReused
    if record is None or record.status is None:  # released this moment, or still at work
        raise RequestInProgress
    return Replay(record.status, record.body)


def _roles(user: User) -> dict[str, int]:
    """What a person is where the request could act, as JSON."""
    only = user.token_organization_id
    return {str(where): role for where, role in roles_of(user).items() if only in (None, where)}


def _still_theirs(user: User, found: Replay) -> Replay:
    """The answer, for who is still all that they were when they got it; else RequestKeyReused, which tells nothing.

    A view asks for roles when it acts, and nothing acts here: whoever left an organization would read on (C83).
    """
    if not (isinstance(found.body, dict) and found.body.keys() == {ANSWER, ROLES}):
        return found  # kept by an older process during an upgrade
    now = _roles(user)
    if any(now.get(where, 0) < role for where, role in found.body[ROLES].items()):
        raise RequestKeyReused
    return Replay(found.status, found.body[ANSWER])


def _sane(key: str) -> str:
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX or not key.isascii() or not key.isprintable():
        raise InvalidInput(
            KEY_HEADER, "cannot be used", f"Send 1 to {KEY_CHARACTERS_MAX} printable ASCII characters."
        )
    return key
