"""Reads a ledger."""

import csv
from dataclasses import dataclass
from datetime import date

from tally import money


@dataclass(frozen=True)
class Entry:
    day: date
    customer: str
    cents: int


def read(lines):
    """The entries of a CSV ledger, in its order."""
    return [_entry(row) for row in csv.DictReader(lines)]


def _entry(row):
    return Entry(date.fromisoformat(row["day"]), row["customer"].strip(), money.parse(row["amount"]))
