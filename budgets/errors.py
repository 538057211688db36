"""What can go wrong in the books. A refusal is a value (`reservations.Refused`), not an error.

LedgerError
├── KeyReused           the idempotency key of another request
├── ClosedDifferently   a second report about a reservation that says something else
├── NoSuchReservation   an id that the ledger never gave
├── PlanRefused         a call that a ModelTask cannot bound; before any admission
└── ConflictingReport   a second report about an invocation that says something else (rows 161, 162)
"""

from __future__ import annotations


class LedgerError(Exception):
    """Root of this floor's errors."""


class KeyReused(LedgerError):
    """This key holds money for another request: another amount, model or payer."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} already stands for another request")
        self.key = key


class ClosedDifferently(LedgerError):
    """The reservation is closed, and this report contradicts how."""

    def __init__(self, reservation_id: int, state: str, wanted: str) -> None:
        super().__init__(f"reservation {reservation_id} is {state}; a report as {wanted} contradicts it")
        self.reservation_id = reservation_id
        self.state = state
        self.wanted = wanted


class NoSuchReservation(LedgerError):
    def __init__(self, reservation_id: int) -> None:
        super().__init__(f"no reservation {reservation_id}")
        self.reservation_id = reservation_id


class PlanRefused(LedgerError):
    """This call cannot be bounded under its ModelTask. `code` is a stable word; nothing was dispatched."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConflictingReport(LedgerError):
    def __init__(self, key: str) -> None:
        super().__init__(f"the invocation {key!r} was reported before with other values")
        self.key = key
