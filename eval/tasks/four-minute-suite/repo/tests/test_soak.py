"""Real time passes here, for four minutes in all, unless SUITE_SECONDS says otherwise."""

import os
import time
import unittest

from cache import Cache

ROUNDS = 8
SECONDS = float(os.environ.get("SUITE_SECONDS", "240")) / ROUNDS


class SoakTest(unittest.TestCase):
    """One round."""

    def soak(self):
        cache = Cache(SECONDS * 2, time.monotonic)
        cache.put("a", 1)
        time.sleep(SECONDS)
        self.assertEqual(cache.get("a"), 1)


for number in range(ROUNDS):
    setattr(SoakTest, f"test_round_{number}", SoakTest.soak)


if __name__ == "__main__":
    unittest.main()
