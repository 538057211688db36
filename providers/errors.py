"""What can go wrong between us and a provider.

ProviderError                 kind          may_be_billed
├── ConnectorNotFound         no such connector of this organization; before any IO
├── RequestRefused            refused by us before any IO
├── NotSent                   transient     no    DNS, connect, pool: no byte left
├── SpendLimited              spend_limited no    402, budget-type 429, billing errors (row 118)
├── RateLimited               rate_limited  no    429
├── Unavailable               transient     no    408, 500, 503, 529: a definite status without output
├── GatewayFailed             transient     yes   502, 504 (row 123)
├── TimedOut                  timeout       yes
├── DeadlineExceeded          timeout       no    no time is left to wait or to ask once more (row 114)
├── ConnectionLost            transient     yes   broken after the request left
├── BadAnswer                 bad_output    yes   a 200 that cannot be read
└── Rejected                  bad_request   no    other 4xx: terminal, never sent again unchanged
"""

from __future__ import annotations

from typing import ClassVar

from providers.messages import Usage


class ProviderError(Exception):
    """Root of this floor's errors. `kind` is a stable word; `usage` is set when the bill was readable all the same."""

    kind: ClassVar[str] = "transient"
    may_be_billed: bool = False  # of the class; an answer that broke off halfway sets its own

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        usage: Usage | None = None,
        request_id: str = "",
        may_be_billed: bool | None = None,
        output_began: bool = False,
    ) -> None:
        super().__init__(message or self.kind)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.usage = usage
        self.request_id = request_id
        self.output_began = output_began  # part of an answer came: never tried again by itself (row 115)
        if may_be_billed is not None:
            self.may_be_billed = may_be_billed


class ConnectorNotFound(ProviderError):
    """This organization has no enabled connector of that name (row 3)."""

    kind = "connector_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"this organization has no enabled connector named {name!r}")
        self.name = name


class RequestRefused(ProviderError):
    """The request cannot be sent over this route; nothing left. `code` is a stable word."""

    kind = "bad_request"

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class NotSent(ProviderError):
    kind = "transient"


class SpendLimited(ProviderError):
    kind = "spend_limited"


class RateLimited(ProviderError):
    kind = "rate_limited"


class Unavailable(ProviderError):
    kind = "transient"


class GatewayFailed(ProviderError):
    kind = "transient"
    may_be_billed = True


class TimedOut(ProviderError):
    kind = "timeout"
    may_be_billed = True


class DeadlineExceeded(ProviderError):
    """Tries before it ended on their own: each has its own charge. Its cause is the last of them."""

    kind = "timeout"


class ConnectionLost(ProviderError):
    kind = "transient"
    may_be_billed = True


class BadAnswer(ProviderError):
    kind = "bad_output"
    may_be_billed = True


class Rejected(ProviderError):
    kind = "bad_request"
