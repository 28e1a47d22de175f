import unittest

from shop import total


class Total(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(total([1, 2]), 3)

    def test_empty(self):
        self.assertEqual(total([]), 0)

    def test_discount(self):
        self.assertEqual(total([100], discount=10), 90)
