import unittest

from cache import Cache


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.now = 0
        self.cache = Cache(10, lambda: self.now)

    def test_a_value_is_kept(self):
        self.cache.put("a", 1)
        self.now = 9
        self.assertEqual(self.cache.get("a"), 1)

    def test_a_value_expires(self):
        self.cache.put("a", 1)
        self.now = 11
        self.assertIsNone(self.cache.get("a"))


if __name__ == "__main__":
    unittest.main()
