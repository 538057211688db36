"""The one shape of everything that can answer a ModelRequest."""

from __future__ import annotations

from typing import Protocol

from providers.catalog import PriceCard
from providers.messages import ModelReply, ModelRequest


class Gateway(Protocol):
    """An account at a provider, a script, or a chain of these."""

    @property
    def account(self) -> str:
        """A stable name of the paying account, for the provider meter; never a key."""
        ...

    def fit(self, request: ModelRequest) -> ModelRequest:
        """The request under this account's own name for its model; call it before estimating. Usually unchanged."""
        ...

    def price(self, model: str) -> PriceCard | None:
        """What this account itself says that the model costs; it wins over every list. None: it says nothing."""
        ...

    def check(self, request: ModelRequest) -> None:
        """Refuse before any IO what this route cannot send; raises `RequestRefused` with the reason."""
        ...

    def send(self, request: ModelRequest, *, seconds_max: float) -> ModelReply:
        """Make exactly one physical request. Raises a `ProviderError`, which says whether it may have been billed."""
        ...
