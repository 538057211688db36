"""The door of incoming hooks. No token and no session: a signature over the body says who it is."""

from __future__ import annotations

from uuid import UUID

from django.urls import path
from django.utils import timezone
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tasks.incoming import receive
from tenants.errors import InvalidInput
from tenants.idempotency import REPLAYED_HEADER
from tenants.origin import current_origin
from webhooks.errors import TooMany
from webhooks.incoming import BODY_BYTES_MAX, Message, verify


class IncomingHookDoor(APIView):
    """201 for a new Change, 200 for everything else that was taken; a repetition gets the first answer again."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = ()  # by hook and by refused sender instead, in `webhooks.incoming`
    schema = None

    def post(self, request: Request, hook_id: UUID) -> Response:
        now = timezone.now()
        try:
            reply = receive(verify(hook_id, _message(request), now=now), now=now)
        except TooMany as slower:
            raise Throttled(slower.wait_seconds) from None
        headers = {REPLAYED_HEADER: "true"} if reply.replayed else {}
        return Response(reply.answer, status=201 if reply.code == "created" else 200, headers=headers)


def _message(request: Request) -> Message:
    body = request._request.body
    if len(body) > BODY_BYTES_MAX:
        raise InvalidInput(
            "", "the body is too large", f"Send at most {BODY_BYTES_MAX:,} bytes.", code="too_long"
        )
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Message(body=body, headers=headers, remote=current_origin().remote)


urlpatterns = [path("hooks/in/<uuid:hook_id>", IncomingHookDoor.as_view(), name="incoming-hook")]
