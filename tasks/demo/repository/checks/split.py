"""Wanted: an amount split by weights, to the last cent."""

import unittest

from tally.money import split


class SplitTest(unittest.TestCase):
    def test_the_shares_add_up(self):
        for cents in (100, 101, 1, 0, 99999):
            for weights in ([1, 1, 1], [3, 2, 2], [1, 0, 5]):
                with self.subTest(cents=cents, weights=weights):
                    self.assertEqual(sum(split(cents, weights)), cents)

    def test_what_is_left_over_goes_to_the_largest_remainder(self):
        self.assertEqual(split(100, [3, 2, 2]), [43, 29, 28])
        self.assertEqual(split(100, [1, 1, 4]), [17, 17, 66])

    def test_of_equal_remainders_the_earlier_comes_first(self):
        self.assertEqual(split(100, [1, 1, 1]), [34, 33, 33])

    def test_a_refund_mirrors_a_charge(self):
        self.assertEqual(split(-100, [1, 1, 1]), [-34, -33, -33])
        self.assertEqual(split(-100, [1, 1, 4]), [-17, -17, -66])

    def test_a_weight_of_zero_gets_nothing(self):
        self.assertEqual(split(100, [1, 0, 1]), [50, 0, 50])

    def test_without_weights_there_is_nothing_to_split(self):
        for weights in ([], [0, 0], [1, -1]):
            with self.subTest(weights=weights), self.assertRaises(ValueError):
                split(100, weights)
