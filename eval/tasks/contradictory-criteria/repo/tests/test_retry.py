import unittest

from retry import call


class RetryTest(unittest.TestCase):
    def test_the_result_is_returned(self):
        self.assertEqual(call(lambda: 7), 7)

    def test_the_error_is_raised(self):
        with self.assertRaises(OSError):
            call(self.fail_always)

    def fail_always(self):
        raise OSError("down")


if __name__ == "__main__":
    unittest.main()
