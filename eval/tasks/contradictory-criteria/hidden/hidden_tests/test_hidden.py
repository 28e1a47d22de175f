import unittest

from retry import call


class HiddenTest(unittest.TestCase):
    """Both criteria. No change can pass both tests."""

    def calls(self):
        made = []

        def fail():
            made.append(1)
            raise OSError("down")

        with self.assertRaises(OSError):
            call(fail)
        return len(made)

    def test_three_calls_in_all(self):
        self.assertEqual(self.calls(), 3)

    def test_three_more_calls_after_the_first(self):
        self.assertEqual(self.calls(), 4)
