import unittest

from tally import report
from tally.entries import read

LEDGER = ["day,customer,amount", "2026-05-04,Grace,75.50", "2026-05-11,Ada,120.00", "2026-05-19,Ada,-20.00"]


class ReportTest(unittest.TestCase):
    def test_adds_up_by_customer(self):
        self.assertEqual(report.totals(read(LEDGER)), {"Ada": 10000, "Grace": 7550})

    def test_shows_one_line_for_each_customer(self):
        self.assertEqual(report.as_text(read(LEDGER)), "Ada: 100.00\nGrace: 75.50")
