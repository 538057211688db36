"""What the books demand of their callers."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections


def outside_transactions() -> None:
    """A hold inside a transaction could be rolled back after the call has left, and would lock its rows for as long.

    Raises RuntimeError. As with Django's own durable blocks, the one that wraps a test does not count.
    """
    blocks = connections[DEFAULT_DB_ALIAS].atomic_blocks
    if blocks and any(not getattr(block, "_from_testcase", False) for block in blocks):
        raise RuntimeError("the ledger commits by itself: do not call it inside a transaction")
