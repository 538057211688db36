"""Pages that follow what happens: a poll that finds nothing new gets no body and swaps nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

NOTHING_NEW = 204  # htmx leaves the page as it is, and with it what a person is reading
SEEN = "seen"


def mark_of(*facts: object) -> str:
    """A short mark of what a page shows; another mark means that there is something to see."""
    return hashlib.sha256("\x1f".join(str(fact) for fact in facts).encode()).hexdigest()[:16]


def polls(request: HttpRequest) -> bool:
    """Whether this asks for what is new since a mark."""
    return request.headers.get("HX-Request") == "true" and SEEN in request.GET


def has_seen(request: HttpRequest, mark: str) -> bool:
    """Whether this is a poll of a page that shows this mark already."""
    return request.headers.get("HX-Request") == "true" and request.GET.get(SEEN) == mark


def nothing_new() -> HttpResponse:
    return HttpResponse(status=NOTHING_NEW)


def show(request: HttpRequest, template: str, context: Mapping[str, Any], *, mark: str) -> HttpResponse:
    """The page, with its mark as `mark`; to a poll that has seen this mark already, nothing."""
    if has_seen(request, mark):
        return nothing_new()
    return render(request, template, {**context, "mark": mark})
