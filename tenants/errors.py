"""What can be wrong at a tenant's door.

TenantError
├── NotVisible      the row is another tenant's, or is not there: both look the same (404)
├── RoleTooLow      visible, but the role does not reach (403)
├── InvalidInput    a field that cannot be accepted, with the remedy (400)
├── RequestKeyReused   an idempotency key came with another request than the first time (409)
├── RequestInProgress  an idempotency key whose first request has not answered (409)
└── FactorUnreadable   a second factor that none of the deployment's sealing keys opens (409)
"""

from __future__ import annotations

# Requests that cause anything answer within this; sooner than that a repetition is answered the same.
RETRY_AFTER_SECONDS = 2


class TenantError(Exception):
    """Root of this floor's errors."""


class NotVisible(TenantError):
    """A row that this user may not see, or that does not exist. Tells nothing else."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"no such {what}")
        self.what = what
        self.remedy = remedy  # only where it helps whoever guesses as little as whoever knows


class RoleTooLow(TenantError):
    """The user sees the row but may not do this with it."""

    def __init__(self, needed: str) -> None:
        super().__init__(f"this needs the role {needed} or higher")
        self.needed = needed


class InvalidInput(TenantError):
    """A value that a person or client sent and that cannot be accepted. Nothing was changed.

    `field` is the name the sender used (dotted for nested ones, "" for the whole
    body), `problem` says what is wrong, `remedy` what would be right, and `code` is
    stable for clients.
    """

    def __init__(self, field: str, problem: str, remedy: str, *, code: str = "invalid") -> None:
        super().__init__(f"{field}: {problem}. {remedy}" if field else f"{problem}. {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy
        self.code = code


class RequestKeyReused(TenantError):
    """The key belongs to another request. Nothing was done."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another request; use a new one")


class RequestInProgress(TenantError):
    """The first request with the key has not answered. Nothing was done this time."""

    code = "idempotency_in_progress"
    wait = RETRY_AFTER_SECONDS

    def __init__(self) -> None:
        super().__init__(
            "the first request with this Idempotency-Key has not answered yet; if it never does, "
            "look whether it took effect before you use a new key"
        )


class FactorUnreadable(TenantError):
    """A stored second factor cannot be opened: its sealing key was rotated away too early. Nobody is let in by it."""

    code = "second_factor_unreadable"
    remedy = "Ask the operator to put the earlier sealing key back, or to remove this second factor."

    def __init__(self) -> None:
        super().__init__(
            "this second factor cannot be checked here: the deployment lacks the key it is sealed with"
        )
