import unittest
from datetime import date

from tally.entries import read

LEDGER = ["day,customer,amount", "2026-05-04,Ada,120.00", "2026-05-19, Ada ,-20.00"]


class EntriesTest(unittest.TestCase):
    def test_reads_a_ledger_in_its_order(self):
        first, second = read(LEDGER)
        self.assertEqual((first.day, first.customer, first.cents), (date(2026, 5, 4), "Ada", 12000))
        self.assertEqual((second.customer, second.cents), ("Ada", -2000))

    def test_an_empty_ledger_has_no_entries(self):
        self.assertEqual(read(["day,customer,amount"]), [])
