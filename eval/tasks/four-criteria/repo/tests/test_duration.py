import unittest

from timesheet.duration import parse
from timesheet.sheet import total


class DurationTest(unittest.TestCase):
    def test_a_number_is_minutes(self):
        self.assertEqual(parse("90"), 90)

    def test_entries_add_up(self):
        self.assertEqual(total(["30", "15"]), 45)


if __name__ == "__main__":
    unittest.main()
