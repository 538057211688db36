"""Who a bearer token is, and what its scopes let it do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission

from tenants.access import role_of
from tenants.members import TOKEN_PREFIX, digest_of
from tenants.models import ApiToken, Scope, User

if TYPE_CHECKING:
    from uuid import UUID

    from rest_framework.request import Request
    from rest_framework.views import APIView

# `last_used_at` tells a person whether a token still lives; a write for every request would cost more.
LAST_USED_MINUTES = 1
TOKEN_CHARACTERS_MAX = 200


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer rmt_...`: the token's user, who then sees the token's organization only.

    `request.auth` is the ApiToken. One answer for unknown, expired and revoked tokens, for a
    user who was switched off, and for a membership that ended: it tells a thief nothing.
    """

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        scheme, _, plain = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        now = timezone.now()
        token = _living_token(plain.strip(), now=now)
        if token is None:
            raise AuthenticationFailed("This token is not valid (any more).", code="token_invalid")
        _note_use(token, now=now)
        user: User = token.user
        user.token_organization_id = token.organization_id
        if role_of(user, token.organization_id) is None:
            raise AuthenticationFailed("This token is not valid (any more).", code="token_invalid")
        return user, token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002  # DRF's hook
        return 'Bearer realm="remit"'


class ScopeAllows(BasePermission):
    """Signed in, and a token's scopes reach. A person with a session has no scopes to look at.

    A view names what its writing methods need: `write_scope = Scope.BUDGETS_WRITE`; the usual is
    `changes:write`. Reading is part of every scope. Roles are asked afterwards, by the access functions.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            return False
        if not isinstance(request.auth, ApiToken) or request.method in SAFE_METHODS:
            return True
        needed = Scope(getattr(view, "write_scope", Scope.CHANGES_WRITE))
        if not allows(request.auth.scopes, needed):
            raise PermissionDenied(f"This token lacks the scope {needed.value}.", code="scope_missing")
        return True


def allows(scopes: list[str], needed: Scope) -> bool:
    return needed == Scope.READ or needed.value in scopes or Scope.ADMIN.value in scopes


def is_living(token_id: UUID, *, now: datetime | None = None) -> bool:
    """Whether a token that was good once still is; what stays open asks again (C83)."""
    living = _living(now or timezone.now())
    return bool(living.filter(pk=token_id).exists())


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # of drf-spectacular
    """How the schema names it."""

    target_class = "tenants.tokens.BearerToken"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:  # noqa: ARG002
        return {"type": "http", "scheme": "bearer", "description": f"An API token: {TOKEN_PREFIX}..."}


def _living_token(plain: str, *, now: datetime) -> ApiToken | None:
    if not plain.startswith(TOKEN_PREFIX) or len(plain) > TOKEN_CHARACTERS_MAX:
        return None
    found = _living(now).filter(digest=digest_of(plain))
    token: ApiToken | None = found.select_related("user", "organization").first()
    return token


def _living(now: datetime) -> QuerySet[ApiToken]:
    not_over = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    living: QuerySet[ApiToken] = ApiToken.objects.filter(not_over, revoked_at__isnull=True)
    return living


def _note_use(token: ApiToken, *, now: datetime) -> None:
    """At most one write a minute, also when many requests arrive at once."""
    stale = now - timedelta(minutes=LAST_USED_MINUTES)
    if token.last_used_at is not None and token.last_used_at > stale:
        return
    unmarked = Q(last_used_at__isnull=True) | Q(last_used_at__lte=stale)
    ApiToken.objects.filter(unmarked, pk=token.pk).update(last_used_at=now)
