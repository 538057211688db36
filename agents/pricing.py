"""What a model probably costs at an account, before anybody asks it: at the account's own price, else at list price."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from budgets.decisions import Amount
from budgets.money import Usd
from budgets.prices import estimate_of, worst_case
from providers.account import Options
from providers.connectors import options_of


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of one account: under the name that it has for a model, when it states one there (row 138)."""

    options: Options

    def estimate(self, characters: int, output_tokens: int, model: str, at: date | None = None) -> Usd | None:
        """The most that a call should cost; None: its own price lacks a rate, or no list has the model."""
        return estimate_of(characters, output_tokens, model, at, own=self.options.price_for(model))

    def worst_case(self, characters: int, output_tokens: int, model: str) -> Amount:
        """What the first call of a run will hold."""
        return worst_case(characters, output_tokens, model, own=self.options.price_for(model))


def prices_at(organization_id: UUID, connector: str) -> Prices:
    """Of an account that is not there, or whose options cannot be read any more: list prices alone."""
    return Prices(options_of(organization_id, connector))
