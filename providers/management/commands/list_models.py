"""`manage.py list_models`: the catalogue, with capacity, capabilities and today's prices."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from providers.catalog import ModelProfile, PriceCard, known_models, price_card, profile_of


class Command(BaseCommand):
    help = "Lists the models that Remit knows; or what it knows of the ones that are named."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("models", nargs="*", help="ids; also such that are in no catalogue")

    def handle(self, *_: Any, **options: Any) -> None:
        today = timezone.now().date()
        named = [profile_of(name) for name in options["models"]] or list(known_models())
        for profile in named:
            self.stdout.write("\n".join(lines_of(profile, price_card(profile.name, today))))


def lines_of(profile: ModelProfile, card: PriceCard | None) -> list[str]:
    """One model in a few lines; what nobody knows is written out."""
    who = profile.vendor if profile.verified else "not in the catalogue: plain questions only"
    lines = [
        f"{profile.name}  ({who})",
        f"  takes {_count(profile.input_tokens)} tokens, writes {_count(profile.output_tokens)}",
        f"  can   {', '.join(sorted(profile.can)) or 'nothing that is known'}",
    ]
    if card is None:
        return [*lines, "  costs unknown: calls under a limit in dollars are refused"]
    since = f" since {card.since}" if card.since else ""
    for band in card.bands:
        above = f", prompts above {band.prompt_above:,}" if band.prompt_above else ""
        rates = band.rates.as_data()
        prices = ", ".join(f"{name} {rate or 'unknown'}" for name, rate in rates.items())
        lines.append(f"  costs {prices} USD/MTok{above}  [{card.source}{since}]")
    return lines


def _count(tokens: int | None) -> str:
    return "an unknown number of" if tokens is None else f"{tokens:,}"
