import unittest

from shelf.pages import has_next, page, page_count


class PagesTest(unittest.TestCase):
    def test_a_started_page_counts(self):
        self.assertEqual(page_count(21, 10), 3)
        self.assertEqual(page_count(9, 10), 1)

    def test_a_page_has_its_items(self):
        self.assertEqual(page(list("abcde"), 2, 2), ["c", "d"])

    def test_the_last_page_has_no_next(self):
        self.assertTrue(has_next(21, 10, 2))
        self.assertFalse(has_next(21, 10, 3))


if __name__ == "__main__":
    unittest.main()
