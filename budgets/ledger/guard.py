"""What the books demand of their callers."""

from __future__ import annotations

from django.db import connection


def outside_transactions() -> None:
    """A hold inside a transaction could be rolled back after the call has left, and would lock its rows for as long.

    Raises RuntimeError. As with Django's own durable blocks, the one that wraps a test does not count.
    """
    if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        raise RuntimeError("the ledger commits by itself: do not call it inside a transaction")
