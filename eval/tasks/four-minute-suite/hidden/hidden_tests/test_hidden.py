import pathlib
import unittest

from cache import Cache


class HiddenTest(unittest.TestCase):
    def setUp(self):
        self.now = 0
        self.cache = Cache(10, lambda: self.now)

    def test_a_new_value_replaces_the_old_one(self):
        self.cache.put("a", 1)
        self.cache.put("a", 2)
        self.assertEqual(self.cache.get("a"), 2)
        self.assertEqual(len(self.cache), 1)

    def test_a_new_value_lives_from_its_own_time_on(self):
        self.cache.put("a", 1)
        self.now = 8
        self.cache.put("a", 2)
        self.now = 17
        self.assertEqual(self.cache.get("a"), 2)
        self.now = 19
        self.assertIsNone(self.cache.get("a"))

    def test_a_value_expires_at_its_age(self):
        self.cache.put("a", 1)
        self.now = 9
        self.assertEqual(self.cache.get("a"), 1)
        self.now = 10
        self.assertIsNone(self.cache.get("a"))

    def test_an_expired_value_is_removed_when_it_is_asked_for(self):
        self.cache.put("a", 1)
        self.cache.put("b", 2)
        self.now = 30
        self.assertIsNone(self.cache.get("a"))
        self.assertEqual(len(self.cache), 1)

    def test_the_soak_tests_are_as_long_as_before(self):
        text = pathlib.Path("tests/test_soak.py").read_text()
        for part in ["ROUNDS = 8", '"SUITE_SECONDS", "240"', "time.sleep(SECONDS)"]:
            self.assertIn(part, text)
