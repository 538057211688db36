"""Which views take a body that is larger than others may be: said beside the view, asked before a byte is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

View = TypeVar("View", bound=Callable[..., Any])

_MARK = "takes_large_body"


def large_body(view: View) -> View:
    """Mark a view that writes a file to disk as it comes. Its address has a project, whose admins may send one."""
    setattr(view, _MARK, True)
    return view


def takes_large_body(view: Callable[..., Any]) -> bool:
    return bool(getattr(view, _MARK, False))
