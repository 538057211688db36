"""Wanted: totals as CSV and as JSON, also from the command line."""

import contextlib
import io
import json
import unittest

from tally import export
from tally.__main__ import main
from tally.entries import read

LEDGER = ["day,customer,amount", '2026-05-04,"Hopper, Grace",75.50', "2026-05-11,Ada,120.00"]


class ExportTest(unittest.TestCase):
    def test_csv_has_a_header_and_quotes_what_needs_it(self):
        wanted = 'customer,amount\r\nAda,120.00\r\n"Hopper, Grace",75.50\r\n'
        self.assertEqual(export.as_csv(read(LEDGER)), wanted)

    def test_json_keeps_cents_whole(self):
        wanted = [{"customer": "Ada", "cents": 12000}, {"customer": "Hopper, Grace", "cents": 7550}]
        self.assertEqual(json.loads(export.as_json(read(LEDGER))), wanted)

    def test_the_command_line_knows_the_formats(self):
        for format, start in (("text", "Ada: "), ("csv", "customer,amount"), ("json", "[")):
            with self.subTest(format), contextlib.redirect_stdout(io.StringIO()) as out:
                main(["--format", format, "examples/may.csv"])
                self.assertTrue(out.getvalue().startswith(start), out.getvalue())
