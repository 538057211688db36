"""`manage.py compare_prices`: where the dated prices of this repository and genai-prices differ."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from providers.catalog import PriceCard, known_models, library_card, price_card


class Command(BaseCommand):
    help = "Prints each difference between our price file and genai-prices; ends with 1 when there is any."

    def handle(self, *_: Any, **__: Any) -> None:
        today = timezone.now().date()
        differences = [
            line
            for profile in known_models()
            for line in differences_of(price_card(profile.name, today), library_card(profile.name, today))
        ]
        for line in differences:
            self.stdout.write(line)
        if differences:
            raise SystemExit(1)
        self.stdout.write("No difference.")


def differences_of(ours: PriceCard | None, theirs: PriceCard | None) -> list[str]:
    """Each figure that only one side has, or that differs."""
    if ours is None:
        return []
    if theirs is None:
        return [f"{ours.model}: not in genai-prices"]
    lines = []
    starts = {band.prompt_above for band in (*ours.bands, *theirs.bands)}
    for start in sorted(starts):
        mine, library = (card.rates_for(start + 1).as_data() for card in (ours, theirs))
        for name, rate in mine.items():
            if _plain(rate) != _plain(library[name]):
                where = f" above {start:,}" if start else ""
                lines.append(
                    f"{ours.model}{where}: {name} {rate or 'unknown'} here, {library[name] or 'unknown'} there"
                )
    return lines


def _plain(rate: str | None) -> str | None:
    return None if rate is None else f"{Decimal(rate).normalize():f}"
