"""The one table from the domain's errors to HTTP, for the API and for pages.

What is not in the table is a bug and stays a 500.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import resolve
from rest_framework import exceptions as rest
from rest_framework.response import Response
from rest_framework.views import set_rollback

from agents.continuation import Mismatch
from budgets.errors import ClosedDifferently, ConflictingReport, KeyReused
from providers.errors import ConnectorNotFound
from tasks.errors import IllegalMove, LostRace, NotStopped, StillOpen
from tenants.bodies import takes_large_body
from tenants.errors import (
    FactorUnreadable,
    InvalidInput,
    NotVisible,
    RequestInProgress,
    RequestKeyReused,
    RoleTooLow,
)
from tenants.paging import WHOLE_NUMBER_MAX
from webhooks.errors import AuthorGone, DeliveryIdReused, NotAccepted

PROBLEM_TYPE = "application/problem+json"
ERRORS_IN_ONE_ANSWER_MAX = 50
# Where programs ask, and get problem details instead of a page.
FOR_PROGRAMS = ("/api/", "/hooks/in/")
ADMIN = "/admin/"
SEARCH = "q"
# Python reads no longer number; such a filter the admin knows as a wrong one by itself.
_WHOLE = re.compile(r"\s*-?[0-9]{1,4300}\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What went wrong, in the words of RFC 9457; `code` is stable, `extra` holds further members."""

    status: int
    code: str
    detail: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def as_data(self) -> dict[str, Any]:
        return {
            "type": f"urn:remit:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.extra,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `members` are attributes of the error that the answer carries on."""

    status: int
    code: str
    members: tuple[str, ...] = ()


TABLE: dict[type[Exception], Row] = {
    NotVisible: Row(404, "not_found", ("remedy",)),
    RoleTooLow: Row(403, "role_too_low", ("needed",)),
    InvalidInput: Row(400, "invalid", ("field", "remedy")),
    KeyReused: Row(409, "idempotency_key_reused"),
    ClosedDifferently: Row(409, "closed_differently"),
    ConflictingReport: Row(409, "conflicting_report"),
    RequestKeyReused: Row(409, RequestKeyReused.code),
    RequestInProgress: Row(409, RequestInProgress.code),
    ConnectorNotFound: Row(409, "connector_not_found", ("name",)),
    IllegalMove: Row(409, "illegal_move"),
    LostRace: Row(409, "lost_race"),
    NotStopped: Row(409, "not_stopped", ("remedy",)),
    StillOpen: Row(409, "preflight_open", ("remedy",)),
    Mismatch: Row(409, Mismatch.code, ("field",)),
    NotAccepted: Row(401, NotAccepted.code),
    AuthorGone: Row(403, AuthorGone.code),
    DeliveryIdReused: Row(409, DeliveryIdReused.code),
    FactorUnreadable: Row(409, FactorUnreadable.code, ("remedy",)),
}


def problem_of(error: BaseException) -> Problem | None:
    """The answer for an error of the domain; None for a bug."""
    for kind in type(error).__mro__:
        row = TABLE.get(kind)
        if row is not None:
            # An error may carry a finer code of its own, such as `too_long`.
            code = getattr(error, "code", "") or row.code
            members = {name: getattr(error, name) for name in row.members if getattr(error, name, None)}
            detail = getattr(error, "problem", "") or str(error)
            headers = _retry_after(error)
            return Problem(status=row.status, code=code, detail=detail, extra=members, headers=headers)
    return None


def problem_response(error: Exception, context: Mapping[str, Any]) -> Response | None:  # noqa: ARG001  # DRF's hook
    """DRF's exception handler. None lets a bug rise to the 500 page and its log line."""
    problem = problem_of(error) or _rest_problem(error)
    if problem is None:
        return None
    set_rollback()
    return Response(
        problem.as_data(), status=problem.status, headers=dict(problem.headers), content_type=PROBLEM_TYPE
    )


class DomainErrorMiddleware:
    """The same table for pages, and for API views that are not DRF's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        problem = problem_of(error)
        return None if problem is None else answer(request, problem)


class BodyLimitMiddleware:
    """Refuses a body that is too large before anything parses it, also one that does not say its length."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not _takes_large_body(request) and _is_too_large(request):
            return answer(request, too_large())
        return self.get_response(request)


class PlainAddressMiddleware:
    """Refuses an address with a NUL in it: no row can hold one, and PostgreSQL takes the question for a fault."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            detail = "The address holds a NUL character."
            return answer(request, Problem(status=400, code="bad_request", detail=detail))
        return self.get_response(request)


class AdminAddressMiddleware:
    """Refuses an address of the admin whose filter no row can match: its lists take any field's, and fail on these."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        odd = _unmatched_filter(request) if request.path.startswith(ADMIN) else ""
        if odd:
            detail = f"{odd}: no row can have this value. Choose a filter beside the list."
            return answer(request, Problem(status=400, code="bad_request", detail=detail))
        return self.get_response(request)


def answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Problem details under /api/, a fragment for htmx, a page for people."""
    if request.path.startswith(FOR_PROGRAMS):
        return JsonResponse(
            problem.as_data(), status=problem.status, content_type=PROBLEM_TYPE, headers=dict(problem.headers)
        )
    fragment = request.headers.get("HX-Request") == "true"
    template = "errors/_problem.html" if fragment else "errors/problem.html"
    page = render(request, template, {"problem": problem}, status=problem.status)
    for name, value in problem.headers.items():
        page[name] = value
    return page


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        return answer(request, too_large())
    return answer(request, Problem(status=400, code="bad_request", detail="The request cannot be read."))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001  # Django's hook
    return answer(request, Problem(status=403, code="forbidden", detail="You may not do this."))


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001  # Django's hook
    detail = "The form is too old or came from elsewhere. Load the page again and send it once more."
    return answer(request, Problem(status=403, code="csrf_failed", detail=detail))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001  # Django's hook
    return answer(request, Problem(status=404, code="not_found", detail="There is nothing at this address."))


def server_error(request: HttpRequest) -> HttpResponse:
    """Must work when anything is broken: no database, no session, no user."""
    problem = Problem(status=500, code="internal_error", detail="Something broke here. It has been logged.")
    if request.path.startswith(FOR_PROGRAMS):
        return JsonResponse(problem.as_data(), status=500, content_type=PROBLEM_TYPE)
    return HttpResponse(render_to_string("errors/500.html", {"problem": problem}), status=500)


def _rest_problem(error: Exception) -> Problem | None:
    """DRF's and Django's own refusals in the same words."""
    if isinstance(error, Http404):
        return Problem(status=404, code="not_found", detail="There is nothing at this address.")
    if isinstance(error, PermissionDenied):
        return Problem(status=403, code="forbidden", detail="You may not do this.")
    if isinstance(error, RequestDataTooBig):
        return too_large()
    if isinstance(error, SuspiciousOperation):
        return Problem(status=400, code="bad_request", detail="The request cannot be read.")
    if isinstance(error, rest.ValidationError):
        return _invalid(error)
    if isinstance(error, rest.APIException):
        headers = {}
        challenge = getattr(error, "auth_header", None)
        if challenge:
            headers["WWW-Authenticate"] = str(challenge)
        headers |= _retry_after(error)
        code = str(error.get_codes()) if isinstance(error.detail, str) else error.default_code
        return Problem(status=error.status_code, code=code, detail=str(error.detail), headers=headers)
    return None


def _retry_after(error: BaseException) -> dict[str, str]:
    """Where asking again later helps, and the error says when: whole seconds, rounded up."""
    wait = getattr(error, "wait", None)
    return {"Retry-After": str(math.ceil(wait))} if wait else {}


def _invalid(error: rest.ValidationError) -> Problem:
    """The first field's complaint in front, all of them behind it."""
    complaints = list(_flat(error.get_full_details(), ""))[:ERRORS_IN_ONE_ANSWER_MAX]
    first = complaints[0] if complaints else {"field": "", "code": "invalid", "detail": "not valid"}
    name = f"{first['field']}: " if first["field"] else ""
    return Problem(
        status=400,
        code="invalid",
        detail=f"{name}{first['detail']}",
        extra={"field": first["field"], "errors": complaints},
    )


def _flat(details: Any, path: str) -> list[dict[str, str]]:
    """DRF's nested complaints as rows of field, code and detail."""
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        return [{"field": path, "code": str(details["code"]), "detail": str(details["message"])}]
    rows: list[dict[str, str]] = []
    inner = details.items() if isinstance(details, dict) else enumerate(details)
    for name, value in inner:
        # The list around a field's messages is no level of its own; an item of a list field is.
        is_message = isinstance(value, dict) and set(value) == {"message", "code"}
        here = path if is_message or name == "non_field_errors" else f"{path}.{name}".lstrip(".")
        rows.extend(_flat(value, here))
    return rows


def _unmatched_filter(request: HttpRequest) -> str:
    """The name of a filter by a number that no column holds, or by a year that no calendar has; "" for none."""
    for name in request.GET.keys() - {SEARCH}:
        for value in request.GET.getlist(name):
            numbers = [int(word) for word in value.split(",") if _WHOLE.fullmatch(word)]
            if any(abs(number) > WHOLE_NUMBER_MAX for number in numbers):
                return name
            if "__year" in name and any(not MINYEAR <= number <= MAXYEAR for number in numbers):
                return name
    return ""


def _takes_large_body(request: HttpRequest) -> bool:
    try:
        return takes_large_body(resolve(request.path_info).func)
    except Http404:
        return False


def _is_too_large(request: HttpRequest) -> bool:
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isdigit():
        return int(length) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return False
    return len(request.body) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def too_large(bytes_max: int = 0) -> Problem:
    """A body that is not taken. 0: as much as any request may have."""
    most = bytes_max or settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return Problem(
        status=413,
        code="body_too_large",
        detail=f"A request may have {most // 1024 // 1024:,} MiB here.",
        extra={"bytes_max": most},
    )
