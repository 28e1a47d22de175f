import unittest

from invoice.total import total


class TotalTest(unittest.TestCase):
    def test_whole_quantities_add_up(self):
        self.assertEqual(total([("100", "2"), ("50", "1")]), 250)

    def test_three_thirds_of_a_price(self):
        # Each line is rounded: 33.3 is 33.
        self.assertEqual(total([("100", "0.333")] * 3), 99)

    def test_a_half_is_rounded_up(self):
        self.assertEqual(total([("1", "0.5")]), 1)


if __name__ == "__main__":
    unittest.main()
