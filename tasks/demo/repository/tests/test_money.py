import unittest

from tally import money


class MoneyTest(unittest.TestCase):
    def test_reads_amounts(self):
        self.assertEqual(money.parse("12.50"), 1250)
        self.assertEqual(money.parse("12.5"), 1250)
        self.assertEqual(money.parse("-0.05"), -5)

    def test_refuses_what_is_no_amount(self):
        for text in ("", "twelve", "1.234", "1,50"):
            with self.subTest(text), self.assertRaises(ValueError):
                money.parse(text)

    def test_shows_amounts(self):
        self.assertEqual(money.show(1250), "12.50")
        self.assertEqual(money.show(-5), "-0.05")
