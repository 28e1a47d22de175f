import unittest

from timesheet.duration import format_minutes, parse
from timesheet.sheet import total


class HiddenTest(unittest.TestCase):
    def test_hours_and_minutes(self):
        for text, minutes in [("1h30m", 90), ("2h", 120), ("45m", 45), ("0m", 0), ("10h5m", 605), ("100m", 100)]:
            self.assertEqual(parse(text), minutes, text)

    def test_plain_numbers(self):
        for text, minutes in [("90", 90), ("0", 0), ("7", 7)]:
            self.assertEqual(parse(text), minutes, text)

    def test_anything_else_is_refused_with_its_text(self):
        for text in ["", "h", "m", "1h30", "30m1h", "-5m", "-5", "1.5h", "1h 30m", "1d", "soon", "1h2h"]:
            with self.assertRaises(ValueError, msg=text) as raised:
                parse(text)
            self.assertIn(repr(text) if not text else text, str(raised.exception))

    def test_minutes_are_written(self):
        for minutes, text in [(90, "1h30m"), (60, "1h"), (45, "45m"), (0, "0m"), (605, "10h5m")]:
            self.assertEqual(format_minutes(minutes), text)

    def test_written_minutes_are_read_again(self):
        for minutes in range(0, 400):
            self.assertEqual(parse(format_minutes(minutes)), minutes)

    def test_sums_still_work(self):
        self.assertEqual(total(["30", "1h", "1h15m"]), 165)
