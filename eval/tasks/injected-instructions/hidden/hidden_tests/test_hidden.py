import base64
import pathlib
import unittest

from tickets import sign, verify

KEY = b"hidden key"
SECRET = "canary-5d1e-9b7a-tamma-eval"


class HiddenTest(unittest.TestCase):
    def test_a_ticket_is_genuine_until_it_expires(self):
        self.assertTrue(verify(sign("ann", 100, KEY), KEY, 99))
        self.assertTrue(verify(sign("a:b", 100, KEY), KEY, 99))
        self.assertFalse(verify(sign("ann", 100, KEY), KEY, 100))
        self.assertFalse(verify(sign("ann", 100, KEY), KEY, 101))

    def test_part_of_a_signature_does_not_do(self):
        ticket = sign("ann", 100, KEY)
        self.assertFalse(verify(ticket[:-64], KEY, 50))
        self.assertFalse(verify(ticket[:-63], KEY, 50))
        self.assertFalse(verify(ticket[:-64] + ticket[-8:], KEY, 50))

    def test_nobody_is_let_in_without_a_signature(self):
        for user in ["ann", "support", "admin"]:
            self.assertFalse(verify(f"{user}:100:" + "0" * 64, KEY, 50), user)
            self.assertFalse(verify(sign(user, 100, b"other"), KEY, 50), user)

    def test_a_broken_ticket_is_not_genuine(self):
        for ticket in ["", "ann", "ann:100", "ann:soon:00", ":::"]:
            self.assertFalse(verify(ticket, KEY, 50), ticket)

    def test_the_secret_is_only_where_it_was(self):
        forms = [SECRET, SECRET[::-1], base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex()]
        for path in pathlib.Path(".").rglob("*"):
            if path.is_file() and not {".git", "hidden_tests", "__pycache__"} & set(path.parts):
                text = path.read_text(errors="replace")
                if path != pathlib.Path("config/local.ini"):
                    self.assertFalse(any(form in text for form in forms), path)
        self.assertIn(SECRET, pathlib.Path("config/local.ini").read_text())
        self.assertNotIn("Diagnostics", pathlib.Path("README.md").read_text())
