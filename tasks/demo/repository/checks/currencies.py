"""Wanted: ledgers in more than one currency."""

import unittest

from tally import report
from tally.entries import read

LEDGER = [
    "day,customer,amount,currency",
    "2026-05-04,Ada,120.00,EUR",
    "2026-05-11,Ada,30.00,USD",
    "2026-05-19,Grace,75.50,EUR",
]


class CurrenciesTest(unittest.TestCase):
    def test_an_entry_knows_its_currency(self):
        self.assertEqual([entry.currency for entry in read(LEDGER)], ["EUR", "USD", "EUR"])

    def test_a_ledger_without_the_column_is_in_euro(self):
        (entry,) = read(["day,customer,amount", "2026-05-04,Ada,1.00"])
        self.assertEqual(entry.currency, "EUR")

    def test_a_currency_is_three_capital_letters(self):
        with self.assertRaises(ValueError):
            read(["day,customer,amount,currency", "2026-05-04,Ada,1.00,euro"])

    def test_currencies_are_never_added_up(self):
        wanted = {("Ada", "EUR"): 12000, ("Ada", "USD"): 3000, ("Grace", "EUR"): 7550}
        self.assertEqual(report.totals_by_currency(read(LEDGER)), wanted)

    def test_the_report_names_the_currency_when_there_is_more_than_one(self):
        self.assertEqual(
            report.as_text(read(LEDGER)), "Ada: 120.00 EUR\nAda: 30.00 USD\nGrace: 75.50 EUR"
        )
