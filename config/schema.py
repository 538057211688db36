"""What the schema says of every operation: refusals, rate limits, and how to ask twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from tenants.idempotency import KEY_CHARACTERS_MAX, KEY_HEADER, IdempotentPosts

PROBLEM_TYPE = "application/problem+json"
READS = ("GET", "HEAD", "OPTIONS")
# What may be answered whatever is asked; the codes are in docs/api.md.
ALWAYS = {
    "400": "What was sent cannot be used; `field` and `remedy` say where and how.",
    "401": "Nobody is signed in, or the token is not valid (any more).",
    "403": "The role or the token's scopes do not reach.",
    "404": "Not there, or another organization's: nobody can tell which.",
    "406": "Only the content types named here are answered.",
    "429": "Too many requests; `Retry-After` says when.",
}
ON_WRITES = {
    "409": "The state of now does not allow it, the idempotency key was used for something else, or its first request "
    "has not answered: then with `Retry-After`.",
    "413": "The body is too large.",
    "415": "Send JSON.",
}
# Where asking again later may help, the answer says when.
LATER = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait before asking again."}
}
UNCHANGED = {"304": {"description": "Still what the `If-None-Match` of the request names."}}
RATE_HEADERS: Mapping[str, Any] = {
    "RateLimit-Limit": {"schema": {"type": "integer"}, "description": "Requests per window."},
    "RateLimit-Remaining": {"schema": {"type": "integer"}, "description": "Left in this window."},
    "RateLimit-Reset": {"schema": {"type": "integer"}, "description": "Seconds until there is more room."},
}
PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "example": "urn:remit:problem:invalid"},
        "title": {"type": "string", "example": "Bad Request"},
        "status": {"type": "integer", "example": 400},
        "code": {"type": "string", "description": "Stable; for programs.", "example": "invalid"},
        "detail": {"type": "string", "description": "For people.", "example": "is not a list"},
        "field": {"type": "string", "description": "The name you sent, dotted when nested."},
        "remedy": {"type": "string", "description": "What would make it right."},
    },
    "additionalProperties": True,
}


class Schema(AutoSchema):
    """drf-spectacular's, with what holds for all operations."""

    def get_override_parameters(self) -> list[Any]:
        named: list[Any] = list(super().get_override_parameters())
        if self.method == "POST" and isinstance(self.view, IdempotentPosts):
            named.append(
                OpenApiParameter(
                    KEY_HEADER,
                    {"type": "string", "maxLength": KEY_CHARACTERS_MAX},
                    OpenApiParameter.HEADER,
                    description="Makes this happen once, however often it is sent: a repetition gets the first answer.",
                )
            )
        if self.method == "GET":
            named.append(
                OpenApiParameter(
                    "If-None-Match",
                    OpenApiTypes.STR,
                    OpenApiParameter.HEADER,
                    description="The ETag of the answer you have: 304 when it is still right.",
                )
            )
        return named

    def get_operation(self, *args: Any, **more: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **more)
        if operation is None:
            return None
        refusals = ALWAYS if self.method in READS else {**ALWAYS, **ON_WRITES}
        found: dict[str, Any] = operation["responses"]
        for answer in found.values():
            answer["headers"] = {**RATE_HEADERS, **answer.get("headers", {})}
        if self.method == "GET":
            found.update(UNCHANGED)
        for status, description in refusals.items():
            found.setdefault(
                status, _problem(description) | ({"headers": LATER} if status in ("409", "429") else {})
            )
        return operation


def with_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Puts the shape of a refusal beside the others; a hook of drf-spectacular."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = dict(PROBLEM)
    return result


def _problem(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
