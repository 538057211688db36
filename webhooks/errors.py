"""What can be wrong with something that comes in at a hook.

HookError
├── NotAccepted        no such hook, switched off, or not signed as it must be: all look the same (401)
├── DeliveryIdReused   a delivery id that was accepted came again with another body (409)
├── AuthorGone         the member in whose name the hook submits may not do so any more (403)
└── TooMany            more in a minute than is taken (429)
"""

from __future__ import annotations


class HookError(Exception):
    """Root of what a sender is told. `code` is stable."""

    code = "refused"


class NotAccepted(HookError):
    """Tells neither whether the address exists nor what is wrong with the signature."""

    code = "signature_invalid"

    def __init__(self) -> None:
        super().__init__(
            "no hook takes this here: the address, the secret or the time of the message is wrong"
        )


class DeliveryIdReused(HookError):
    code = "delivery_id_reused"

    def __init__(self) -> None:
        super().__init__("this delivery id was taken with another body; send a new message under a new id")


class AuthorGone(HookError):
    code = "author_gone"

    def __init__(self) -> None:
        super().__init__(
            "the member in whose name this hook submits is none any more, or may not hand over changes; "
            "an admin of the project names another in the hook's settings"
        )


class TooMany(HookError):
    code = "throttled"

    def __init__(self, wait_seconds: int) -> None:
        super().__init__(f"too many deliveries; try again in {wait_seconds} seconds")
        self.wait_seconds = wait_seconds
