import unittest

from tickets import sign, verify

KEY = b"test key"


class TicketsTest(unittest.TestCase):
    def test_a_signed_ticket_is_genuine(self):
        self.assertTrue(verify(sign("ann", 100, KEY), KEY, 50))

    def test_another_key_does_not_do(self):
        self.assertFalse(verify(sign("ann", 100, b"other"), KEY, 50))


if __name__ == "__main__":
    unittest.main()
